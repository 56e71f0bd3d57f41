"""A choice as a picture, by matplotlib: the extra `pictures`."""

from __future__ import annotations

import importlib.util
from io import BytesIO
from typing import Any

from dayfly.errors import RequestError
from dayfly.planning.choose.front import dollars, seconds
from dayfly.runs.choosing.candidate import DATA_PARALLEL, K_REDUCE, PIPELINE
from dayfly.runs.choosing.choice import Choice
from dayfly.runs.choosing.option import CLOSED_FORMS
from dayfly.runs.report.choice_drawings import PARTS, place_of

#: Colours that colour-blind people tell apart (Okabe and Ito).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#555555", "#B8A800")
_OF_PARTS = {
    "compute": "#0072B2",
    "transfer": "#E69F00",
    "sync": "#C9CFD8",
    "overhead": "#56B4E9",
    "start-up": "#6A7484",
}
_MARKERS = {DATA_PARALLEL: "o", PIPELINE: "D", K_REDUCE: "^"}
_DPI = 120
_MOST_LETTERS = 54
_WIDE_RATIO = 6.0


def check() -> None:
    """Raise RequestError without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise RequestError(
            "pictures need matplotlib, which is not installed: pip install 'dayfly[pictures]', or "
            "--plot FILE.html, which needs nothing"
        )


def png(choice: Choice) -> bytes:
    """The front, and beneath it where each plan's time goes. Raises RequestError as `check`."""
    check()
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = len(choice.front.points)
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10}):
        canvas, (above, beneath) = plt.subplots(
            2,
            1,
            figsize=(8.6, 4.4 + 0.24 * rows + 0.9),
            height_ratios=[4.0, 0.24 * rows + 0.5],
            layout="constrained",
        )
        _front(choice, above)
        _bars(choice, beneath)
        title = (
            f"{choice.job}: {choice.chosen.plan.short}, {seconds(choice.chosen.seconds)}, "
            f"{dollars(choice.chosen.usd)}"
        )
        canvas.suptitle(title, fontsize=10, x=0.01, ha="left")
        held = BytesIO()
        # No date and no version: the same choice gives the same bytes.
        canvas.savefig(held, format="png", dpi=_DPI, metadata={"Software": None})
        plt.close(canvas)
    return held.getvalue()


def _front(choice: Choice, axis: Any) -> None:
    from matplotlib.ticker import LogLocator

    points = choice.front.points
    run_s, usd = [one.seconds for one in points], [one.usd for one in points]
    axis.step(run_s, usd, where="post", color="#999999", linewidth=1, linestyle="--", zorder=1)
    named = set()
    for at, point in enumerate(points, 1):
        option, kind = point.plan, point.plan.candidate.kind
        colour = _COLOURS[place_of(choice, option)]
        label = f"{option.candidate.target}: {kind}"
        axis.plot(
            point.seconds,
            point.usd,
            marker=_MARKERS[kind],
            color=colour,
            markersize=6,
            linestyle="none",
            fillstyle="none" if option.by == CLOSED_FORMS else "full",
            label=None if label in named else label,
        )
        named.add(label)
        axis.annotate(
            str(at), (point.seconds, point.usd), textcoords="offset points", xytext=(5, 5), size=7
        )
    chosen, knee = choice.chosen, choice.knee
    axis.plot(
        chosen.seconds,
        chosen.usd,
        marker="o",
        markersize=13,
        fillstyle="none",
        color="black",
        linestyle="none",
        label="chosen" if chosen is not knee else "chosen, and the knee",
    )
    goal = choice.asked.goal
    if goal.deadline_s is not None:
        axis.axvline(goal.deadline_s, color="#c22f17", linewidth=1, linestyle=":", label="deadline")
    if goal.budget_usd is not None:
        axis.axhline(goal.budget_usd, color="#c22f17", linewidth=1, linestyle="-.", label="budget")
    for values, scale, name in (
        (run_s, axis.set_xscale, axis.xaxis),
        (usd, axis.set_yscale, axis.yaxis),
    ):
        if max(values) > _WIDE_RATIO * min(values):
            scale("log")
            name.set_major_locator(LogLocator(subs=(1, 2, 5)))
            name.set_major_formatter(lambda value, _: f"{value:g}")
            name.set_minor_formatter(lambda value, _: "")
    axis.set(xlabel="total time in seconds", ylabel="dollars")
    axis.grid(alpha=0.25, which="both")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, frameon=False)


def _bars(choice: Choice, axis: Any) -> None:
    points = choice.front.points
    names = [_short(f"{at}  {one.plan.short}") for at, one in enumerate(points, 1)]
    left = [0.0] * len(points)
    for part, (_, name) in PARTS.items():
        spent = [point.plan.run_breakdown[part] for point in points]
        if any(spent):
            label = name.partition(":")[0]
            axis.barh(range(len(points)), spent, left=left, color=_OF_PARTS[part], label=label)
        left = [before + more for before, more in zip(left, spent, strict=True)]
    axis.set_yticks(range(len(points)), names, fontsize=7)
    for tick, point in zip(axis.get_yticklabels(), points, strict=True):
        tick.set_fontweight("bold" if point is choice.chosen else "normal")
    axis.invert_yaxis()
    axis.set_xlabel("total time in seconds")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.0))


def _short(name: str) -> str:
    if len(name) <= _MOST_LETTERS:
        return name
    return f"{name[: _MOST_LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
