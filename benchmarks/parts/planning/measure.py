"""A configuration, really run; a measurement is a run of `dayfly.train`, as anyone starts it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import dayfly
from benchmarks.parts import recorded
from benchmarks.parts.own import covered
from benchmarks.parts.planning.channels import Urls
from benchmarks.parts.planning.configurations import Chosen
from benchmarks.parts.planning.jobs import WORKS
from dayfly.errors import RunFailed

Json = Mapping[str, Any]
#: A message that does not come is missed soon.
_WAIT_S = 60.0
#: What a step's time is counted as, the first that fits: kinds of spans. The rest is overhead.
_KINDS = {
    "compute": ("compute", "data", "apply"),
    "transfer": ("upload", "download"),
    "sync": ("wait",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One run.

    step_s, cost_usd, wall_s: of its result. run_s: from the first invocation to the end of the last
    function. peaks_mib: the most of each stage's functions. breakdown: seconds of rank 0's median
    step by what it did. steps: of the run.
    """

    step_s: float
    cost_usd: float
    wall_s: float
    run_s: float
    billed_s: float
    peaks_mib: tuple[float, ...]
    breakdown: Mapping[str, float]
    steps: int


def write_data(name: str, scratch: Path) -> Path:
    """Of a work, once; returns the directory."""
    directory = scratch / f"data-{name}"
    if not directory.exists():
        WORKS[name].write_data(directory)
    return directory


def train(chosen: Chosen, urls: Urls, scratch: Path) -> Taken:
    """Run it once; what it leaves is removed. Raises RunFailed if it fails or a function dies."""
    data = write_data(chosen.work, scratch)
    job = WORKS[chosen.work].job(data, batch_size=chosen.batch_size, epochs=chosen.epochs)
    run = dayfly.train(
        job,
        run_dir=scratch / "run",
        progress=False,
        channel=urls[chosen.channel],
        wait_timeout_s=_WAIT_S,
        **chosen.asked,
    )
    ended = recorded.ended(run.directory)
    taken = _taken(chosen, run, ended)
    shutil.rmtree(run.directory)
    if run.result.restarts:
        causes = ", ".join(str(one["error"] or one["used"]["outcome"]) for one in ended)
        raise RunFailed(f"{chosen.name}: a function died ({causes})")
    return taken


def _taken(chosen: Chosen, run: dayfly.Run, ended: list[dict[str, Any]]) -> Taken:
    result = run.result
    if result.step_s is None:
        raise RunFailed(f"{chosen.name}: no step was measured")
    began = [
        one["at"]
        for one in recorded.events(run.directory, "coordinator")
        if one["kind"] == "invoked"
    ]
    peaks = [one["peak_mib"] for one in ended]
    if None in peaks:
        raise RunFailed(f"{chosen.name}: the peak of a function's memory is not known here")
    each = len(peaks) // chosen.stages
    return Taken(
        step_s=result.step_s,
        cost_usd=result.cost_usd,
        wall_s=result.wall_s,
        run_s=max(one["at"] for one in ended) - min(began),
        billed_s=result.billed_s,
        peaks_mib=tuple(max(peaks[at : at + each]) for at in range(0, len(peaks), each)),
        breakdown=breakdown(recorded.steps(run.directory, 0)),
        steps=result.steps,
    )


def breakdown(steps: list[dict[str, Any]]) -> dict[str, float]:
    """Medians over steps of the seconds in which a worker computed; transferred and did not
    compute; only waited; and did none of these. Of records without spans: nothing.
    """
    found: dict[str, list[float]] = {}
    for record in steps:
        spans = record.get("spans")
        if spans is None:
            continue
        counted: list[Any] = []
        before_s = 0.0
        for name, kinds in _KINDS.items():
            counted += [span for kind in kinds for span in spans.get(kind, [])]
            so_far_s = covered(counted) / 1000
            found.setdefault(name, []).append(so_far_s - before_s)
            before_s = so_far_s
        found.setdefault("overhead", []).append(record["step_s"] - before_s)
    return {name: median(each) for name, each in found.items()}
