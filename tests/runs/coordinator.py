"""A coordinator as a process of its own, to be killed: python -m tests.runs.coordinator SPEC.

SPEC is JSON: data, run_dir, workers, faults, and further settings of `dayfly.train`. forgetful: it
takes files for a channel that cannot replay.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dayfly
from dayfly.life.faults import Fault
from dayfly.wire.channels.kinds.files import Files
from tests.runs import small

_ROOT = Path(__file__).parents[2]
#: Seconds that a run may take until it is killed, and its processes to say where they are.
_KILLED_S, _SAY_S = 200.0, 2.0
#: Characters of each file's end that are told.
_WORDS = 4000


def start(*, faults: Sequence[Fault] = (), **spec: Any) -> subprocess.Popen[str]:
    """The process, training `small.job`."""
    given = json.dumps({**spec, "faults": [fault.dump() for fault in faults]}, default=str)
    command = [sys.executable, "-m", "tests.runs.coordinator", given]
    return subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True)


def killed(*, run_dir: Path, faults: Sequence[Fault], **spec: Any) -> None:
    """Train until one of the faults kills the process. Else it fails, and says who did what."""
    process = start(run_dir=run_dir, faults=faults, **spec)
    try:
        ended: object = process.wait(_KILLED_S)
    except subprocess.TimeoutExpired as error:
        ended = error
        for pid in (process.pid, *_children(process.pid)):
            os.kill(pid, signal.SIGUSR1)  # functions and this module's process say where they are
        time.sleep(_SAY_S)
    finally:
        process.kill()
    said = process.communicate()[1]
    assert ended == -signal.SIGKILL, "\n".join([said, *_last_words(run_dir)])


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
    job = small.job(Path(given.pop("data")))
    dayfly.train(job, faults=faults, progress=False, **given)
