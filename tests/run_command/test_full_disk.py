"""A run's directory on a disk that is full, from the beginning or in the middle of the run."""

from __future__ import annotations

import errno
import io
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.runs.directory import being_prepared, locked
from dayfly.runs.scripts import launch
from dayfly.runs.scripts.record import ScriptRun, ScriptSettings
from dayfly.wire.stores.base import StoreError
from dayfly.wire.stores.files import cannot_write
from tests.run_command.scripts import Notes
from tests.runs import small

pytestmark = pytest.mark.long


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """256 KiB large."""
    root = tmp_path / "disk"
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "dayfly-test", str(root)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield root
    finally:
        subprocess.run(["umount", root], check=True)


def fill(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "filler").write_bytes(bytes(2**20))


def run(directory: Path, script: Path) -> ScriptRun:
    settings = ScriptSettings(workers=1, max_restarts=0)
    return launch.begin(
        str(script), (), settings, directory=directory, display=Notes(), output=io.StringIO()
    )


def test_a_full_disk_is_a_wrong_request(disk: Path, here: Path) -> None:
    fill(disk)
    script = here / "script.py"
    script.write_text("print('ran')")
    with pytest.raises(RequestError, match=f"run directory '{disk}/run': No space left on device"):
        run(disk / "run", script)
    with pytest.raises(RequestError, match=f"run directory '{disk}/run': No space left on device"):
        dayfly.train(small.job(here), workers=1, run_dir=disk / "run", progress=False)
    assert [file.name for file in disk.iterdir()] == ["filler"]


def test_a_disk_that_becomes_full_is_named_as_the_cause(disk: Path, here: Path) -> None:
    script = here / "script.py"
    script.write_text("while True: print('a line, and another one')")
    error = run(disk / "run", script).result.error or ""
    assert "No space left on device" in error
    assert "make room" in error
    assert str(disk / "run") in error or "in the run's directory" in error
    with pytest.raises(RequestError, match=r"cannot write .*run\.json: No space left on device: "):
        launch.resume(disk / "run", display=Notes(), output=io.StringIO())


def test_only_what_cannot_be_written_there_is_the_directorys(tmp_path: Path) -> None:
    full, place = OSError(errno.ENOSPC, "No space left on device"), tmp_path / "logs"
    with pytest.raises(RequestError, match="can be written"), being_prepared(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied", str(place))
    with pytest.raises(RequestError, match=f": make room in {tmp_path}"), being_prepared(tmp_path):
        raise cannot_write(place, full)
    with pytest.raises(FileNotFoundError), being_prepared(tmp_path):
        Path("/of/the/users/own/code").read_text()
    assert "make room" not in str(cannot_write(place, OSError(errno.EIO, "Input/output error")))
    assert isinstance(cannot_write(place, full), StoreError)
    (tmp_path / "lock").mkdir()
    with pytest.raises(RequestError, match="Is a directory"), locked(tmp_path):
        pass
