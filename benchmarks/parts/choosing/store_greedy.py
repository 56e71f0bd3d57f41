"""CE-scaling's choice of an allocation for training (sections III-B to III-D).

The paper takes the best of P, the Pareto boundary of the allocations it looked at. Of all
allocations that is exact, and what `choosing.stores` does. Two ways in which it looks at fewer:

    sampled   P of 50 allocations drawn at random, as figure 7 has them; the best of P
    greedy    "a greedy local search" (section III-D). It does not say among what; here the steps of
              algorithm 1 on one job, whose indices are n, m and s: a candidate has the next or the
              previous n or m, or another store.
                while over the limit: the candidate that saves most of it for what it makes worse
                while one is better:  the candidate of the largest benefit (equation 10 or 12)
                    B = (value saved)/(limit used up); of those that use up none, the best
              It begins at table II's 10 functions of 1769 MB, or at what is nearest.

Lines 21 to 24 of algorithm 1 take what is over the budget; here no step goes over the limit
(docs/errata.md). Deadlines and budgets exchange their roles, as the paper says of equation 12.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from benchmarks.parts.choosing.answer import Answer, Goal
from benchmarks.parts.choosing.store_points import fits, point
from benchmarks.parts.choosing.store_problem import StorePlan, StoreProblem
from benchmarks.parts.choosing.stores import allowed_workers
from dayfly.planning.choose.front import Point

#: Figure 7.
DRAWN = 50
#: Table II.
START_WORKERS, START_MIB = 10, 1769

#: Indices of n, m and s.
Place = tuple[int, int, int]


def sampled(problem: StoreProblem, goal: Goal, *, seed: int = 0) -> Answer[StorePlan]:
    """The best of 50 allocations, each drawn evenly from those that fit."""
    workers = allowed_workers(problem).tolist()
    pairs = [(n, m) for n in workers for m in problem.sizes if fits(problem, m, n)]
    dice = random.Random(seed)
    found = [
        point(problem, dice.choice(problem.stores), size, n)
        for n, size in (dice.choice(pairs) for _ in range(DRAWN))
    ]
    return Answer(goal.best(found), f"{DRAWN} allocations")


def greedy(problem: StoreProblem, goal: Goal) -> Answer[StorePlan]:
    """A local search from table II's allocation."""
    look = _Looks(problem)
    within = _limited(goal)
    at = look.start()
    if at is None:
        return Answer(None)
    while within(look(at)) > 1:
        best = max(look.around(at), key=lambda one: _saving(within, goal, look(at), look(one)))
        if within(look(best)) >= within(look(at)):
            return Answer(None, "no candidate nearer the limit")
        at = best
    while True:
        here = look(at)
        better = [
            one
            for one in look.around(at)
            if within(look(one)) <= 1 and goal.of(look(one)) < goal.of(here)
        ]
        if not better:
            return Answer(here, "no better candidate")
        at = max(better, key=lambda one: _benefit(within, goal, here, look(one)))


class _Looks:
    """Allocations by their indices; each is computed once."""

    def __init__(self, problem: StoreProblem) -> None:
        self._problem = problem
        self._workers: list[int] = allowed_workers(problem).tolist()
        self._known: dict[Place, Point[StorePlan]] = {}

    def __call__(self, at: Place) -> Point[StorePlan]:
        if at not in self._known:
            n, m, s = at
            p = self._problem
            self._known[at] = point(p, p.stores[s], p.sizes[m], self._workers[n])
        return self._known[at]

    def start(self) -> Place | None:
        """Nearest to table II's; None: nothing fits."""
        p = self._problem
        every = [
            (abs(math.log(n / START_WORKERS)) + abs(math.log(m.memory_mib / START_MIB)), i, j)
            for i, n in enumerate(self._workers)
            for j, m in enumerate(p.sizes)
            if fits(p, m, n)
        ]
        return (*min(every)[1:], 0) if every else None

    def around(self, at: Place) -> Iterator[Place]:
        """The candidates."""
        n, m, s = at
        p = self._problem
        for i, j in ((n - 1, m), (n + 1, m), (n, m - 1), (n, m + 1)):
            there = 0 <= i < len(self._workers) and 0 <= j < len(p.sizes)
            if there and fits(p, p.sizes[j], self._workers[i]):
                yield i, j, s
        yield from ((n, m, other) for other in range(len(p.stores)) if other != s)


def _limited(goal: Goal) -> Callable[[Point[StorePlan]], float]:
    """What is limited, as a part of its limit."""
    if goal.deadline_s < math.inf:
        return lambda one: one.seconds / goal.deadline_s
    return lambda one: one.usd / goal.budget_usd


def _value(goal: Goal, one: Point[StorePlan]) -> float:
    return goal.alpha1 * one.usd + goal.alpha2 * one.seconds


def _saving(
    within: Callable[[Point[StorePlan]], float],
    goal: Goal,
    here: Point[StorePlan],
    one: Point[StorePlan],
) -> tuple[float, float]:
    saved, worse = within(here) - within(one), _value(goal, one) - _value(goal, here)
    return (math.inf if saved > 0 and worse <= 0 else saved / max(worse, 1e-300), saved)


def _benefit(
    within: Callable[[Point[StorePlan]], float],
    goal: Goal,
    here: Point[StorePlan],
    one: Point[StorePlan],
) -> tuple[float, float]:
    saved, used = _value(goal, here) - _value(goal, one), within(one) - within(here)
    return (math.inf if used <= 0 else saved / used, saved)
