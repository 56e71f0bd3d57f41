"""What is asked of a method, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dayfly.planning.choose.front import Front, Point

P = TypeVar("P")

#: How a method ends that goes through all it wanted to.
DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The least alpha1 dollars + alpha2 seconds, within a deadline and a budget.

    (1, 0) is the cheapest, (0, 1) the fastest; of equal ones the first.
    """

    alpha1: float
    alpha2: float
    deadline_s: float = math.inf
    budget_usd: float = math.inf

    def value(self, seconds: float, usd: float) -> float:
        """The weighted sum; infinite beyond a limit, but for rounding."""
        late = seconds > self.deadline_s * (1 + 1e-9)
        dear = usd > self.budget_usd * (1 + 1e-9)
        return math.inf if late or dear else self.alpha1 * usd + self.alpha2 * seconds

    def of(self, point: Point[P]) -> float:
        """The value of a plan."""
        return self.value(point.seconds, point.usd)

    def best(self, points: Iterable[Point[P]]) -> Point[P] | None:
        """Of those that keep the limits; of equal ones the faster, then the cheaper."""
        within = [one for one in points if self.of(one) < math.inf]
        return min(within, key=lambda one: (self.of(one), one.seconds, one.usd), default=None)


def cheapest_within(deadline_s: float) -> Goal:
    """The least dollars within a deadline."""
    return Goal(alpha1=1.0, alpha2=0.0, deadline_s=deadline_s)


def fastest_within(budget_usd: float) -> Goal:
    """The fewest seconds within a budget."""
    return Goal(alpha1=0.0, alpha2=1.0, budget_usd=budget_usd)


@dataclass(frozen=True, slots=True)
class Answer(Generic[P]):
    """point: the plan, with its seconds and dollars by the product's equations; None: none found
    that keeps the limits. stopped: how the search ended."""

    point: Point[P] | None
    stopped: str = DONE


def exact(front: Front[P], goal: Goal) -> Answer[P]:
    """The product's: a look-up on the whole front."""
    return Answer(goal.best(front.points))
