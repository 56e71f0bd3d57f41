"""Kills at every write into a run's directory: python -m tests.runs.kills PHASE SPEC.

A process that is ready forks one child after another. The n-th child does the same work in the
same directory, as its predecessors left it, and kills itself before its n-th write there: before it
makes a file or directory, opens a file to write, renames, links or removes. So each of them begins
where a kill at such a moment has left off. It is over with the first child that comes to the end.

PHASE: `begin`, a new run up to the coordinator's first look; `end`, the results of a run whose last
checkpoint is committed. SPEC is JSON: data, run_dir. Prints how often a child was killed, and what
`Record.load` said of the directory after each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import dayfly
from dayfly.errors import RequestError
from dayfly.life import checkpoints
from dayfly.life.faults import Fault
from dayfly.life.platforms.local import LocalPlatform
from dayfly.life.sessions import Session
from dayfly.runs import launch
from dayfly.runs.directory import RECORD
from dayfly.runs.display import Display
from dayfly.runs.events import Events
from dayfly.runs.home import Home
from dayfly.runs.job_coordinator import JobCoordinator
from dayfly.runs.job_record import Record
from dayfly.runs.listeners import Listeners
from dayfly.runs.recorder import Recorder
from dayfly.runs.run_context import RunContext, RunRequest
from dayfly.runs.shipping import receive
from dayfly.runs.signals import StopSignals
from dayfly.runs.workplace import Workplace
from dayfly.wire.keys import COORDINATOR
from dayfly.wire.stores.files import FileStore
from tests.runs import small

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
#: Audit events of writes, and where among their arguments the path is, and the descriptor of the
#: directory that it begins at.
_EVENTS = {
    "os.mkdir": (0, 2),
    "os.remove": (0, 1),
    "os.rmdir": (0, 1),
    "os.rename": (1, 3),
    "os.link": (1, 3),
}
_FAILED = 3


def writes_to(directory: Path, event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether an audit event is a write below a directory, or makes or removes that itself."""
    if event == "open":
        path, mode, flags = arguments
        if not (flags & _WRITES or set("wax+") & set(mode or "")) or isinstance(path, int):
            return False
        at = -1
    elif event in _EVENTS:
        where, whose = _EVENTS[event]
        path, at = arguments[where], arguments[whose]
    else:
        return False
    begin = f"/proc/self/fd/{at}" if at >= 0 else os.getcwd()
    whole = Path(begin if at < 0 else os.readlink(begin), os.fsdecode(path))
    return whole == directory or directory in whole.parents


def die_before_write(number: int, directory: Path) -> None:
    """From here on, this process kills itself before its n-th write into a directory."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in ("open", *_EVENTS) and writes_to(directory, event, arguments):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def begin(data: Path, run_dir: Path) -> None:
    """A run that begins, or goes on, until the coordinator kills itself at its first look."""
    faults = [Fault(COORDINATOR, 0, "begin")]
    LocalPlatform.prepare = lambda self: None  # type: ignore[method-assign]  # no function starts
    if (run_dir / RECORD).exists():
        launch.resume(run_dir, display=Display(), faults=faults)
    else:
        dayfly.train(small.job(data), run_dir=run_dir, faults=faults, progress=False)


def end(data: Path, run_dir: Path) -> None:
    """Everything that a coordinator does once its workers are done; without any worker."""
    store, record = FileStore(run_dir), Record.load(run_dir)
    job = receive(record.shipped, store, scratch=None)
    if record.status == "done":
        return JobCoordinator.discard_inputs(store)
    with (
        Session.open() as session,
        LocalPlatform(session, run_dir / "logs") as platform,
        StopSignals() as signals,
    ):
        workplace = Workplace(session, platform, signals, run_dir)
        context = RunContext(RunRequest(Display()), Home(store, run_dir), workplace)
        coordinator = JobCoordinator(job, record, context)
        so_far = Events.read(run_dir / "events")
        recorder = Recorder(run_dir, lambda source, event: None, so_far)
        with Listeners(lambda source, event: None, (), lambda text: None) as listeners:
            summary = coordinator._summary("done", None)
            result = coordinator._write_results(summary, recorder, listeners)
        assert result.status == "done", result.error


def said_of(directory: Path) -> str:
    """Whether the run can be gone on with, or what is said of it."""
    try:
        record = Record.load(directory)
    except RequestError as error:
        return str(error)
    committed = checkpoints.latest(FileStore(directory))
    assert committed is not None
    checkpoints.read(FileStore(directory), committed)
    return record.status


def child(number: int, work: Callable[[Path, Path], None], data: Path, run_dir: Path) -> NoReturn:
    code = _FAILED
    try:
        die_before_write(number, run_dir)
        work(data, run_dir)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(phase: str, data: Path, run_dir: Path) -> None:
    work = {"begin": begin, "end": end}[phase]
    said: list[str] = []
    number = 0
    while True:
        # Of a run that is gone on with, every write is one to be killed at, too.
        number = 1 if said and said[-1] == "running" != "".join(said[-2:-1]) else number + 1
        pid = os.fork()
        if pid == 0:
            child(number, work, data, run_dir)
        status = os.waitpid(pid, 0)[1]
        if (run_dir / "faults" / "0").exists() or status == 0:
            break
        assert os.WIFSIGNALED(status), f"child {len(said) + 1} was not killed"
        assert os.WTERMSIG(status) == signal.SIGKILL
        # A forked process computes: this one must not, as its children could not any more.
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, said_of(run_dir).encode())
            os._exit(0)
        os.close(writing)
        with open(reading) as file:
            said.append(file.read())
        os.wait()
    print(json.dumps({"kills": len(said), "said": said}))


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    main(sys.argv[1], Path(given["data"]), Path(given["run_dir"]))
