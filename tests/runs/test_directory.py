"""A run's directory: private, refused for odd names, and never made anew."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dayfly.errors import RequestError
from dayfly.runs import directory as module
from dayfly.runs import home, launch
from dayfly.runs.directory import LOCK, fresh_directory, holder, locked
from dayfly.runs.display import Display
from dayfly.runs.settings import Settings
from dayfly.wire.stores.base import Store
from dayfly.wire.stores.files import FileStore
from tests.runs import small


def refused(directory: Path, *others: str) -> None:
    """Prepare a run there and refuse it. others: files that somebody else puts there meanwhile."""
    with suppress(RequestError), fresh_directory(directory):
        (directory / "job").mkdir()
        (directory / "job" / "job.pkl").touch()
        (directory / "lock").touch()
        for name in others:
            (directory / name).write_text("mine")
        raise RequestError("wrong")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_one_that_dayfly_makes_is_its_users_alone(tmp_path: Path) -> None:
    with fresh_directory(tmp_path / "runs" / "one"):
        assert mode(tmp_path / "runs" / "one") == 0o700
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o750)
    with fresh_directory(tmp_path / "shared"):
        assert mode(tmp_path / "shared") == 0o750


def test_what_is_refused_leaves_what_was_there(tmp_path: Path) -> None:
    refused(tmp_path / "a" / "b" / "c")
    assert not (tmp_path / "a").exists()
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    refused(tmp_path / "link")
    assert list((tmp_path / "empty").iterdir()) == []
    refused(tmp_path / "new", "thesis")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["thesis"]


@pytest.mark.parametrize("odd", ["a\nb", "a\x1b[31m", "a\u2028b", "a\udcffb"])
def test_a_name_with_control_characters_is_refused(odd: str, tmp_path: Path) -> None:
    with (
        pytest.raises(RequestError, match="a control character or a line break"),
        fresh_directory(tmp_path / odd),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_removed_in_mid_run_fails_the_run_and_is_not_made_anew(
    data: Path, tmp_path: Path
) -> None:
    class Remover(Display):
        def step(self, step: int, loss: float | None) -> None:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)

    run = launch.begin(
        small.job(data),
        Settings(workers=1),
        directory=tmp_path / "run",
        display=Remover(),
    )
    assert run.result.status == "failed"
    was = f"directory '{tmp_path / 'run'}' was removed while it was in use"
    assert run.result.error == f"{was}: put it back"
    assert run.to_go_on is None
    assert not (tmp_path / "run").exists()


def test_who_looks_whether_it_is_run_hinders_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / LOCK).open("w") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(looker, fcntl.LOCK_UN))
        with locked(tmp_path):
            assert holder(tmp_path) == str(os.getpid())


def test_a_copy_for_which_there_is_no_room_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: Store, directory: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(directory / "worker-0.jsonl"))

    monkeypatch.setattr(home, "as_files", full)
    store = FileStore(tmp_path / "store")
    store.put("run.json", json.dumps({"format": 3, "run_id": "one"}).encode())
    with pytest.raises(RequestError, match=r"run directory .*No space left on device"):
        home.local_directory(store.url, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("where", ["_refuse_if_taken", "_opened_lock", "_unmake"])
def test_a_signal_in_any_line_leaves_nothing(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the lock is taken; once, as the second call is that which cleans up."""
    whole, calls = getattr(module, where), iter([KeyboardInterrupt])

    def interrupted(*args: Any, **more: Any) -> Any:
        done = whole(*args, **more)
        for signal in calls:
            raise signal
        return done

    monkeypatch.setattr(module, where, interrupted)
    with pytest.raises(KeyboardInterrupt), fresh_directory(tmp_path / "runs" / "one"):
        pytest.fail("it was to be interrupted before")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_leaves_what_is_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("theirs")
    with pytest.raises(RequestError, match="is not empty"), fresh_directory(tmp_path):
        pytest.fail("it is taken")
    assert [path.name for path in tmp_path.iterdir()] == ["job"]
