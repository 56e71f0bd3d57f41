"""Predicted beside measured: errors, and how well a measurement repeats itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from benchmarks.parts.planning.measure import Taken

Json = dict[str, Any]
#: What is compared: the field of a run, and that of its prediction.
COMPARED = {"step_s": "step_s", "cost_usd": "cost_usd", "run_s": "run_s"}
#: What the papers say of their own predictions, as they say it.
PAPERS = {"FuncPipe": "11.3%", "FasDL": "under 6%", "CE-scaling": "up to 7.6%"}


def error(predicted: float, measured: float) -> float:
    """As a share of the measured figure; above zero: too much was predicted."""
    return predicted / measured - 1


def repeatability(figures: Sequence[float]) -> Json:
    """How far measurements of one thing are apart.

    spread: (most - least) / median. single: mean error of one run, as if it were predicted by the
    median of the others; None: there is only one. No prediction can be expected to be closer.
    """
    single = None
    if len(figures) > 1:
        others = [[*figures[:at], *figures[at + 1 :]] for at in range(len(figures))]
        single = fmean(
            abs(error(median(rest), one)) for rest, one in zip(others, figures, strict=True)
        )
    return {"spread": (max(figures) - min(figures)) / median(figures), "single": single}


def row(
    name: str,
    predicted: Mapping[str, Any],
    taken: Sequence[Taken],
    paced: Sequence[Mapping[str, Any]],
    paces: Sequence[float],
) -> Json:
    """A configuration.

    predicted: a prediction, as JSON has it. Of each run: paced: the same, made with the profile at
    its pace. paces: how many times as long as beside the profile a pass of the probe took.
    """
    peaks = [max(each) for each in zip(*(one.peaks_mib for one in taken), strict=True)]
    compared: Json = {}
    for ours, theirs in COMPARED.items():
        figures = [getattr(one, ours) for one in taken]
        compared[ours] = {
            "predicted": predicted[theirs],
            "measured": median(figures),
            "error": error(predicted[theirs], median(figures)),
            "at_pace": _at_pace([one[theirs] for one in paced], median(figures)),
            "runs": figures,
            **repeatability(figures),
            **_within(predicted.get("interval"), theirs, median(figures)),
        }
    memory = [error(a, b) for a, b in zip(predicted["memory_mib"], peaks, strict=True)]
    return {
        "name": name,
        "steps": taken[0].steps,
        "pace": {"least": min(paces), "most": max(paces), "runs": list(paces)},
        **compared,
        "wall_s": median(one.wall_s for one in taken),
        "billed_s": {
            "predicted": predicted["billed_s"],
            "measured": median(one.billed_s for one in taken),
        },
        "memory_mib": {
            "predicted": list(predicted["memory_mib"]),
            "measured": peaks,
            "error": max(memory, key=abs),
            "errors": memory,
        },
        "breakdown": {
            "predicted": dict(predicted["breakdown"]),
            "measured": _medians([one.breakdown for one in taken]),
        },
    }


def summary(rows: Sequence[Json]) -> Json:
    """Over all configurations: mean and worst errors, which is the worst, and repeatability.

    at_pace: the same errors of the predictions at the runs' pace. pace: of all runs.
    """
    whole: Json = {
        name: errors({row["name"]: row[name]["error"] for row in rows})
        for name in (*COMPARED, "memory_mib")
    }
    memory = [one for row in rows for one in row["memory_mib"]["errors"]]
    whole["memory_mib"] |= {"least": min(memory), "most": max(memory)}
    for name in COMPARED:
        whole[name] |= {
            "at_pace": errors({row["name"]: row[name]["at_pace"]["error"] for row in rows}),
            "spread": fmean(row[name]["spread"] for row in rows),
            "single": _of_known([row[name]["single"] for row in rows], fmean),
            "worst_single": _of_known([row[name]["single"] for row in rows], max),
        }
    for name in ("step_s", "cost_usd"):
        whole[name]["within"] = {
            kind: _held([row for row in rows if row.get("held_out", False) is kind_of], name)
            for kind, kind_of in (("held_out", True), ("others", False))
        }
    whole["pace"] = {
        "least": min(row["pace"]["least"] for row in rows),
        "most": max(row["pace"]["most"] for row in rows),
    }
    return whole


def _within(interval: Mapping[str, Any] | None, name: str, measured: float) -> Json:
    """The 90% interval of a prediction, if it has one of this figure, and whether it holds what was
    measured."""
    if interval is None or name not in interval:
        return {}
    low, high = interval[name]
    return {"interval": [low, high], "within": low <= measured <= high}


def _held(rows: Sequence[Json], name: str) -> Json:
    """How many intervals hold what was measured, and of how many."""
    said = [row[name]["within"] for row in rows if "within" in row[name]]
    return {"held": sum(said), "of": len(said)}


def _at_pace(predicted: Sequence[float], measured: float) -> Json:
    """The median of the predictions, one a run; measured: that of the runs."""
    return {"predicted": median(predicted), "error": error(median(predicted), measured)}


def errors(signed: Mapping[str, float]) -> Json:
    """The mean and the worst of errors, and which is the worst. signed: by configuration."""
    worst = max(signed, key=lambda name: abs(signed[name]))
    return {
        "mean": fmean(abs(one) for one in signed.values()),
        "worst": abs(signed[worst]),
        "worst_of": worst,
    }


def _of_known(figures: Sequence[float | None], of: Callable[[list[float]], float]) -> float | None:
    known = [one for one in figures if one is not None]
    return of(known) if known else None


def _medians(many: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(one[name] for one in many) for name in many[0]}
