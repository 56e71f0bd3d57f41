"""`dayfly bench start`: seconds to the first step, and from the last step to the prompt.

    spawn       functions invoked     first step        last step       exit
      |=== command ===|=== workers ===|==== training ====|==== end ====|

The report of a run has the same phases (`dayfly.runs.report.reading`), without start and exit of
the interpreter.

One round measures, each in processes of its own:

    import torch    the peer: a Python process that does nothing but import torch
    command         `dayfly train` of the digits CNN, from its spawn to its exit
    second run      the second of two runs of the same process by `dayfly.train`, as in a notebook

A ratio is of the times of one round. The steps between are the same few each time, so `training`
says only how small the rest could be. Files are in the page cache from the first round on, which
is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.parts.arguments import new_parser
from benchmarks.parts.machine import machine, machine_line
from benchmarks.parts.scratch import scratch_of
from benchmarks.parts.spread import columns, framed, say, shown, spread
from dayfly.errors import RequestError, RunFailed
from dayfly.life.sessions import Session
from dayfly.runs.events import Events
from dayfly.runs.phases import Phases, phases

#: Phases of a run, in their order.
PHASES = tuple(one.name.removesuffix("_s") for one in fields(Phases))
_ROUNDS = 5
_TIMEOUT_S = 300.0
_TAIL_CHARACTERS = 2000
#: The job is the demo's, so that the command, a notebook and the README speak of one thing.
_JOB = "from dataclasses import replace\nfrom dayfly.cli.demo import demo_job\n"
_JOB_FILE = f"{_JOB}job = replace(demo_job(), epochs=1)\n"
_TWO_RUNS = f"""
import json, sys, time
{_JOB}import dayfly
job = replace(demo_job(), epochs=1)
for name in ("first", "second"):
    began = time.time()
    dayfly.train(job, workers=int(sys.argv[1]), run_dir=f"{{sys.argv[2]}}/{{name}}", progress=False)
    ended = time.time()
print(json.dumps([began, ended]))
"""


def run(args: Sequence[str]) -> dict[str, Any]:
    """Measures; the result has `rows`: one of the command, one of a second run.

    Args:
        args: options after the bench's name.

    Raises:
        RequestError: an option cannot be meant.
        RunFailed: a process that is measured fails, or takes longer than five minutes.
    """
    asked = _arguments(args)
    rounds: list[dict[str, Any]] = []
    on_what = machine()
    with Session.open() as session:
        scratch = scratch_of(session)
        job = scratch / "digits.py"
        job.write_text(_JOB_FILE)
        for number in range(asked.rounds + 1):
            say(f"round {number} of {asked.rounds}" if number else "a round that is not counted")
            rounds.append(_round(job, asked.workers, scratch / str(number), session))
    counted = rounds[1:]
    return {
        "machine": on_what,
        "workers": asked.workers,
        "rounds": asked.rounds,
        **spread("import_torch_s", [one["import_torch_s"] for one in counted]),
        "rows": [_row(what, counted) for what in ("command", "second run")],
    }


def table(result: Mapping[str, Any]) -> Table:
    """Returns the result for a person."""
    rows = columns(["run"], [*PHASES, "to step", "ratio", "spread"])
    for row in result["rows"]:
        rows.add_row(
            row["run"],
            *(f"{row[f'{phase}_s']:.2f}" for phase in PHASES),
            f"{row['to_first_step_s']:.2f}",
            *shown(row, "ratio", 2),
        )
    heading = (
        f"seconds, median of {result['rounds']} rounds, digits CNN, {result['workers']} workers\n"
        f"{machine_line(result['machine'])}\n"
        f"ratio: time to the first step over that of import torch, {result['import_torch_s']:.2f} s"
    )
    return framed(heading, rows)


def _spent(began: float, ended: float, directory: Path) -> Phases:
    """Returns the phases of a run as its caller had them.

    Args:
        began: Unix time at which the run was asked for.
        ended: Unix time at which the caller had it back.
        directory: the run's directory.

    Raises:
        RunFailed: the run took no step.
    """
    spent = phases(Events.read(directory / "events"), asked_at=began, over_at=ended)
    if not spent.training_s:
        raise RunFailed(f"the run in {directory} took no step")
    return spent


def _round(job: Path, workers: int, scratch: Path, session: Session) -> dict[str, Any]:
    scratch.mkdir()
    began, _, ended = _timed(["-c", "import torch"], session)
    of_command = scratch / "command"
    asked = ["train", str(job), "--workers", str(workers), "--run-dir", str(of_command)]
    spawned, _, over = _timed(["-m", "dayfly", *asked, "--json"], session)
    _, answer, _ = _timed(["-c", _TWO_RUNS, str(workers), str(scratch)], session)
    second = json.loads(answer.splitlines()[-1])
    return {
        "import_torch_s": ended - began,
        "command": _spent(spawned, over, of_command),
        "second run": _spent(*second, scratch / "second"),
    }


def _timed(arguments: Sequence[str], session: Session) -> tuple[float, str, float]:
    """Runs this interpreter; returns when it began (Unix seconds), what it printed, when it ended.

    Raises:
        RunFailed: it fails, or takes too long.
    """
    environment = {**os.environ, **session.mark("start")}
    began = time.time()
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"python {arguments[0]} did not end within {_TIMEOUT_S:g} s") from None
    ended = time.time()
    if done.returncode:
        raise RunFailed(
            f"python {' '.join(arguments[:3])} failed ({done.returncode}); the end of what it said:"
            f"\n{done.stderr[-_TAIL_CHARACTERS:].strip()}"
        )
    return began, done.stdout, ended


def _row(what: str, rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the figures of one kind of run over all rounds."""
    to_first = [one[what].start_s for one in rounds]
    ratios = [s / one["import_torch_s"] for s, one in zip(to_first, rounds, strict=True)]
    row: dict[str, Any] = {"run": what}
    for phase in PHASES:
        name = f"{phase}_s"
        row |= spread(name, [getattr(one[what], name) for one in rounds])
    return row | spread("to_first_step_s", to_first) | spread("ratio", ratios)


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("start", "Seconds before the first step and after the last one.")
    parser.add_argument("--workers", type=int, default=2, help="functions (default: 2)")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"(default: {_ROUNDS})")
    asked = parser.parse_args(args)
    for name in ("workers", "rounds"):
        if getattr(asked, name) < 1:
            raise RequestError(f"--{name} {getattr(asked, name)}: give a whole number from 1")
    return asked
