"""FasDL's methods as a picture like its figure 12: validation loss as dollars and seconds go by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.parts.papers.figure import Figure, Panel, Series
from benchmarks.parts.protocols.fasdl import BASE, BUDGETS, TARGET

#: Of a run that ends with each epoch: name in a row, of an axis, and how many of it a unit is.
_AXES = (("epochs_usd", "$ of 1000 such runs", 1e3), ("epochs_s", "s, from the first call on", 1.0))


def figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Returns the picture, up to the largest budget: seconds and dollars are predicted.

    Args:
        rows: of `fasdl_compared.measure`.
    """
    panels = []
    for store in dict.fromkeys(row["store"] for row in rows):
        here = [row for row in rows if row["store"] == store]
        for name, x, times in _AXES:
            (last,) = (row[name][BUDGETS[-1] - 1] for row in here if row["method"] == BASE)
            series = []
            for row in here:
                xs = [times * value for value in row[name] if value <= last * (1 + 1e-9)]
                ys = row["least"][: len(xs)]
                series.append(Series(name=row["method"], xs=tuple(xs), ys=tuple(ys)))
            panels.append(
                Panel(
                    title=f"over {store}",
                    x=x,
                    y="least validation loss so far",
                    series=tuple(series),
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
