"""A choice from a front in words: what binds it, and what a little more would buy."""

from __future__ import annotations

from typing import TypeVar

from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.in_words import dollars, per_cent, seconds

P = TypeVar("P")

#: By how much a limit is moved to see what it costs.
_LITTLE = 0.01
#: A dollar more is little for a plan that costs one already; for others it is one per cent.
_DOLLAR = 1.0


def words(
    front: Front[P],
    point: Point[P],
    *,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
) -> str:
    """What was chosen; whether the deadline or the budget binds, and what 1% more of it would buy;
    what else the plan is at the limit of; and what a dollar more would buy.

    point: of the front, within both limits. A limit binds if without it the plan would be a better
    one: cheaper without the deadline, faster without the budget.
    """
    said = [f"{point}."]
    if deadline_s is not None:
        said.append(_deadline(front, point, deadline_s))
    if budget_usd is not None:
        said.append(_budget(front, point, budget_usd))
    if point.limits:
        said.append(f"It is at the limit of {' and '.join(point.limits)}.")
    said.append(_more(front, point))
    return " ".join(said)


def _deadline(front: Front[P], point: Point[P], deadline_s: float) -> str:
    which, cheaper = f"The deadline of {seconds(deadline_s)}", front.cheaper(point)
    if cheaper is None:
        return f"{which} does not bind: nothing is cheaper."
    if cheaper.seconds <= deadline_s:
        return f"{which} does not bind: {cheaper} would keep it, too."
    more = front.cheapest_within(deadline_s * (1 + _LITTLE))
    if more.usd < point.usd:
        saved = point.usd - more.usd
        return (
            f"{which} binds: 1% more would save {dollars(saved)} ({per_cent(saved, point.usd)}), "
            f"with {more}."
        )
    over = per_cent(cheaper.seconds - deadline_s, deadline_s)
    return f"{which} binds: 1% more would save nothing, and {over} more allow {cheaper}."


def _budget(front: Front[P], point: Point[P], budget_usd: float) -> str:
    which, faster = f"The budget of {dollars(budget_usd)}", front.faster(point)
    if faster is None:
        return f"{which} does not bind: nothing is faster."
    if faster.usd <= budget_usd:
        return f"{which} does not bind: it allows {faster}, too."
    more = front.fastest_within(budget_usd * (1 + _LITTLE))
    if more.seconds < point.seconds:
        saved = point.seconds - more.seconds
        return (
            f"{which} binds: 1% more would save {seconds(saved)} "
            f"({per_cent(saved, point.seconds)}), with {more}."
        )
    over = per_cent(faster.usd - budget_usd, budget_usd)
    return f"{which} binds: 1% more would save nothing, and {over} more allow {faster}."


def _more(front: Front[P], point: Point[P]) -> str:
    faster = front.faster(point)
    if faster is None:
        return "Nothing is faster at any price."
    by_dollars = point.usd >= _DOLLAR
    what = "A dollar more" if by_dollars else "One per cent more dollars"
    best = front.fastest_within(point.usd + (_DOLLAR if by_dollars else point.usd * _LITTLE))
    if best.seconds < point.seconds:
        saved = point.seconds - best.seconds
        return (
            f"{what} would save {seconds(saved)} ({per_cent(saved, point.seconds)}), with {best}."
        )
    dearer = faster.usd - point.usd
    return (
        f"{what} would buy nothing: what is faster costs {dollars(dearer)} "
        f"({per_cent(dearer, point.usd)}) more, {faster}."
    )
