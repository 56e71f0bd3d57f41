"""What was chosen and really run, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from benchmarks.parts.machine import machine_line
from benchmarks.parts.spread import columns, framed, shown

Json = Mapping[str, Any]


def table(result: Json) -> Table:
    """A row for each method, and question of a job."""
    made = columns(
        ["job", "question", "method", "plan"],
        ["predicted s", "s", "predicted m$", "m$", "time", "", "dollars", "", "asked for", ""],
    )
    for row in result["rows"]:
        made.add_row(
            row["job"], row["question"], row["method"], row["plan"] or "none", *_figures(row)
        )
    return framed(
        f"chosen and run, {result['rounds']} rounds, {machine_line(result['machine'])}",
        made,
        "deadline: the least dollars within it, late: by how much it was missed; weights: the",
        "least weighted sum of dollars and seconds; time, dollars, asked for: over those of",
        "dayfly's answer in the same round, median, least and most",
    )


def _figures(row: Json) -> list[str]:
    if row["plan"] is None:
        return []
    if row["measured"] is None:
        return ["", row["failed"] or ""]
    said, ran, ratio = row["predicted"], row["measured"], row["ratio"]
    figures = [
        "" if said is None else f"{said['run_s']:.1f}",
        f"{ran['run_s']:.1f}",
        "" if said is None else f"{1e3 * said['cost_usd']:.3f}",
        f"{1e3 * ran['cost_usd']:.3f}",
    ]
    if ratio is None:
        return figures
    figures += [*shown(ratio, "run_s", 2), *shown(ratio, "cost_usd", 2), *shown(ratio, "value", 2)]
    late = row["late"]
    return figures if late is None or late <= 0 else [*figures[:-1], f"late by {late:.0%}"]
