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


def row(name: str, predicted: Mapping[str, Any], taken: Sequence[Taken]) -> Json:
    """A configuration. predicted: a prediction, as JSON has it."""
    peaks = [max(each) for each in zip(*(one.peaks_mib for one in taken), strict=True)]
    compared: Json = {}
    for ours, theirs in COMPARED.items():
        figures = [getattr(one, ours) for one in taken]
        compared[ours] = {
            "predicted": predicted[theirs],
            "measured": median(figures),
            "error": error(predicted[theirs], median(figures)),
            "runs": figures,
            **repeatability(figures),
        }
    memory = [error(a, b) for a, b in zip(predicted["memory_mib"], peaks, strict=True)]
    return {
        "name": name,
        "steps": taken[0].steps,
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
    """Over all configurations: mean and worst errors, which is the worst, and repeatability."""
    whole: Json = {name: _errors(rows, name) for name in (*COMPARED, "memory_mib")}
    memory = [one for row in rows for one in row["memory_mib"]["errors"]]
    whole["memory_mib"] |= {"least": min(memory), "most": max(memory)}
    for name in COMPARED:
        whole[name] |= {
            "spread": fmean(row[name]["spread"] for row in rows),
            "single": _of_known([row[name]["single"] for row in rows], fmean),
            "worst_single": _of_known([row[name]["single"] for row in rows], max),
        }
    return whole


def _errors(rows: Sequence[Json], name: str) -> Json:
    worst = max(rows, key=lambda row: abs(row[name]["error"]))
    return {
        "mean": fmean(abs(row[name]["error"]) for row in rows),
        "worst": abs(worst[name]["error"]),
        "worst_of": worst["name"],
    }


def _of_known(figures: Sequence[float | None], of: Callable[[list[float]], float]) -> float | None:
    known = [one for one in figures if one is not None]
    return of(known) if known else None


def _medians(many: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(one[name] for one in many) for name in many[0]}
