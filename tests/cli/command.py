"""The command, as a user types it, and what it may leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dayfly.cli.app import app

DAYFLY = str(Path(sys.executable).with_name("dayfly"))
#: For a machine that is busy with other tests; nothing waits that long when all is well.
WAIT_S = 180.0


def run(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DAYFLY, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def here(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in the test's own process, for which it need not be started."""
    words = [*map(str, arguments)]
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, words, env=environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


@contextlib.contextmanager
def start(*arguments: object, cwd: Path, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own, as a shell starts it; at the end of the block that is killed.

    before: Python that it runs first.
    """
    patched = [sys.executable, str(Path(__file__).with_name("patched.py")), before]
    heard = signal.signal(signal.SIGINT, signal.SIG_DFL)  # in the background it is ignored
    try:
        process = subprocess.Popen(
            [*(patched if before else [DAYFLY]), *map(str, arguments)],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, heard)
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def last_json(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def eventually(what: str, holds: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    until = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < until, f"{what}: not within {timeout_s} s"
        time.sleep(0.01)


def session_of(process: subprocess.Popen[str]) -> str:
    """The id of the session that a command's process owns, by the mark of its children."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").parents[1]
    pids = " ".join(read(file) for file in children.glob("*/children")).split()
    marks = {mark for pid in pids for mark in _marks(pid)}
    (mark,) = marks
    return mark.partition(".")[0]


def _marks(pid: str) -> list[str]:
    environment = read(Path(f"/proc/{pid}/environ")).split("\0")
    name = "DAYFLY_SESSION="
    return [entry.removeprefix(name) for entry in environment if entry.startswith(name)]


def read(file: Path) -> str:
    """A file of the kernel's; empty if what it tells of has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""


def directory_of(session: str) -> Path:
    return Path(f"/dev/shm/dayfly-{os.geteuid()}") / session


def cgroups(session: str) -> list[Path]:
    # Not by Path.glob, which fails at a cgroup that another test removes meanwhile.
    walked = os.walk("/sys/fs/cgroup")
    return [Path(place, name) for place, names, _ in walked for name in names if session in name]


def processes(session: str) -> list[int]:
    """Live processes that carry the session's mark in their environment."""
    mark = f"DAYFLY_SESSION={session}".encode()
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (directory / "environ").read_bytes():
                found.append(int(directory.name))
        except OSError:
            continue
    return found


def of_worker(rank: int, session: str) -> list[int]:
    """Those whose standard output is a worker's log."""
    found = []
    for pid in processes(session):
        with contextlib.suppress(OSError):  # it has ended
            if f"worker-{rank}" in Path(f"/proc/{pid}/fd/1").readlink().name:
                found.append(pid)
    return found


def nothing_left(session: str) -> bool:
    """Neither files nor processes nor cgroups."""
    return not (directory_of(session).exists() or processes(session) or cgroups(session))
