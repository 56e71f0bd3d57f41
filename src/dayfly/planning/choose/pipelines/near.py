"""Cuts around the front of the papers' equations, compared by a better cost model.

The equations err, so a plan that is a little slower than another by them may really be faster. The
search finds their front only. For small models the plans around that front are compared, too. Two
plans are neighbours if they differ by one change:

    a stage begins a layer earlier or later, or is joined with the one before
    a stage is split, and either half has functions of any memory
    the functions of a stage, or of all, have the next larger or smaller memory
    another number of replicas, or of micro-batches; another schedule; the other scatter-reduce

The cost model is too slow to judge all these plans, so the most promising ones come first. Seconds
and dollars of a plan are estimated from each neighbour that was judged:

    those of a neighbour by the cost model x those of the plan by the equations
                                           / those of the neighbour by the equations

since the equations are better at what a change does than at what a plan costs. The geometric mean
of these estimates counts. The neighbours of each plan that was judged wait to be judged, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np

from dayfly.catalogue.store import StoreFacts
from dayfly.planning.choose.arrays import over_front, undominated
from dayfly.planning.choose.forked import cpu_s
from dayfly.planning.choose.front import Front, Point
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

#: So many plans, times layers of the model, are evaluated by the equations.
_LOOKED_AT = 8000
#: Units of `_work` that the cost model may take in all; 10,000 take about a second.
_JUDGED = 12_000
#: A model is large, and only the front is compared, if the plans of the front take more units.
_LARGE = 6000


def near_cuts(
    problems: Sequence[Problem],
    points: Sequence[Point[PipelinePlan]],
    judge: Callable[[PipelinePlan], Point[PipelinePlan] | None],
    slack: float,
    store: StoreFacts | None = None,
    time_limit_s: float = math.inf,
) -> list[Point[PipelinePlan]]:
    """Returns the given plans, and plans around them, with seconds and dollars by a cost model.

    Returns nothing if the model is large, or if messages go over direct links.

    Args:
        problems: whose limits the plans keep.
        points: plans that a search found, with dollars `with_messages` of this store.
        judge: the cost model; returns None for a plan that does not fit.
        slack: a plan is not judged if it is expected to be worse than the front of all judged plans
            by more than this share, in both goals.
        store: that messages go through; None: they cost nothing.
        time_limit_s: CPU seconds (`forked.cpu_s`) after which no plans but the given are judged.
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


def same_cuts(
    problems: Sequence[Problem],
    points: Sequence[Point[PipelinePlan]],
    store: StoreFacts | None = None,
) -> list[Point[PipelinePlan]]:
    """Returns the same cuts with other micro-batches and schedules, of which none of the given
    plans is better by the papers' equations.

    Over direct links there are none.

    Args:
        problems: of the given plans, and of others with more or fewer micro-batches.
        points: plans that a search found, with dollars `with_messages` of this store.
        store: as of `near_cuts`.
    """
    found = []
    for (micro_batches, schedule), problem in over_store(problems).items():
        for point in points:
            plan = replace(point.plan, micro_batches=micro_batches, schedule=schedule)
            if plan.way == point.plan.way or not plan.starts:
                continue
            if any(micro_batches % one for one in plan.replicas):
                continue
            seconds = step_s(problem, plan)
            usd = step_usd(problem, plan) + messages_usd(problem, plan, store)
            is_better = seconds < point.seconds or usd < point.usd
            if is_better and _fits(problem, plan):
                found.append(Point(seconds, usd, plan))
    given = {one.plan for one in points}
    front = Front.of([*points, *found]).points if found else ()
    return [one for one in front if one.plan not in given]


def _work(plan: PipelinePlan) -> int:
    """Units of time that a closed form of the plan takes, about: it goes through the micro-batches
    of each function, and through its sums."""
    return plan.functions * (8 + plan.micro_batches // max(plan.replicas))


class _Search:
    """Plans that the cost model judged, and their neighbours, which wait to be judged.

    judged: seconds and dollars by the cost model, the given plans first.
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
        #: Seconds and dollars by the equations, of judged and waiting plans.
        self._equations: dict[PipelinePlan, tuple[float, float]] = {}
        self._waiting: dict[PipelinePlan, _Estimate] = {}
        for one in points:
            self._equations[one.plan] = one.seconds, one.usd
            self.take(one.plan)
        for one in self.judged[:]:
            self.look_around(one)

    def take(self, plan: PipelinePlan) -> Point[PipelinePlan] | None:
        """Judges a plan. Returns None if it does not fit."""
        point = self._judge(plan)
        if point is not None:
            self.judged.append(point)
        return point

    def next_plan(self, worst: float) -> PipelinePlan | None:
        """Removes and returns the waiting plan that is expected nearest to the front of the judged.

        Returns None if all are expected to be more than `worst` times as slow and as dear as a plan
        of that front.
        """
        if not self._waiting or not self.judged:
            return None
        seconds, usd = np.array([(one.seconds, one.usd) for one in self.judged]).T
        on = undominated(seconds, usd)
        estimates = [(one.seconds, one.usd) for one in self._waiting.values()]
        waiting_s, waiting_usd = np.array(estimates).T
        excess = over_front(waiting_s, waiting_usd, np.stack([seconds[on], usd[on]], axis=1))
        at = int(excess.argmin())
        if excess[at] > worst:
            return None
        plan = [*self._waiting][at]
        del self._waiting[plan]
        return plan

    def look_around(self, point: Point[PipelinePlan]) -> None:
        """Adds the neighbours of a judged plan to the waiting plans, and estimates them from it."""
        known_s, known_usd = self._equations[point.plan]
        for plan in dict.fromkeys(_changed(self._stores, point.plan)):
            if plan not in self._equations:
                self._look_at(plan)
            if plan not in self._waiting:  # it was judged, or cannot be
                continue
            seconds, usd = self._equations[plan]
            more_s, more_usd = seconds / known_s, usd / known_usd
            if plan.way != point.plan.way:  # the equations err most here: expect the best
                more_s, more_usd = min(1.0, more_s), min(1.0, more_usd)
            self._waiting[plan].add(
                point.seconds * more_s, point.usd * more_usd, _alike(plan, point.plan)
            )

    def _look_at(self, plan: PipelinePlan) -> None:
        """Adds a plan to the waiting ones if it has cuts, fits, and the limit is not reached."""
        problem = self._stores[plan.way]
        if not plan.starts or len(self._equations) >= self._most or not _fits(problem, plan):
            return
        usd = step_usd(problem, plan) + messages_usd(problem, plan, self._store)
        self._equations[plan] = step_s(problem, plan), usd
        self._waiting[plan] = _Estimate()


def _alike(plan: PipelinePlan, other: PipelinePlan) -> int:
    """How alike the ways of two plans are, 0 to 2; a plan without cuts has none."""
    if not other.starts or plan.micro_batches != other.micro_batches:
        return 0
    return 1 + (plan.schedule == other.schedule)


@dataclass(slots=True)
class _Estimate:
    """Seconds and dollars of a waiting plan, geometric means over its judged neighbours.

    Estimates from neighbours with other micro-batches, or without cuts, are the least accurate,
    then those from neighbours with another schedule. Only the most accurate that there are count.
    """

    seconds: float = 1.0
    usd: float = 1.0
    neighbours: int = 0
    alike: int = 0

    def add(self, seconds: float, usd: float, alike: int) -> None:
        """Counts the estimate from one more neighbour.

        Args:
            seconds, usd: the estimate.
            alike: how alike the plan and the neighbour are (`_alike`).
        """
        if alike > self.alike:
            self.neighbours, self.alike = 0, alike
        if alike == self.alike:
            self.neighbours += 1
            new = 1 / self.neighbours
            self.seconds = self.seconds ** (1 - new) * seconds**new
            self.usd = self.usd ** (1 - new) * usd**new


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
    sizes = range(len(problem.options))
    for starts, options, replicas in _cut_elsewhere(plan, sizes):
        yield _with(problem, plan, starts=starts, options=options, replicas=replicas)
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
    plan: PipelinePlan, sizes: range
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Yields other cuts: the layers that begin stages, and each stage's option and replicas.

    Args:
        plan: that is cut elsewhere.
        sizes: indices of all options, which are sizes of functions.
    """
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
        halves = {half for one in sizes for half in ((options[at], one), (one, options[at]))}
        for start, (left, right) in product(range(first + 1, last), sorted(halves)):
            yield (
                (*starts[:at], start, *starts[at:]),
                (*options[:at], left, right, *options[at + 1 :]),
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
