"""`--detach`: the command ends once the run has begun, and the coordinator goes on without it.

    command       fork | wait for the run's id ---------------------- | print it, exit 0
    coordinator          setsid | check the request | run.json written | output goes to its log | …

What is wrong with the request is said by the command, with its exit code, as without `--detach`.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import typer

from dayfly.runs.display import Lines, StandardError

#: In the run's directory: what the coordinator prints.
LOG = Path("logs") / "coordinator.log"


class Detached(Lines):
    """Shows the run in the terminal of the command, and in a log once that has ended.

    Args:
        pipe: to the command, which is told the run's id.
    """

    def __init__(self, pipe: int) -> None:
        super().__init__(StandardError())
        self._pipe = pipe

    def begun(self, run_id: str, directory: Path) -> None:
        (directory / LOG).parent.mkdir(exist_ok=True)
        log = os.open(directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(nothing)
        os.close(log)
        told = {"run_id": run_id, "status": "running", "directory": str(directory)}
        with suppress(BrokenPipeError):  # the command was killed
            os.write(self._pipe, json.dumps(told).encode())
        os.close(self._pipe)


def detach(*, as_json: bool) -> Detached:
    """Returns in a new process, which the command does not wait for longer than its beginning.

    Args:
        as_json: whether the command prints what it is told as JSON, and not the id alone.

    Raises:
        typer.Exit: in the command's own process, with its exit code.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.setsid()
        return Detached(writing)
    os.close(writing)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: os.kill(pid, received))
    with open(reading, "rb") as pipe:
        told = pipe.read()
    if not told:
        raise typer.Exit(_code(os.waitpid(pid, 0)[1]))
    run = json.loads(told)
    print(told.decode() if as_json else run["run_id"], flush=True)
    StandardError().print(
        f"it goes on by itself: dayfly follow {run['directory']}, dayfly stop {run['directory']}",
        highlight=False,
        soft_wrap=True,
    )
    raise typer.Exit(0)


def _code(status: int) -> int:
    """The exit code of a shell for how a process ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
