"""FasDL's methods as a picture like its figure 12: validation loss as dollars and seconds go by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.parts.papers.figure import Figure, Panel, Series
from benchmarks.parts.protocols.fasdl import TARGET

#: Of a run that ends with each epoch: name in a row, of an axis, and how many of it a unit is.
_AXES = (("epochs_usd", "$ of 1000 such runs", 1e3), ("epochs_s", "s, from the first call on", 1.0))


def figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Returns the picture: medians of the seeds' losses, seconds and dollars predicted.

    Args:
        rows: of `fasdl.measure`.
    """
    panels = []
    for store in dict.fromkeys(row["store"] for row in rows):
        here = [row for row in rows if row["store"] == store]
        for name, x, times in _AXES:
            series = tuple(
                Series(
                    name=row["method"],
                    xs=tuple(times * value for value in row[name]),
                    ys=tuple(row["losses"]),
                )
                for row in here
            )
            panels.append(
                Panel(
                    title=f"over {store}",
                    x=x,
                    y="validation loss",
                    series=series,
                    log_y=True,
                    line_y=TARGET,
                )
            )
    return Figure(
        name="fasdl-12",
        what="FasDL, figure 12: convergence",
        panels=tuple(panels),
        facts=(),
        columns=2,
    )
