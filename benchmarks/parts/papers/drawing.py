"""A figure as a picture, by matplotlib: the extra `pictures`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.parts.papers.figure import Figure, Panel, Series
from dayfly.errors import RequestError

#: Colours that colour-blind people tell apart (Okabe and Ito).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#555555", "#F0E442")
_MARKERS = "os^Dv*Px"
_WIDE_IN, _HIGH_IN = 4.4, 3.2
_DPI = 110
_ROOM = 5  # groups of bars whose names stand beside each other


def draw(figure: Figure, directory: Path) -> Path:
    """Write `NAME.png`; returns its path. Raises RequestError without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise RequestError(
            "pictures need matplotlib, which is not installed: make pictures, or pip install "
            "'dayfly[pictures]'"
        ) from error
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    columns = min(figure.columns, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    with plt.rc_context({"font.size": 9, "svg.hashsalt": "dayfly", "axes.titlesize": 10}):
        canvas, axes = plt.subplots(
            rows, columns, figsize=(_WIDE_IN * columns, _HIGH_IN * rows), squeeze=False
        )
        flat = [one for row in axes for one in row]
        for panel, axis in zip(figure.panels, flat, strict=False):
            _draw_panel(panel, axis)
        for axis in flat[len(figure.panels) :]:
            axis.set_visible(False)
        _legends(figure, canvas, flat)
        path = directory / f"{figure.name}.png"
        # No date and no version: the same figure gives the same bytes.
        canvas.savefig(path, dpi=_DPI, metadata={"Software": None}, bbox_inches="tight")
        plt.close(canvas)
    return path


def _draw_panel(panel: Panel, axis: Any) -> None:
    axis.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    bars = [one for one in panel.series if one.kind == "bars"]
    groups = list(dict.fromkeys(x for one in bars for x in one.xs))
    for number, one in enumerate(panel.series):
        if one.kind == "bars":
            _draw_bars(one, axis, groups, bars.index(one), len(bars), _COLOURS[number % 8])
        else:
            _draw_points(one, axis, number)
    if panel.log_x:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    elif all(isinstance(x, int) for one in panel.series for x in one.xs):
        axis.xaxis.get_major_locator().set_params(integer=True)
    if panel.log_y:
        axis.set_yscale("log")
    elif all(y >= 0 for one in panel.series for y in one.ys):
        axis.set_ylim(bottom=0)
    if panel.line_y is not None:
        axis.axhline(panel.line_y, color="#888888", linewidth=0.8, linestyle=":")


def _draw_bars(
    one: Series, axis: Any, groups: list[Any], place: int, places: int, colour: str
) -> None:
    width = 0.8 / places
    at = [groups.index(x) + (place - (places - 1) / 2) * width for x in one.xs]
    look = {"hatch": "//", "fill": False, "edgecolor": colour} if one.theirs else {"color": colour}
    axis.bar(at, one.ys, width * 0.92, label=one.name, **look)
    small = {"fontsize": 6} if len(groups) > _ROOM else {}
    axis.set_xticks(range(len(groups)), [str(group) for group in groups], **small)


def _draw_points(one: Series, axis: Any, number: int) -> None:
    colour = "black" if one.theirs else _COLOURS[number % len(_COLOURS)]
    line = "none" if one.kind == "points" or one.theirs else "--" if one.dashed else "-"
    axis.plot(
        one.xs,
        one.ys,
        label=one.name,
        color=colour,
        linestyle=line,
        linewidth=1.4,
        marker="x" if one.theirs else _MARKERS[number % len(_MARKERS)],
        markersize=7 if one.theirs else 5,
        fillstyle="none" if one.dashed else "full",
    )
    for x, y, label in zip(one.xs, one.ys, one.labels, strict=False):
        axis.annotate(label, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7)


def _legends(figure: Figure, canvas: Any, axes: list[Any]) -> None:
    """One for all panels if they have the same series, else one each."""
    names = {tuple(one.name for one in panel.series) for panel in figure.panels}
    canvas.tight_layout()
    if len(names) > 1 or len(figure.panels) == 1:
        for axis in axes[: len(figure.panels)]:
            axis.legend(fontsize=7, frameon=False)
        return
    handles, labels = axes[0].get_legend_handles_labels()
    canvas.legend(
        handles,
        labels,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=min(4, len(labels)),
        frameon=False,
        fontsize=8,
    )
