"""A coordinator as a process of its own, to be killed: python -m tests.runs.coordinator SPEC.

SPEC is JSON: data, run_dir, workers, faults, and further settings of `dayfly.train`. forgetful: it
takes files for a channel that cannot replay. job: `module:function` that makes it of the data, if
not `small.job`.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dayfly
from dayfly.life.faults import Fault
from dayfly.wire.channels.kinds import Files

_ROOT = Path(__file__).parents[2]
#: Seconds that a run may take until it is killed, or in which nothing happens in it; that a worker
#: waits for a message; and that its processes may take to say where they are.
_KILLED_S, _STILL_S, _WAIT_S, _SAY_S = 200.0, 90.0, 60.0, 2.0
_LOOK_S = 0.05
#: Characters of each file's end that are told.
_WORDS = 4000


def start(*, faults: Sequence[Fault] = (), **spec: Any) -> subprocess.Popen[str]:
    """The process, training `small.job`."""
    given = json.dumps({**spec, "faults": [fault.dump() for fault in faults]}, default=str)
    command = [sys.executable, "-m", "tests.runs.coordinator", given]
    return subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True)


def killed(*, run_dir: Path, faults: Sequence[Fault], **spec: Any) -> None:
    """Train until one of the faults kills the process. Else it fails, and says who did what.

    It fails, too, if a worker died that was not to be killed, such as of a message that was lost.
    """
    process = start(run_dir=run_dir, faults=faults, **{"wait_timeout_s": _WAIT_S, **spec})
    why = None
    try:
        while process.poll() is None and (why := _stuck(run_dir)) is None:
            time.sleep(_LOOK_S)
        if why is not None:
            for pid in (process.pid, *_children(process.pid)):
                os.kill(pid, signal.SIGUSR1)  # they say where they are
            time.sleep(_SAY_S)
    finally:
        process.kill()
    said = process.communicate()[1]
    if why is None and process.returncode != -signal.SIGKILL:
        why = f"it ended with exit code {process.returncode}, and was not killed"
    why = why or _raised(run_dir)
    assert why is None, "\n".join([why, said, *_last_words(run_dir)])


def _stuck(run_dir: Path) -> str | None:
    """Why a run is not waited for any longer, if it is not."""
    now, written = time.time(), []
    for path in (run_dir, *run_dir.glob("*/*")):
        with suppress(FileNotFoundError):  # removed meanwhile
            written.append(path.stat().st_mtime)
    if not written:
        return None
    if now - max(written) > _STILL_S:
        return f"nothing was written into the run's directory for {_STILL_S:g} s"
    if now - min(written) > _KILLED_S:
        return f"it lives on after {_KILLED_S:g} s"
    return None


def _raised(run_dir: Path) -> str | None:
    """What a worker raised, if one did: it was not planned to."""
    file = run_dir / "events" / "coordinator.jsonl"
    ended = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    errors = [one["error"] for one in ended if one.get("death") and one["error"]]
    return f"a worker raised {errors[0]}" if errors else None


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _last_words(run_dir: Path) -> list[str]:
    """The ends of all that a run wrote."""
    paths = [*run_dir.glob("events/*"), *run_dir.glob("logs/*")]
    return [f"{path}:\n{path.read_text()[-_WORDS:]}" for path in sorted(paths)]


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    given = json.loads(sys.argv[1])
    faults = [Fault(**fault) for fault in given.pop("faults")]
    if given.pop("forgetful", False):
        Files.abilities = replace(Files.abilities, replays=False)
    module, _, name = given.pop("job", "tests.runs.small:job").partition(":")
    job = getattr(importlib.import_module(module), name)(Path(given.pop("data")))
    dayfly.train(job, faults=faults, progress=False, **given)
