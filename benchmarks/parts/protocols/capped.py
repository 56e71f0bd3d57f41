"""Steps of FasDL's methods under its caps, on local functions by turns, beside their predictions.

    profile     one function of these limits, measured on this machine
    round 0     ScatterReduce | AllReduce | ... | HAP, FasDL's batch        a run of two epochs each
    round 1     AllReduce | ... | HAP, FasDL's batch | ScatterReduce

All runs imitate AWS Lambda: a quarter of a vCPU, 442 MiB and 70 MB/s each way, and S3's 40 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

import dayfly
from benchmarks.parts.planning.measure import run_once
from benchmarks.parts.protocols.fasdl import BASE, MEMORY_MIB, OWN, PLATFORM, How, job, methods
from benchmarks.parts.protocols.trained import Runs
from benchmarks.parts.spread import columns, framed, number, say, shown, spread

Json = dict[str, Any]
LATENCY_MS = 40.0
_EPOCHS, _HOW = 2, How(0.01, 0.9)
_LIMITS: Json = {"imitate": PLATFORM, "latency_ms": LATENCY_MS}


def measure(runs: Runs, seeds: Sequence[int]) -> list[Json]:
    """A row a method; a seed is a round."""
    compared = methods(runs.workers)
    known = dayfly.profile(job(OWN * runs.workers, _HOW, _EPOCHS), memory_mib=MEMORY_MIB, **_LIMITS)
    took: dict[str, list[float]] = {one.name: [] for one in compared}
    for at, seed in enumerate(seeds):
        turn = at % len(compared)
        for one in (*compared[turn:], *compared[:turn]):
            asked: Json = {"workers": runs.workers, "memory_mib": MEMORY_MIB, **_LIMITS}
            asked |= {"seed": seed, **one.settings}
            whole = job(one.batch, _HOW, _EPOCHS)
            found = run_once(whole, one.name, runs.scratch / "run", stages=1, **asked)
            took[one.name].append(found.step_s)
            say(f"round {at + 1} of {len(seeds)}: {one.name} {1e3 * found.step_s:.0f} ms a step")
    rows = []
    for one in compared:
        plan = dayfly.predict(known, workers=runs.workers, batch_size=one.batch, **one.settings)
        assert plan.prediction is not None
        step_s, base = plan.prediction.step_s, took[BASE]
        row: Json = {"method": one.name, "batch": one.batch, "shares": list(one.shares)}
        row |= {"predicted_s": step_s, "rounds": len(seeds), "seconds": took[one.name]}
        row |= {"warnings": list(plan.prediction.warnings)}
        row |= spread("step_s", took[one.name])
        row |= spread("ratio", [measured / step_s for measured in took[one.name]])
        row |= spread("faster", [a / b for a, b in zip(base, took[one.name], strict=True)])
        rows.append(row)
    return rows


def table(rows: Sequence[Mapping[str, Any]], workers: int) -> Table:
    """For a person."""
    made = columns(["method"], ["predicted", "ms", "least to most", "ratio", "faster"])
    for row in rows:
        in_ms = {f"step_s{end}": 1e3 * row[f"step_s{end}"] for end in ("", "_min", "_max")}
        made.add_row(
            row["method"],
            number(1e3 * row["predicted_s"], 0),
            *shown(in_ms, "step_s", 0),
            number(row["ratio"], 3),
            number(row["faster"], 2),
        )
    return framed(
        f"a step of {workers} local functions of {MEMORY_MIB} MiB that imitate {PLATFORM}, "
        f"{LATENCY_MS:g} ms a request; medians of {rows[0]['rounds']} rounds",
        made,
        f"predicted: by a profile of this machine; ratio: measured over that; faster: than {BASE}",
        *dict.fromkeys(warning for row in rows for warning in row["warnings"]),
    )
