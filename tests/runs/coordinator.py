"""A coordinator as a process of its own, to be killed: python -m tests.runs.coordinator SPEC.

SPEC is JSON: data, run_dir, workers, faults, and further settings of `dayfly.train`. forgetful: it
takes files for a channel that cannot replay.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dayfly
from dayfly.life.faults import Fault
from dayfly.wire.channels.kinds.files import Files
from tests.runs import small

_ROOT = Path(__file__).parents[2]


def start(**spec: Any) -> subprocess.Popen[str]:
    """The process, training `small.job`."""
    command = [sys.executable, "-m", "tests.runs.coordinator", json.dumps(spec, default=str)]
    return subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    faults = [Fault(**fault) for fault in given.pop("faults", [])]
    if given.pop("forgetful", False):
        Files.abilities = replace(Files.abilities, replays=False)
    job = small.job(Path(given.pop("data")))
    dayfly.train(job, faults=faults, progress=False, **given)
