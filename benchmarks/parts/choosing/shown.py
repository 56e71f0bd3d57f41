"""Methods beside each other, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from benchmarks.parts.machine import machine_line
from benchmarks.parts.spread import columns, framed, number

Json = Mapping[str, Any]


def table(result: Json) -> Table:
    """A row for each method and group of problems."""
    made = columns(
        ["problem", "of", "method"],
        ["answers", "none", "optimal", "ratio", "worst", "seconds", "worst", "stopped"],
    )
    for row in result["rows"]:
        made.add_row(
            row["problem"],
            row["group"],
            row["method"],
            str(row["answers"]),
            str(row["none"]),
            str(row["optimal"]),
            number(row["ratio"]),
            number(row["ratio_worst"]),
            _seconds(row["took_s"]),
            _seconds(row["took_s_worst"]),
            _stopped(row["stopped"]),
        )
    return framed(
        f"methods to choose a plan, {machine_line(result['machine'])}",
        made,
        "answers: problems times goals; none: no plan that keeps the limits, though there is one;",
        "optimal: as good as the best; ratio: value of the goal over the best, median and worst;",
        "seconds: of an answer, median and worst; dayfly's are of the whole front, for all goals",
    )


def _seconds(took_s: float) -> str:
    return f"{took_s:.4f}" if took_s < 1 else f"{took_s:.1f}"


def _stopped(words: Mapping[str, int]) -> str:
    """Without gaps, which are all different."""
    counts: dict[str, int] = {}
    for word, count in words.items():
        short = word.partition(",")[0]
        counts[short] = counts.get(short, 0) + count
    return ", ".join(f"{count} {word}" for word, count in counts.items())
