"""Cuts that lie near the front of the papers' equations, for virtual time to compare.

The equations err, so a plan that they have for a little slower than another may be the faster one.
A search for their front says nothing of it. Here the plans around a front are looked at, which
differ by one change at a time:

    a stage begins a layer earlier or later, is split, or is joined with the one before
    the functions of a stage, or of all, have the next larger or smaller memory
    another number of replicas, or of micro-batches; another schedule; the other scatter-reduce

and then those around each that is near enough, the nearest first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, pairwise

from dayfly.catalogue.store import StoreFacts
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

#: Layers of all plans that are looked at, and of those that are known in the end: of large models
#: a front alone has more plans than are predicted.
_LOOKED_AT, _KNOWN = 8000, 1000


def near_cuts(
    problems: Sequence[Problem],
    points: Sequence[Point[PipelinePlan]],
    slack: float,
    store: StoreFacts | None = None,
) -> list[Point[PipelinePlan]]:
    """Returns plans over a store that none beats by more than the slack in both goals, the nearest
    first; those over direct links have no neighbours here.

    Args:
        problems: that were searched.
        points: what was found, the front among it, in dollars `with_messages` of this store.
        slack: relative error of the equations.
        store: what the messages go through; None: they cost nothing.
    """
    stores = over_store(problems)
    if not stores or not points:
        return []
    layers = points[0].plan.layers
    most, left = _KNOWN // layers - len(points), _LOOKED_AT // layers
    front = [(one.seconds, one.usd) for one in Front.of(points).points]
    number, seen = count(), {one.plan for one in points}
    waiting = [(1.0, next(number), one.plan) for one in points]
    found: list[tuple[float, int, Point[PipelinePlan]]] = []
    while waiting and left > 0 and most > 0:
        _, _, plan = heapq.heappop(waiting)
        for other in _changed(stores, plan):
            problem = stores[other.way]
            if other in seen or not _fits(problem, other):
                continue
            seen.add(other)
            left -= 1
            seconds = step_s(problem, other)
            usd = step_usd(problem, other) + messages_usd(problem, other, store)
            excess = max(min(seconds / s, usd / d) for s, d in front)
            if excess <= 1 + slack:
                at = next(number)
                heapq.heappush(waiting, (excess, at, other))
                found.append((excess, at, Point(seconds, usd, other)))
    return [point for _, _, point in sorted(found)[: max(0, most)]]


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
