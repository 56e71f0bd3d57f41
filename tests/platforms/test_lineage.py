"""Zygotes before and between platforms: when one is kept, for whom, and until when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from platform_testing import call, eventually, is_alive, read_pids, run, wait_for_all

from dayfly.errors import RunFailed
from dayfly.life.platforms import lineage
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.sessions import Session

#: The command up to where it starts the zygote: what is imported by then, and by what it is warmed.
FIRST_SECONDS = """
import subprocess, sys

def start(words, **given):
    heavy = {"torch", "numpy", "rich"} & set(sys.modules)
    print(words[-2], "dayfly.runs.worker" in words[-1], sorted(heavy), flush=True)
    raise SystemExit(7)

subprocess.Popen = start
sys.argv = ["dayfly", *sys.argv[1:]]
from dayfly.cli.app import main
main()
"""


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    lineage.end_kept()
    yield
    lineage.end_kept()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Of sessions, with none of other tests in it."""
    made = tmp_path / "sessions"
    made.mkdir()
    return made


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user's, which functions import."""
    folder = tmp_path / "users"
    folder.mkdir()
    file = folder / "platform_handlers_value.py"
    file.write_text("VALUE = 'first'")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "platform_handlers_value", raising=False)
    return file


def looked(base: Path, logs: Path, payload: dict[str, Any], *, keep: bool = True) -> dict[str, Any]:
    """What a function finds on a platform that is closed afterwards."""
    with Session.open(base) as session, LocalPlatform(session, logs) as platform:
        found = run(platform, "look_around", payload)
        if keep:
            platform.keep_warm()
    assert found.result is not None, found.error
    return dict(found.result)


@pytest.mark.parametrize(
    "asked",
    [
        ["demo"],
        ["train", "job.py"],
        ["train", "--resume", "run"],
        ["run", "script.py"],
        ["profile", "job.py"],
    ],
)
def test_torch_is_imported_beside_the_zygote_and_not_before_it(asked: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_SECONDS, *asked], capture_output=True, text=True, timeout=100
    )
    preloads_a_worker = asked[0] != "run"
    expected = f"dayfly.life.platforms.zygote {preloads_a_worker} []\n"
    assert (done.stdout, done.returncode) == (expected, 7), done.stderr


@pytest.mark.long
def test_the_next_platform_has_the_same_zygote_and_its_functions_what_is_new(
    tmp_path: Path, base: Path, user_module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = {"module": "platform_handlers_value", "variable": "OF_A_FUNCTION"}
    monkeypatch.setenv("OF_A_FUNCTION", "before")
    first = looked(base, tmp_path / "1", payload)
    assert (first["variable"], first["module"]) == ("before", "first")

    monkeypatch.setenv("OF_A_FUNCTION", "after")
    user_module.write_text("VALUE = 'the second one'")
    second = looked(base, tmp_path / "2", payload)
    assert second == {**first, "variable": "after", "module": "the second one"}

    monkeypatch.delenv("OF_A_FUNCTION")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "another.py").write_text("VALUE = 3")
    monkeypatch.syspath_prepend(str(elsewhere))
    third = looked(base, tmp_path / "3", {**payload, "module": "another"}, keep=False)
    assert third == {**first, "variable": None, "module": 3}
    assert not is_alive(first["zygote"])
    assert [one.name for one in base.glob("*/*")] == [".lock"], "no session is left"
    assert (tmp_path / "3" / "_zygote.log").is_file()


@pytest.mark.long
@pytest.mark.parametrize("what", ["variable", "directory", "umask", "preload", "is dead"])
def test_one_that_began_otherwise_is_replaced(
    what: str,
    tmp_path: Path,
    base: Path,
    user_module: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = {"module": "platform_handlers_value", "variable": "LD_MARK"}
    first = looked(base, tmp_path / "1", payload)
    preload: list[str] = []
    umask = os.umask(0o22)
    try:
        match what:
            case "variable":
                monkeypatch.setenv("LD_MARK", "another")
            case "directory":
                monkeypatch.chdir(tmp_path)
            case "umask":
                os.umask(0o27)
            case "preload":
                preload = ["platform_handlers_value"]
            case _:
                os.kill(first["zygote"], signal.SIGKILL)
                eventually("its end", lambda: not is_alive(first["zygote"]))
        with (
            Session.open(base) as session,
            LocalPlatform(session, tmp_path / "2", preload) as platform,
        ):
            second = run(platform, "look_around", payload).result
            assert not is_alive(first["zygote"])
    finally:
        os.umask(umask)
    assert second is not None
    assert second["zygote"] != first["zygote"]
    assert second["variable"] == ("another" if what == "variable" else None)


@pytest.mark.long
def test_none_is_kept_that_is_not_at_rest(tmp_path: Path, base: Path) -> None:
    with Session.open(base) as session:
        with LocalPlatform(session, tmp_path / "1") as warming:
            warming.prepare()
            warming.keep_warm()
        with LocalPlatform(session, tmp_path / "2") as busy:
            told = tmp_path / "zygote"
            assert run(busy, "tell_zygote", {"file": str(told)}).result is not None
            payload = {"seconds": 60, "pid_file": str(tmp_path / "pid")}
            busy.invoke(call("solo", "sleep", payload))
            read_pids(tmp_path / "pid")
            busy.keep_warm()
        wait_for_all(busy, ["solo"])
    (zygote,) = read_pids(told)
    assert not is_alive(zygote)
    assert lineage._kept == []


@pytest.mark.long
def test_what_functions_left_in_the_background_goes_before_it_is_kept(
    tmp_path: Path, base: Path
) -> None:
    with (
        Session.open(base) as session,
        LocalPlatform(session, tmp_path / "1", enforcer="rlimit") as platform,
    ):
        left = run(platform, "leave_children", memory_mib=500).result
        platform.keep_warm()
    assert left is not None
    assert not any(is_alive(pid) for pid in left["pids"])
    assert len(lineage._kept) == 1


@pytest.mark.long
def test_one_that_cannot_start_is_named_by_the_platform(tmp_path: Path, base: Path) -> None:
    lineage.warm_up(["no_such_module"])
    with (
        Session.open(base) as session,
        LocalPlatform(session, tmp_path / "1", ["no_such_module"]) as platform,
        pytest.raises(RunFailed, match="No module named 'no_such_module'"),
    ):
        platform.least_memory_mib()


KEPT = """
import os, sys, time
from pathlib import Path
from platform_handlers import write
from platform_testing import run
from dayfly.life.platforms import lineage
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.sessions import Session

base, told, how = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
with Session.open(base) as session, LocalPlatform(session, told / "logs") as platform:
    run(platform, "tell_zygote", {"file": str(told / "zygote")})
    platform.keep_warm()
if how == "fork" and os.fork() == 0:
    assert lineage._kept == []
    write(str(told / "forked"), str(os.getpid()))
    sys.exit()  # which ends what a process has kept, and this one has nothing
write(str(told / "kept"), str(os.getpid()))
if how != "exit":
    time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["exit", "kill -9", "fork"])
def test_it_ends_with_its_process(how: str, tmp_path: Path, base: Path) -> None:
    script = tmp_path / "keeps.py"
    script.write_text(KEPT)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    owner = subprocess.Popen(
        [sys.executable, str(script), str(base), str(tmp_path), how],
        env=os.environ | {"PYTHONPATH": path},
    )
    try:
        (zygote,) = read_pids(tmp_path / "zygote")
        read_pids(tmp_path / "kept")
        if how == "exit":
            assert owner.wait(100) == 0
            assert not is_alive(zygote)
            assert [one.name for one in base.glob("*/*")] == [".lock"]
            return
        if how == "fork":
            (forked,) = read_pids(tmp_path / "forked")
            eventually("the child's end", lambda: not is_alive(forked))
        assert is_alive(zygote)
    finally:
        owner.kill()
        owner.wait(100)
    eventually("the zygote's end", lambda: not is_alive(zygote))
    Session.open(base).close()
    assert [one.name for one in base.glob("*/*")] == [".lock"]
