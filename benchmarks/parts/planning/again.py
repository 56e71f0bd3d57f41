"""Predictions by two profiles of one thing, an hour apart: how far planning repeats itself. Pure.

    profile ---- runs ---- profile again
       |          |             |
    predicted  measured     predicted      difference = again / predicted - 1

No prediction can be expected to be closer to a run than two profiles are to each other. So the aim
of the mean error is 6%, or the mean difference of both, if that is larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.parts.planning.compare import error, errors
from benchmarks.parts.planning.forecast import Profiled

Json = dict[str, Any]
#: Mean error of steps and dollars that is aimed at, with layers as they are.
AIM = 0.06
#: What is compared.
COMPARED = ("step_s", "cost_usd")


def agreement(
    predicted: Mapping[str, Mapping[str, Any]],
    again: Mapping[str, Mapping[str, Any]],
    measured: Sequence[Mapping[str, Any]],
    apart_s: Sequence[float | None],
) -> Json:
    """Compares predictions by two profiles, and what was measured with both.

    Args:
        predicted, again: predictions by the name of their configuration, as JSON has them.
        measured: rows of `compare.row`; empty: nothing was run.
        apart_s: seconds between the two profiles of each kind; None: nobody wrote down when.

    Returns:
        apart_s (least, most; None: not known of all); rows (name, and of what is compared
        predicted, again and difference); summary, of what is compared: difference (mean, worst,
        worst_of), and where there are runs error and error_again (the same three), aim, and met.
    """
    known = [one for one in apart_s if one is not None]
    return {
        "apart_s": {"least": min(known), "most": max(known)}
        if len(known) == len(apart_s)
        else None,
        "rows": [
            {
                "name": name,
                **{
                    what: {
                        "predicted": first[what],
                        "again": again[name][what],
                        "difference": error(again[name][what], first[what]),
                    }
                    for what in COMPARED
                },
            }
            for name, first in predicted.items()
        ],
        "summary": {what: _of(what, predicted, again, measured) for what in COMPARED},
    }


def apart_s(first: Profiled, again: Profiled) -> float | None:
    """Seconds between the making of two profiles; None: of one of them nobody wrote it down."""
    if first.made_s is None or again.made_s is None:
        return None
    return abs(again.made_s - first.made_s)


def _of(
    what: str,
    predicted: Mapping[str, Mapping[str, Any]],
    again: Mapping[str, Mapping[str, Any]],
    measured: Sequence[Mapping[str, Any]],
) -> Json:
    difference = errors({name: error(again[name][what], predicted[name][what]) for name in again})
    if not measured:
        return {"difference": difference}
    found = {row["name"]: row[what]["measured"] for row in measured}
    first, second = (
        errors({name: error(one[name][what], figure) for name, figure in found.items()})
        for one in (predicted, again)
    )
    aim = max(AIM, difference["mean"])
    return {
        "difference": difference,
        "error": first,
        "error_again": second,
        "aim": aim,
        "met": first["mean"] <= aim,
    }
