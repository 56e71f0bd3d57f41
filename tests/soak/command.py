"""The process of the command in a soak: python -m tests.soak.command SPEC.

SPEC is JSON: data, run_dir, settings, job (arguments of `job.job`), faults. It begins the run, or
goes on with it if the directory has one, and ends as `dayfly train --json` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dayfly.cli.outcome import conclude
from dayfly.life.faults import Fault
from dayfly.runs import changing_coordinator, coordinator, launch
from dayfly.runs.display import Display
from dayfly.runs.run import Run
from dayfly.runs.settings import Settings
from tests.soak import job

_ROOT = Path(__file__).parents[2]


def start(spec: Mapping[str, Any], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """The process, in a process group of its own; what it says is appended to the log."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.soak.command", json.dumps(spec, default=str)],
            cwd=_ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _run(spec: Mapping[str, Any]) -> Run:
    directory = Path(spec["run_dir"])
    faults = [Fault(**fault) for fault in spec["faults"]]
    if (directory / "run.json").exists():
        return launch.resume(directory, display=Display(), faults=faults)
    return launch.begin(
        job.job(Path(spec["data"]), **spec["job"]),
        Settings(**spec["settings"]),
        directory=directory,
        # Files that travel with the job, as beside a job file of the user's.
        code=Path(__file__).parent,
        display=Display(),
        faults=faults,
    )


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    coordinator.LOOK_EVERY_S = 0.2  # for requests, of which there are many
    # Lives of a few seconds have successors in time, too, where a start is quick enough.
    changing_coordinator.SHORTEST_RENEWED_S = 4.0
    sys.exit(conclude(lambda: _run(given), as_json=True))
