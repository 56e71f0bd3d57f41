"""Cuts that lie near the front, by more than the papers' equations, for virtual time to compare.

The equations err, so a plan that they have for a little slower than another may be the faster one.
A search for their front says nothing of it. Of small models the plans around that front are looked
at, which differ by one change at a time:

    a stage begins a layer earlier or later, is split, or is joined with the one before
    the functions of a stage, or of all, have the next larger or smaller memory
    another number of replicas, or of micro-batches; another schedule; the other scatter-reduce

A better cost model, which is too slow for all of them, judges the most promising ones first:

    expected = the model's cost of a plan x the equations' cost of its neighbour / theirs of it

as the equations know what a change does better than what a plan costs. What was judged is looked
around in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from dayfly.catalogue.store import StoreFacts
from dayfly.planning.choose.arrays import over_front, undominated
from dayfly.planning.choose.forked import cpu_s
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.messages import messages_usd
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    Problem,
    StagesOverStore,
    memory_bytes,
    over_store,
    step_s,
    step_usd,
)

#: Layers of all plans together that are looked at.
_LOOKED_AT = 8000
#: What judging may take, as `_work` has it, a second for about 10,000: in all, and for the plans
#: that are given, beyond which a model is large.
_JUDGED, _LARGE = 12_000, 6000


def near_cuts(
    problems: Sequence[Problem],
    points: Sequence[Point[PipelinePlan]],
    judge: Callable[[PipelinePlan], Point[PipelinePlan] | None],
    slack: float,
    store: StoreFacts | None = None,
    time_limit_s: float = math.inf,
) -> list[Point[PipelinePlan]]:
    """Returns what a cost model says of plans over a store and of those around them; nothing of a
    large model, nor of plans over direct links.

    Args:
        problems: that were searched.
        points: what was found, in dollars `with_messages` of this store.
        judge: the cost model; None: the plan does not fit.
        slack: error of what is expected of a plan, as a share: those expected to be worse than the
            front by more in both goals are not judged.
        store: what the messages go through; None: they cost nothing.
        time_limit_s: after which only the points that are given are judged (`forked.cpu_s`).
    """
    until_s, stores = cpu_s() + time_limit_s, over_store(problems)
    work = sum(_work(one.plan) for one in points)
    if not stores or not points or work > _LARGE:
        return []
    search = _Search(stores, points, judge, store)
    while work < _JUDGED and cpu_s() < until_s and (plan := search.next_plan(1 + slack)):
        work += _work(plan)
        if point := search.take(plan):
            search.look_around(point)
    return search.judged


def _work(plan: PipelinePlan) -> int:
    """What the closed form of a plan takes, about: of each function its passes, and its sums."""
    return plan.functions * (8 + plan.micro_batches // max(plan.replicas))


class _Search:
    """Plans that were judged, and those that wait for it, by what is expected of them.

    judged: first the points that it is given, those around which wait.
    """

    def __init__(
        self,
        stores: dict[tuple[int, str], StagesOverStore],
        points: Sequence[Point[PipelinePlan]],
        judge: Callable[[PipelinePlan], Point[PipelinePlan] | None],
        store: StoreFacts | None,
    ) -> None:
        self.judged: list[Point[PipelinePlan]] = []
        self._stores, self._judge, self._store = stores, judge, store
        self._most = _LOOKED_AT // points[0].plan.layers
        #: Seconds and dollars by the equations, of all that were looked at and fit.
        self._equations: dict[PipelinePlan, tuple[float, float]] = {}
        self._waiting: dict[PipelinePlan, tuple[float, float]] = {}
        for one in points:
            self._equations[one.plan] = one.seconds, one.usd
            self.take(one.plan)
        for one in self.judged[:]:
            self.look_around(one)

    def take(self, plan: PipelinePlan) -> Point[PipelinePlan] | None:
        """Judges a plan; None: it does not fit."""
        point = self._judge(plan)
        if point is not None:
            self.judged.append(point)
        return point

    def next_plan(self, worst: float) -> PipelinePlan | None:
        """Takes the plan that is expected nearest to the front of all that were judged; None: all
        are expected to be worse, by more than so many times in both goals."""
        if not self._waiting or not self.judged:
            return None
        seconds, usd = np.array([(one.seconds, one.usd) for one in self.judged]).T
        on = undominated(seconds, usd)
        waiting_s, waiting_usd = np.array([*self._waiting.values()]).T
        excess = over_front(waiting_s, waiting_usd, np.stack([seconds[on], usd[on]], axis=1))
        at = int(excess.argmin())
        if excess[at] > worst:
            return None
        plan = [*self._waiting][at]
        del self._waiting[plan]
        return plan

    def look_around(self, point: Point[PipelinePlan]) -> None:
        """What differs by one change from a plan that was judged waits."""
        known = self._equations[point.plan]
        for plan in _changed(self._stores, point.plan):
            if len(self._equations) >= self._most:
                return
            if plan in self._equations or not plan.starts:
                continue
            problem = self._stores[plan.way]
            if not _fits(problem, plan):
                continue
            seconds = step_s(problem, plan)
            usd = step_usd(problem, plan) + messages_usd(problem, plan, self._store)
            self._equations[plan] = seconds, usd
            more_s, more_usd = seconds / known[0], usd / known[1]
            if plan.way != point.plan.way:  # of which they know least: it may be as good
                more_s, more_usd = min(1.0, more_s), min(1.0, more_usd)
            self._waiting[plan] = point.seconds * more_s, point.usd * more_usd


def _fits(problem: StagesOverStore, plan: PipelinePlan) -> bool:
    """Whether it keeps the limits."""
    options = [problem.options[one] for one in plan.options]
    most, most_vcpus = problem.functions_at_once, problem.vcpus_at_once
    if most is not None and plan.functions > most:
        return False
    used = sum(n * one.vcpus for n, one in zip(plan.replicas, options, strict=True))
    if most_vcpus is not None and used > most_vcpus * (1 + 1e-9):
        return False
    needs = memory_bytes(problem, plan)
    return all(need <= one.memory_bytes for need, one in zip(needs, options, strict=True))


def _changed(
    stores: dict[tuple[int, str], StagesOverStore], plan: PipelinePlan
) -> Iterator[PipelinePlan]:
    """Plans that differ by one change."""
    problem = stores[plan.way]
    for starts, options, replicas in _cut_elsewhere(plan):
        yield _with(problem, plan, starts=starts, options=options, replicas=replicas)
    sizes = range(len(problem.options))
    for more in (1, -1):
        all_of_them = tuple(one + more for one in plan.options)
        each = [
            (*plan.options[:at], one + more, *plan.options[at + 1 :])
            for at, one in enumerate(plan.options)
        ]
        for options in dict.fromkeys((all_of_them, *each)):
            if all(one in sizes for one in options):
                yield _with(problem, plan, options=options)
    for (micro_batches, schedule), other in stores.items():
        if all(micro_batches % one == 0 for one in plan.replicas):
            yield replace(plan, micro_batches=micro_batches, schedule=schedule)
        if schedule == plan.schedule:
            for many in other.divisors:
                same = replace(plan, micro_batches=micro_batches)
                yield _with(other, same, replicas=(many,) * len(plan.replicas))
    if max(plan.replicas) > 1:
        for pipelined in problem.pipelined:
            yield replace(plan, collective="pipelined" if pipelined else "scatter-reduce")


def _cut_elsewhere(
    plan: PipelinePlan,
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Where stages begin, their options and replicas."""
    starts, options, replicas = plan.starts, plan.options, plan.replicas
    edges = (0, *starts, plan.layers)
    for at, start in enumerate(starts):
        for moved in (start - 1, start + 1):
            if edges[at] < moved < edges[at + 2]:
                yield (*starts[:at], moved, *starts[at + 1 :]), options, replicas
        for kept in (at, at + 1):  # whose functions both stages have
            gone = 2 * at + 1 - kept
            yield (
                (*starts[:at], *starts[at + 1 :]),
                (*options[:gone], *options[gone + 1 :]),
                (*replicas[:gone], *replicas[gone + 1 :]),
            )
    for at, (first, last) in enumerate(pairwise(edges)):
        for start in range(first + 1, last):
            yield (
                (*starts[:at], start, *starts[at:]),
                (*options[: at + 1], *options[at:]),
                (*replicas[: at + 1], *replicas[at:]),
            )


def _with(
    problem: StagesOverStore,
    plan: PipelinePlan,
    *,
    starts: tuple[int, ...] | None = None,
    options: tuple[int, ...] | None = None,
    replicas: tuple[int, ...] | None = None,
) -> PipelinePlan:
    options = plan.options if options is None else options
    return replace(
        plan,
        starts=plan.starts if starts is None else starts,
        options=options,
        memory_mib=tuple(problem.options[one].memory_mib for one in options),
        replicas=plan.replicas if replicas is None else replicas,
    )
