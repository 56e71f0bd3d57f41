"""`dayfly bench training --virtual`: what virtual workers cost beside a step without them.

    for each model, for each number of workers W:
        round 0   plain   V = W   pieces 2   V = 2W   pieces 4   V = 4W
        round 1   V = 4W  pieces 4  ...                            plain
        ...

A ratio is of two runs of one round: how many times as long a step takes with V virtual workers as
without, and as one whose workers compute their share in as many pieces without keeping them apart.
The latter leaves what the tree costs: copies, additions, memory, and buckets that leave in the last
leaf's backward pass alone, as they do in the last piece's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.parts import own
from benchmarks.parts.machine import machine_line
from benchmarks.parts.spread import columns, framed, say, shown, spread
from benchmarks.parts.workloads import Workload

#: Leaves a worker.
EACH = (1, 2, 4)


def measure(workload: Workload, workers: int, rounds: int, data: Path) -> list[dict[str, Any]]:
    """Returns a row for each number of leaves a worker.

    Args:
        workload: what is trained.
        workers: how many functions.
        rounds: of all forms.
        data: directory of the workload's data; runs lie beside it.
    """
    forms: dict[str, Mapping[str, Any]] = {}
    for each in EACH:
        pieces = {} if each == 1 else {"micro_batches": each}
        forms[f"pieces {each}"] = pieces
        forms[f"leaves {each}"] = {"virtual_workers": each * workers}
    step_ms: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(rounds):
        order = list(forms) if number % 2 == 0 else list(forms)[::-1]
        for form in order:
            run_dir = data.with_name(f"run-{workload.name}-{workers}-{number}-{form[-1]}-{form[0]}")
            took = own.train(workload, data, workers, run_dir, **forms[form])
            step_ms[form].append(1000 / took.steps_per_s)
        told = ", ".join(f"{form} {step_ms[form][-1]:.4g} ms" for form in forms)
        say(f"{workload.name} on {workers}, round {number + 1} of {rounds}: {told}")
    rows = []
    for each in EACH:
        ours = step_ms[f"leaves {each}"]
        row: dict[str, Any] = {
            "model": workload.name,
            "workers": workers,
            "virtual_workers": each * workers,
            "steps": workload.measured_steps,
            "step_ms": ours,
        }
        for name, form in (("plain", "pieces 1"), ("pieces", f"pieces {each}")):
            ratios = [one / other for one, other in zip(ours, step_ms[form], strict=True)]
            row |= spread(f"over_{name}", ratios)
        rows.append(row)
    return rows


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person."""
    made = columns(["model"], ["W", "V", "over plain", "spread", "over pieces", "spread"])
    for row in result["rows"]:
        made.add_row(
            row["model"],
            str(row["workers"]),
            str(row["virtual_workers"]),
            *shown(row, "over_plain", 2),
            *shown(row, "over_pieces", 2),
        )
    heading = f"a step with V virtual workers, {result['rounds']} rounds, "
    return framed(
        heading + machine_line(result["machine"]),
        made,
        "over plain: how many times as long as a step without them; over pieces: as one of as many "
        "micro-batches: the median, the least and the most",
    )
