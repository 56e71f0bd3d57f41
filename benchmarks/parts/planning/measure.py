"""A configuration, really run; a measurement is a run of `dayfly.train`, as anyone starts it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dayfly
from benchmarks.parts import recorded
from benchmarks.parts.planning.channels import Urls
from benchmarks.parts.planning.configurations import Chosen
from benchmarks.parts.planning.jobs import Work, write_data
from dayfly.errors import RunFailed
from dayfly.job import Job
from dayfly.runs.events import coordinator_events, worker_events
from dayfly.runs.report.comparison import lived_s
from dayfly.runs.report.spans import step_parts

#: A message that does not come is missed soon.
_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One run.

    step_s, cost_usd, wall_s, billed_s, steps: of its result. run_s: in which functions lived.
    peaks_mib: the most of each stage's functions. breakdown: seconds of rank 0's median step by
    what it did.
    """

    step_s: float
    cost_usd: float
    wall_s: float
    run_s: float
    billed_s: float
    peaks_mib: tuple[float, ...]
    breakdown: Mapping[str, float]
    steps: int


def train(chosen: Chosen, work: Work, urls: Urls, scratch: Path) -> Taken:
    """Run it once; what it leaves is removed. Raises RunFailed if it fails or a function dies."""
    job = work.job(write_data(work, scratch), batch_size=chosen.batch_size, epochs=chosen.epochs)
    asked = {"channel": urls[chosen.channel], **chosen.asked}
    return run_once(job, chosen.name, scratch / "run", stages=chosen.stages, **asked)


def run_once(job: Job, name: str, directory: Path, *, stages: int, **asked: Any) -> Taken:
    """A run in that directory, which is removed afterwards. name: in errors. asked: of
    `dayfly.train`. Raises RunFailed as `train` does."""
    try:
        run = dayfly.train(job, run_dir=directory, progress=False, wait_timeout_s=_WAIT_S, **asked)
        return _taken(run, name, stages)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _taken(run: dayfly.Run, name: str, stages: int) -> Taken:
    result, ended = run.result, recorded.ended(run.directory)
    if result.restarts:
        causes = ", ".join(str(one["error"] or one["used"]["outcome"]) for one in ended)
        raise RunFailed(f"{name}: a function died ({causes})")
    run_s = lived_s(coordinator_events(run.directory / "events"))
    peaks = [one["peak_mib"] for one in ended]
    if result.step_s is None or run_s is None or None in peaks:
        raise RunFailed(
            f"{name}: no step was measured, or not the memory of a function: what is known "
            f"is {result.step_s} s a step, {run_s} s of functions, peaks of {peaks} MiB"
        )
    each = len(peaks) // stages
    return Taken(
        step_s=result.step_s,
        cost_usd=result.cost_usd,
        wall_s=result.wall_s,
        run_s=run_s,
        billed_s=result.billed_s,
        peaks_mib=tuple(max(peaks[at : at + each]) for at in range(0, len(peaks), each)),
        breakdown=step_parts(worker_events(run.directory / "events", 0)),
        steps=result.steps,
    )
