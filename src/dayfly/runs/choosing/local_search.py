"""Local search: neighbours of the chosen plan join the plans, until none is chosen in its place.

    plans, predicted --> the chosen one --> its neighbours, predicted --> join the plans
                              ^                                                 |
                              '------------- until the choice stays ------------'

Planners compare plans by closed forms, those of large models by the papers' equations. Both err,
and only a few plans are predicted. So one more change may make the chosen plan better. A neighbour
is the plan with one setting changed (`knobs`), or over another store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dayfly.runs.choosing.candidate import Candidate
from dayfly.runs.choosing.knobs import Knob, knobs
from dayfly.runs.choosing.option import KnownPredictions, Option
from dayfly.runs.choosing.other_stores import OverStore, over_stores
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.ranking import ALL_PER_S, MESSAGES_PER_S, Ranked
from dayfly.runs.choosing.targets import Target

#: How often a better neighbour takes the chosen plan's place, at most.
_MOST_PLANS = 10
#: Seconds and dollars that differ by less are the same: sums that were added up in another order.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What the search ends with.

    Attributes:
        plans: those that were given, and neighbours.
        stores: the chosen one over other stores.
        knobs: the chosen one with one setting changed.
        is_best: whether no neighbour would be chosen in its place; False: the search had to end.
    """

    plans: Ranked
    stores: tuple[OverStore, ...]
    knobs: tuple[Knob, ...]
    is_best: bool


def settled(
    plans: Ranked,
    asked: PlanQuery,
    targets: Sequence[Target],
    counted: Callable[[Candidate], Candidate | None],
) -> Settled:
    """Searches around the plan that the goal chooses; if none keeps its limits, around the nearest.

    Args:
        plans: the best of all planners, predicted.
        asked: what the choice is among.
        targets: that the choice is among, with the memory sizes that were asked for.
        counted: as of `knobs`.
    """
    predicted = KnownPredictions(MESSAGES_PER_S * asked.time_limit_s, plans.options)
    chosen = asked.goal.nearest(plans.front).plan

    def around(option: Option) -> tuple[tuple[OverStore, ...], tuple[Knob, ...]]:
        stores = over_stores(option, targets, predicted)
        return stores, knobs(option, asked, predicted, counted, stores)

    stores, tried = around(chosen)
    for _ in range(_MOST_PLANS):
        neighbours = [one.option for one in tried if one.option is not None and one.asked_for]
        plans = plans.joined_by(one for one in neighbours if not _are_alike(one, chosen))
        best = asked.goal.nearest(plans.front).plan
        if best is chosen:
            return Settled(plans=plans, stores=stores, knobs=tried, is_best=True)
        chosen = best
        stores, tried = around(chosen)
        if plans.messages >= ALL_PER_S * asked.time_limit_s:
            break
    return Settled(plans=plans, stores=stores, knobs=tried, is_best=False)


def _are_alike(one: Option, other: Option) -> bool:
    mine, its = one.point, other.point
    return math.isclose(mine.seconds, its.seconds, rel_tol=_ROUNDING) and math.isclose(
        mine.usd, its.usd, rel_tol=_ROUNDING
    )
