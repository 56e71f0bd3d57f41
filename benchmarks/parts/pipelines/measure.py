"""Every form of training a model, in turns; what each takes and costs, and a pipeline's efficiency.

    round 0   LambdaML  LambdaML-GA  HybridPS  3 stages
    round 1   LambdaML-GA  HybridPS  3 stages  LambdaML
    ...

A measurement is a run of `dayfly.train`. All forms are dayfly's own, so they differ in nothing but
the form: buckets, for one, are summed beside the backward pass, as LambdaML's program does not.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import dayfly
from benchmarks.parts import recorded
from benchmarks.parts.machine import one_thread
from benchmarks.parts.pipelines.cases import BASELINES, Case, Form
from benchmarks.parts.pipelines.scale import (
    SERVERS,
    STORE,
    function_usd_for_1_s,
    requests_usd,
    server_usd_for_1_s,
)
from benchmarks.parts.pipelines.step import (
    Passes,
    Predicted,
    all_reduce,
    all_schedules,
    predicted,
    requests,
    stage_passes,
)
from benchmarks.parts.spread import say, spread
from dayfly.errors import RunFailed
from dayfly.runs.job_record import Record
from dayfly.training.flat import FlatBuffer
from dayfly.training.replica import build_model
from dayfly.training.stages.layers import build_stage
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.schedule import Kind, Schedule

Json = dict[str, Any]
#: A message that does not come is missed soon.
_WAIT_S = 60.0
#: Requests under way at once of a channel in memory that has a line; see `wire.shaped`.
_IN_FLIGHT = 8
#: What sums a stage's gradients over its replicas, as dayfly chooses it for a store.
_COLLECTIVE = "overlapped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One run. step_s: the median of its measured steps. peaks_mib: of each function.

    prediction, passes, schedules: of a pipeline; the last as they would be at S3.
    """

    step_s: float
    peaks_mib: tuple[float, ...]
    prediction: Predicted | None = None
    passes: Sequence[Passes] = ()
    schedules: Sequence[Schedule] = ()


def measure(case: Case, rounds: int, scratch: Path) -> list[Json]:
    """A row for each form. Raises RunFailed if a run fails, or a function dies."""
    data, caps = scratch / f"data-{case.name}", scratch / f"catalogue-{case.name}"
    case.write_data(data)
    case.scale.write_catalogue(caps)
    taken: dict[str, list[Taken]] = {form.name: [] for form in case.forms}
    with one_thread():
        for number in range(rounds):
            turn = number % len(case.forms)
            for form in (*case.forms[turn:], *case.forms[:turn]):
                taken[form.name].append(_train(case, form, data, caps, scratch / "run"))
            say(
                f"{case.name}, round {number + 1} of {rounds}: "
                + ", ".join(f"{name} {each[-1].step_s:.3g} s" for name, each in taken.items())
            )
    rows = [_row(case, form, taken[form.name]) for form in case.forms]
    return [row | _beside(row, rows) for row in rows]


def _train(case: Case, form: Form, data: Path, caps: Path, run_dir: Path) -> Taken:
    """One run; it is removed."""
    run = dayfly.train(
        case.job(data),
        run_dir=run_dir,
        progress=False,
        wait_timeout_s=_WAIT_S,
        **case.scale.settings(caps),
        **form.settings(),
    )
    records = [recorded.steps(run.directory, rank) for rank in range(len(form.functions))]
    ended = recorded.ended(run.directory)
    line = Record.load(run.directory).pipelining
    shutil.rmtree(run.directory)
    if run.result.restarts:
        causes = ", ".join(str(one["error"] or one["used"]["outcome"]) for one in ended)
        raise RunFailed(f"{case.name}, {form.name}: a function died ({causes})")
    ends = [record["at"] for record in records[0][case.warm_steps - 1 :]]
    step_s = median(end - start for start, end in pairwise(ends))
    peaks = tuple(one["peak_mib"] for one in ended)
    if line is None:
        return Taken(step_s=step_s, peaks_mib=peaks)
    stages = len(line.cut) + 1
    passes = [
        stage_passes(
            record
            for rank in line.layout.stage_ranks(stage)
            for record in records[rank][case.warm_steps :]
        )
        for stage in range(stages)
    ]
    flat_bytes = [
        FlatBuffer(build_stage(case.job(data), line.cut, stage).model, tail=0).data.nbytes
        for stage in range(stages)
    ]
    of_all = (line, case.batch_size)
    return Taken(
        step_s=step_s,
        peaks_mib=peaks,
        prediction=predicted(
            *of_all, passes, flat_bytes, case.scale, Abilities(in_flight=_IN_FLIGHT), _COLLECTIVE
        ),
        passes=passes,
        schedules=all_schedules(*of_all, flat_bytes, case.scale, _store_abilities(), _COLLECTIVE),
    )


def _row(case: Case, form: Form, taken: Sequence[Taken]) -> Json:
    scale, functions = case.scale, form.functions
    seconds = [one.step_s for one in taken]
    function_usd = sum(map(function_usd_for_1_s, functions))
    server_usd = {name: server_usd_for_1_s(name) if form.server else 0.0 for name in SERVERS}
    # Of a sample, at Lambda: all of its times are `factor` of those here.
    sample_s = median(seconds) * scale.factor / case.batch_size
    puts, gets = _requests(case, form, taken[0])
    peaks = [max(one.peaks_mib[rank] for one in taken) for rank in range(len(functions))]
    return {
        "model": case.name,
        "kind": case.kind,
        "factor": scale.factor,
        "form": form.name,
        "what": form.what,
        "functions_mib": list(functions),
        "peaks_mib": peaks,
        "cores": [scale.cores(size) for size in functions],
        "batch_size": case.batch_size,
        "seconds": seconds,
        **spread("step_s", seconds),
        "sample_ms": 1e3 * median(seconds) / case.batch_size,
        "usd_per_million_samples": 1e6 * sample_s * (function_usd + server_usd[SERVERS[-1]]),
        "usd_with": {
            name: 1e6 * sample_s * (function_usd + usd) for name, usd in server_usd.items()
        },
        "puts": puts,
        "gets": gets,
        "requests_usd_per_million_samples": 1e6 * requests_usd(puts, gets) / case.batch_size,
        "efficiency": None if not form.cut else _efficiency(taken),
    }


def _beside(row: Json, rows: Sequence[Json]) -> Json:
    """How much faster and cheaper than each baseline: ratios of the same rounds."""
    against: Json = {}
    for other in rows:
        if other["form"] in BASELINES and other["form"] != row["form"]:
            pairs = zip(other["seconds"], row["seconds"], strict=True)
            speeds = [theirs / ours for theirs, ours in pairs]
            cost = row["usd_per_million_samples"] / other["usd_per_million_samples"]
            against[other["form"]] = {**spread("speed", speeds), "cost": cost}
    return {"against": against}


def _efficiency(taken: Sequence[Taken]) -> Json:
    """Measured steps over predicted ones, run by run."""
    both = [(one.step_s, one.prediction) for one in taken if one.prediction is not None]
    return {
        **spread("step_over_critical_path", [s / one.critical_path_s for s, one in both]),
        **spread("step_over_bound", [s / one.bound_s for s, one in both]),
        **spread(
            "critical_path_over_bound", [one.critical_path_s / one.bound_s for _, one in both]
        ),
        "critical_path_s": [one.critical_path_s for _, one in both],
        "compute_s": [one.compute_s for _, one in both],
        "transfer_s": [one.transfer_s for _, one in both],
        "stages": [
            {
                "forward_ms": 1e3 * median(one.passes[stage].forward_s for one in taken),
                "backward_ms": 1e3 * median(one.passes[stage].backward_s for one in taken),
                "apply_ms": 1e3 * median(one.passes[stage].apply_s for one in taken),
            }
            for stage in range(len(taken[0].passes))
        ],
    }


def _requests(case: Case, form: Form, taken: Taken) -> tuple[int, int]:
    """Puts and gets of all workers in a step; none of a parameter server.

    In messages as large as they are worth at S3, where fewer and larger ones are: what is measured
    here goes in the smaller ones of files.
    """
    if form.server:
        return 0, 0
    schedules = taken.schedules
    if not form.cut:
        flat = FlatBuffer(build_model(case.job(Path())), tail=3)
        sums = [
            all_reduce(
                "scatter-reduce", form.workers, 4 * len(span), case.scale, _store_abilities()
            )
            for span in flat.buckets
        ]
        schedules = [schedule for one in sums for schedule in one.schedules()]
    return requests(schedules, Kind.PUT), requests(schedules, Kind.GET, Kind.FETCH)


def _store_abilities() -> Abilities:
    return channel_kind(f"{STORE}://bucket/messages").abilities
