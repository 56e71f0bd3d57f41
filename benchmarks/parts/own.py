"""dayfly's own side: a run by the public API, measured by what its workers reported."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import dayfly
from benchmarks.parts.measured import Measured, fastest_tenth
from benchmarks.parts.workloads import Workload
from dayfly.errors import RunFailed
from dayfly.life.environment import library_settings

Json = Mapping[str, Any]
#: The parts of a step record that is whole without spans.
_FIELDS = {"compute": "compute_s", "wire": "wire_s"}
#: Spans of the worker's own thread; the others may be hidden behind these.
_COMPUTING = ("compute", "apply")


def environment() -> dict[str, str]:
    """That of a function of a run without limits; peers begin with it, too."""
    return {**os.environ, **library_settings(os.environ)}


def train(workload: Workload, data: Path, workers: int, run_dir: Path, **settings: Any) -> Measured:
    """Train on so many local functions, but for these settings as by default; removes the run."""
    run = dayfly.train(
        workload.job(data), workers=workers, run_dir=run_dir, progress=False, **settings
    )
    records = [_steps(run.directory / "events" / f"worker-{n}.jsonl") for n in range(workers)]
    shutil.rmtree(run.directory)
    return measured(records, workload.warm_steps)


def measured(records: Sequence[Sequence[Json]], warm_steps: int) -> Measured:
    """From the step records of all ranks.

    A step is measured from the end of the one before it (`at`), so what happens between two steps,
    such as reports and checkpoints, is part of it. Raises RunFailed for a step that is missing or
    was taken twice, as by a worker that died.
    """
    for rank, steps in enumerate(records):
        if [record["step"] for record in steps] != list(range(len(records[0]))):
            raise RunFailed(f"worker {rank} did not take every step once: measure again")
    whole = [_rank(steps, warm_steps) for steps in records]
    return Measured(
        steps_per_s=1000 / whole[0]["step"],
        losses=[record["loss"] for record in records[0]],
        parts_ms={
            part: fmean(parts.get(part, 0.0) for parts in whole)
            for part in dict.fromkeys(part for parts in whole for part in parts)
        },
    )


def _rank(steps: Sequence[Json], warm_steps: int) -> dict[str, float]:
    """One rank's parts of a step, in ms."""
    before, during = steps[warm_steps - 1], steps[warm_steps:-1]
    step_ms = 1000 * (during[-1]["at"] - before["at"]) / len(during)
    parts = [_parts(record) for record in during]
    names = dict.fromkeys(name for one in parts for name in one)
    means = {name: fmean(one.get(name, 0.0) for one in parts) for name in names}
    inside_ms = 1000 * fmean(record["step_s"] for record in during)
    ends = [record["at"] for record in (before, *during)]
    each_ms = [1000 * (end - start) for start, end in pairwise(ends)]
    return {
        "step": step_ms,
        "fastest tenth": fastest_tenth(each_ms),
        **means,
        "between steps": step_ms - inside_ms,
    }


def _parts(record: Json) -> dict[str, float]:
    """What a step record says of its step, in ms."""
    spans: Mapping[str, list[tuple[float, float]]] | None = record.get("spans")
    if spans is None:
        parts = {name: 1000 * record[field] for name, field in _FIELDS.items()}
        return {**parts, "apply": 1000 * record["step_s"] - sum(parts.values())}
    busy = [span for name in _COMPUTING for span in spans.get(name, [])]
    parts = {}
    for name, found in spans.items():
        parts[name] = covered(found)
        if name not in _COMPUTING:
            parts[f"{name} alone"] = covered([*found, *busy]) - covered(busy)
    every = [span for found in spans.values() for span in found]
    return {**parts, "rest of the step": 1000 * record["step_s"] - covered(every)}


def covered(spans: Sequence[Sequence[float]]) -> float:
    """Length of the union of spans [from, to]."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted((start, stop) for start, stop in spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def _steps(path: Path) -> list[Json]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in records if record["kind"] == "step"]
