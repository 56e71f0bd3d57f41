"""What is worth choosing among: plans of which none is both faster and cheaper than another.

    $ |o                   along a front seconds rise and dollars fall
      |  o   .             . is dominated: another takes no longer and costs no more
      |    o
      |       o    .
      |            o
      '--------------- s

A front answers every question about two goals: the cheapest plan within a deadline, the fastest
within a budget, and any weights of both. Weights alone would not do: they reach only the corners of
its convex hull (docs/errata.md, FuncPipe).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Self, TypeVar

from dayfly.errors import RequestError
from dayfly.planning.choose.in_words import dollars, seconds

P = TypeVar("P")

#: What FuncPipe asks of a plan to recommend it.
DELTA = 0.8


@dataclass(frozen=True, slots=True)
class Point(Generic[P]):
    """A plan, with its seconds and its dollars.

    Args:
        seconds: time of the run.
        usd: dollars of the run.
        plan: anything, whose `str` is its name in texts.
        limits: the limits asked for that this plan reaches, in words, such as `10 functions at
            once`; a higher one might be better.
    """

    seconds: float
    usd: float
    plan: P
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.plan}: {seconds(self.seconds)} and {dollars(self.usd)}"


@dataclass(frozen=True, slots=True)
class Front(Generic[P]):
    """Plans of which none dominates another, by rising seconds and falling dollars.

    Args:
        points: at least one; `of` takes any points.

    Raises:
        ValueError: the points are no front.
    """

    points: tuple[Point[P], ...]

    def __post_init__(self) -> None:
        rising = all(a.seconds < b.seconds and a.usd > b.usd for a, b in pairwise(self.points))
        if not self.points or not rising:
            raise ValueError("a front has points, by rising seconds and falling dollars")

    @classmethod
    def of(cls, points: Iterable[Point[P]]) -> Self:
        """Returns the Pareto front of plans; among equal plans it keeps the first.

        Raises:
            ValueError: there is no plan.
        """
        found: list[Point[P]] = []
        for point in sorted(points, key=lambda one: (one.seconds, one.usd)):
            if not found or point.usd < found[-1].usd:
                found.append(point)
        return cls(tuple(found))

    @property
    def fastest(self) -> Point[P]:
        """The plan of the fewest seconds."""
        return self.points[0]

    @property
    def cheapest(self) -> Point[P]:
        """The plan of the fewest dollars."""
        return self.points[-1]

    def faster(self, point: Point[P]) -> Point[P] | None:
        """Returns the front's next plan that takes less time than this one; None: there is none."""
        found = [one for one in self.points if one.seconds < point.seconds]
        return found[-1] if found else None

    def cheaper(self, point: Point[P]) -> Point[P] | None:
        """Returns the front's next plan that costs less than this one; None: there is none."""
        return next((one for one in self.points if one.usd < point.usd), None)

    def cheapest_within(self, deadline_s: float) -> Point[P]:
        """Returns the cheapest plan that keeps a deadline.

        Args:
            deadline_s: most seconds of the run.

        Raises:
            RequestError: no plan is as fast; with the nearest one.
        """
        found = [one for one in self.points if one.seconds <= deadline_s]
        if not found:
            best = self.fastest
            raise RequestError(
                f"no plan is done within the deadline of {seconds(deadline_s)}: the fastest is "
                f"{best}; allow {seconds(best.seconds, enough=True)}{_or_more(best)}"
            )
        return found[-1]

    def fastest_within(self, budget_usd: float) -> Point[P]:
        """Returns the fastest plan that keeps a budget.

        Args:
            budget_usd: most dollars of the run.

        Raises:
            RequestError: no plan is as cheap; with the nearest one.
        """
        found = next((one for one in self.points if one.usd <= budget_usd), None)
        if found is None:
            best = self.cheapest
            raise RequestError(
                f"no plan costs as little as the budget of {dollars(budget_usd)}: the cheapest is "
                f"{best}; give {dollars(best.usd, enough=True)}{_or_more(best)}"
            )
        return found

    def weighted(self, alpha1: float, alpha2: float) -> Point[P]:
        """Returns the plan of the least alpha1 dollars + alpha2 seconds (FuncPipe eq. 3a).

        Among equal sums it is the cheapest. (1, 0) and (0, 1) need no tie-break on a front: of
        plans that cost the same it has the fastest, and the other way round.

        Args:
            alpha1: weight of dollars.
            alpha2: weight of seconds.

        Raises:
            RequestError: a weight is below 0, or both are 0.
        """
        if not (alpha1 >= 0 and alpha2 >= 0 and alpha1 + alpha2 > 0):
            raise RequestError(
                f"weights of dollars and seconds {alpha1:g} and {alpha2:g}: give none below 0, and "
                "one above"
            )
        return min(reversed(self.points), key=lambda one: alpha1 * one.usd + alpha2 * one.seconds)

    def knee(self) -> Point[P]:
        """Returns the plan where the front bends most: beyond it one goal costs much of the other.

        It is the point below the line between the front's ends that is furthest from it, both goals
        scaled to be 0 and 1 at the ends (I. Das, On characterizing the "knee" of the Pareto curve
        based on normal-boundary intersection, Structural Optimization 18, 1999). Of equal ones, and
        where no point is below the line, the cheapest.
        """
        first, last = self.fastest, self.cheapest
        wide_s, wide_usd = last.seconds - first.seconds, first.usd - last.usd

        def above(one: Point[P]) -> float:
            """How far from the line, but for a factor; below it is less than 0."""
            if one is first or one is last:  # as rounding would not have it
                return 0.0
            return (one.seconds - first.seconds) / wide_s + (one.usd - last.usd) / wide_usd - 1

        return min(reversed(self.points), key=above)

    def recommended(self, delta: float = DELTA) -> Point[P]:
        """Returns FuncPipe's recommendation: the fastest plan that is worth its price.

        With t_mc and c_mc of the cheapest plan, a plan of t_p and c_p is as efficient as
        (t_mc/t_p - 1) / (c_p/c_mc - 1): by how much it is faster over by how much it costs more.
        The fastest of delta or more is recommended, 0.8 in the paper (section 5.1); among all of
        the front, not only among what a few weights find. If there is none, the cheapest itself.

        Args:
            delta: least efficiency.

        Raises:
            RequestError: delta is below 0.
        """
        if not delta >= 0:
            raise RequestError(f"delta is {delta:g}: give 0 or more")
        least = self.cheapest

        def is_worth_it(one: Point[P]) -> bool:
            faster = (least.seconds - one.seconds) * least.usd
            return faster >= delta * (one.usd - least.usd) * one.seconds

        return next(one for one in self.points if one is least or is_worth_it(one))


def _or_more(point: Point[P]) -> str:
    """What else might help, at the end of a sentence."""
    return f", or more than {' and '.join(point.limits)}" if point.limits else ""
