"""Hydrozoa's problem, exactly: best-first bisection of what sets the pace.

    A, B      replicas and shards; T = sum (f + b) + 2 C + (M - 1)(t + r) + s      (section 3.4)
    C         sum of all transfers c between shards
    t, r      largest forward pass of a shard, or transfer; largest backward pass, or transfer
    s         longest ring of a shard's replicas
    M         micro-batches of a replica

Given limits of t, r and s, the least C of B shards within them is found one shard after another.
So a box of (t, r, s) takes sum (f + b) + 2 C(its upper ends) + (M - 1)(t + r) + s(its lower ends)
at least, and the cut that has this C is a plan. The box with the least bound is halved where it is
widest, until no bound is below the best plan. Ends are values that a shard or a transfer has, so
that it ends. The paper bounds the longest shard V times in even steps, which may miss the best.

Lower ends rise with each other: the shard that has the largest t is within the box, and what such
shards have of r and s, at least, is a lower end of r and s. Before there are boxes, a shard has the
mean of all, or more, and the longest layer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Self

import numpy as np

from dayfly.planning.choose import forked
from dayfly.planning.choose.arrays import Array, Ints, on_arrays
from dayfly.planning.choose.formulas import synchronisation_s
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.compiled import SearchLoops
from dayfly.planning.choose.pipelines.extra_memory import extra_bytes
from dayfly.planning.choose.pipelines.model import Incumbents, deepest_of
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    MicroBatches,
    StagesOverLinks,
    step_s,
    step_usd,
)

Known = Incumbents[PipelinePlan]
#: Of t, r and s.
Ends = tuple[float, float, float]

#: Bounds that are sums are less than computed, as their parts are rounded.
_LESS = 1 - 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """A way to cut into B shards, with A replicas.

    Attributes:
        way: the micro-batches.
        replicas: A.
        shards: B.
        between_s: (L,), transfer before each layer; 0 before the first.
        fixed_s: sum of f and b.
        times: M - 1.
        usd_per_s: of all containers.
        ring_s: of a shard's replicas, by its bytes, a number or an array.
        least: lower bounds of t, r and s.
        least_s: lower bound of T.
        schedule: order of a step's passes.
    """

    way: MicroBatches
    replicas: int
    shards: int
    between_s: Array
    fixed_s: float
    times: float
    usd_per_s: float
    ring_s: Callable[[Any], Any]
    least: Ends
    least_s: float
    schedule: str

    def takes_s(self, least_s: float, t: float, r: float, s: float) -> float:
        """T with C = least_s."""
        return float(self.fixed_s + 2 * least_s + self.times * (t + r) + s)

    def plan(self, starts: tuple[int, ...]) -> PipelinePlan:
        """With these shards."""
        return PipelinePlan(
            layers=len(self.way.layers),
            starts=starts,
            options=(0,) * self.shards,
            memory_mib=(self.way.container.memory_mib,) * self.shards,
            replicas=(self.replicas,) * self.shards,
            micro_batches=self.way.micro_batches,
            collective="ring",
            schedule=self.schedule,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shards:
    """All shards that a split may have.

    Attributes:
        paces: (3, L + 1, L), t, r and s of a shard of the m + 1 layers before q, by q and m; with t
            and r the transfer before it; inf where it does not fit.
        fit: (3, N), the paces of those that fit.
        shortest: (3, L), least paces of shards of at least so many layers.
        deepest: (L + 1, L), shards from this one to the last with which it fits, at most.
    """

    split: _Split
    paces: Array
    fit: Array
    shortest: Array
    deepest: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    """A part of the search: splits whose largest t, r and s lie between two ends.

    Attributes:
        of: the shards that it chooses from.
        low: lower ends of t, r and s.
        high: upper ends of t, r and s.
        within: (3, n), paces of the shards that keep to `high`.
        least_s: lower bound of C.
    """

    of: _Shards
    low: Ends
    high: Ends
    within: Array
    least_s: float

    @classmethod
    def around(cls, of: _Shards, low: Ends, within: Array, least_s: float) -> Self | None:
        """With ends as close as they can be; None: nothing is within it."""
        for axis in range(3):
            longest = within[:, within[axis] >= low[axis]]
            if not longest.size:
                return None
            t, r, s = map(max, low, longest.min(axis=1).tolist())
            low = (t, r, s)
        t, r, s = within.max(axis=1).tolist()
        return cls(of=of, low=low, high=(t, r, s), within=within, least_s=least_s)

    @property
    def bound(self) -> float:
        """T, at least."""
        return self.of.split.takes_s(self.least_s, *self.low)

    def halves(self) -> tuple[Self | None, Self | None]:
        """Of the end that matters most: up to the middle, and beyond."""
        times = self.of.split.times
        wide = [high - low for low, high in zip(self.low, self.high, strict=True)]
        axis = max(range(3), key=lambda one: (times, times, 1.0)[one] * wide[one])
        low, high = self.low[axis], self.high[axis]
        middle = (low + high) / 2
        upto = self.within[axis] <= (middle if middle < high else low)
        above = list(self.low)
        above[axis] = float(self.within[axis][~upto].min())
        t, r, s = above
        return (
            self.around(self.of, self.low, self.within[:, upto], self.least_s),
            self.around(self.of, (t, r, s), self.within, self.least_s),
        )


def search_over_links(
    problems: Sequence[StagesOverLinks],
    loops: SearchLoops,
    deadline: float | None,
    rivals: Sequence[tuple[float, float]] = (),
) -> tuple[list[Point[PipelinePlan]], float]:
    """The front, and its gap; nothing, if nothing fits.

    Args:
        problems: that differ in their schedules alone. The front that each leaves is given, too.
        deadline: of `forked.cpu_s`.
        rivals: seconds and dollars of steps; plans that one of these beats are not sought.
    """
    known: Known = Incumbents.of(rivals)
    found: dict[PipelinePlan, Point[PipelinePlan]] = {}
    gap = 0.0
    for problem in problems:
        gap = max(gap, _search(problem, loops, deadline, known))
        for plan in known.found:
            takes = step_s(problem, plan), step_usd(problem, plan)
            found.setdefault(plan, Point(*takes, plan, _limits(problem, plan)))
    return list(found.values()), gap


def _search(
    problem: StagesOverLinks, loops: SearchLoops, deadline: float | None, known: Known
) -> float:
    """Adds what is better than what is known, and gives the gap."""
    boxes: list[tuple[float, int, _Box]] = []
    order = count()

    def consider(box: _Box | None) -> None:
        """Adds a box, if it may have better plans."""
        if box and box.low != box.high and box.bound < _tau(known, box.of.split):
            heapq.heappush(boxes, (box.bound, next(order), box))

    def cut(box: _Box | None) -> None:
        """The same, after the plan of its upper ends was added."""
        if not box or box.bound >= _tau(known, box.of.split):
            return
        of, split = box.of, box.of.split
        least_s, starts = _least_transfers(of, box.high, loops)
        if starts is None:
            return
        ends = np.array([*starts, len(split.between_s)])
        paces = of.paces[:, ends, np.diff(ends, prepend=0) - 1]
        taken = split.takes_s(least_s, *paces.max(axis=1).tolist())
        if taken < _tau(known, split):
            known.add([(taken, taken * split.usd_per_s, split.plan(starts))])
        consider(replace(box, least_s=least_s))

    for split in sorted(_splits(problem), key=lambda one: one.least_s):
        if split.least_s < _tau(known, split):
            of = _shards(problem, split)
            cut(_Box.around(of, split.least, of.fit, 0.0))
    gap = 0.0
    while boxes:
        bound, _, box = heapq.heappop(boxes)
        tau = _tau(known, box.of.split)
        if bound >= tau:
            continue
        if deadline is not None and forked.cpu_s() > deadline:
            gap = max(gap, tau / bound - 1)
            continue
        lower, upper = box.halves()
        cut(lower)
        consider(upper)
    return gap


def _tau(known: Known, split: _Split) -> float:
    return float(known.tau(np.array([split.usd_per_s]))[0])


def _replicas(way: MicroBatches, containers: int) -> list[int]:
    """All A that divide both, and leave no more shards than layers."""
    return [
        a
        for a in range(1, containers + 1)
        if containers % a == 0 and way.micro_batches % a == 0 and containers // a <= len(way.layers)
    ]


def _splits(problem: StagesOverLinks) -> Iterator[_Split]:
    """All there are, and what each takes at least."""
    for way in problem.micro_batches:
        container = way.container
        passed_bytes = np.array([0.0, *(layer.output_bytes for layer in way.layers[:-1])])
        passes = (np.array(container.forward_s), np.array(container.backward_s))
        size = np.array([layer.parameter_bytes for layer in way.layers])
        for n in problem.containers:
            rate = problem.bytes_per_s(way, n)
            between = passed_bytes / rate
            for replicas in _replicas(way, n):
                shards = n // replicas
                cheapest = np.sort(between[1:])[: shards - 1]
                passed = float(cheapest.max(initial=0.0))
                t, r = (max(passed, float(one.max()), one.sum() / shards) for one in passes)
                ring_s = _ring_s(problem, rate, replicas)
                s = ring_s(max(float(size.max()), size.sum() / shards))
                split = _Split(
                    way=way,
                    replicas=replicas,
                    shards=shards,
                    between_s=between,
                    fixed_s=sum(container.forward_s) + sum(container.backward_s),
                    times=way.micro_batches // replicas - 1,
                    usd_per_s=n * container.usd_per_s,
                    ring_s=ring_s,
                    least=(t * _LESS, r * _LESS, s * _LESS),
                    least_s=0.0,
                    schedule=problem.schedule,
                )
                yield replace(split, least_s=split.takes_s(cheapest.sum(), *split.least) * _LESS)


def _ring_s(problem: StagesOverLinks, rate: float, replicas: int) -> Callable[[Any], Any]:
    """Seconds of a shard's ring, by its bytes: a number or an array."""
    return lambda size: on_arrays(synchronisation_s)(
        size, replicas, rate, problem.ring_s_per_byte, problem.ring_round_s
    )


def _shards(problem: StagesOverLinks, split: _Split) -> _Shards:
    way, replicas = split.way, split.replicas
    container, layers = way.container, way.layers
    mu = way.micro_batches // replicas

    ends, lengths = np.ogrid[: len(layers) + 1, 1 : len(layers) + 1]
    inside = lengths <= ends
    firsts = np.where(inside, ends - lengths, 0)

    def sums(values: list[float] | tuple[float, ...]) -> Array:
        """(L + 1, L): of a shard's layers, by its end and length."""
        before = np.concatenate([[0.0], np.cumsum(values)])
        found: Array = before[ends] - before[firsts]
        return found

    size = sums([layer.parameter_bytes for layer in layers])
    sent, more = extra_bytes(way.extra, np.maximum(ends - 1, 0), firsts, 0, mu, replicas)
    deepest = deepest_of(
        problem.schedule,
        np.array(mu),
        sums([layer.activation_bytes for layer in layers]) + sent,
        problem.copies[replicas > 1] * size + container.base_bytes + more,
        np.array(container.memory_bytes),
    )
    deepest[~inside] = 0
    fits = deepest > 0
    computed = (sums(container.forward_s), sums(container.backward_s))
    passed = split.between_s[firsts]
    ring = split.ring_s(size)
    paces = np.stack([*(np.maximum(one, passed) for one in computed), ring])
    paces[:, ~fits] = np.inf
    return _Shards(
        split=split,
        paces=paces,
        fit=paces[:, fits],
        shortest=np.minimum.accumulate(paces.min(axis=1)[:, ::-1], axis=1)[:, ::-1],
        deepest=deepest,
    )


def _least_transfers(
    of: _Shards, high: Ends, loops: SearchLoops
) -> tuple[float, tuple[int, ...] | None]:
    """The least C of B shards that keep to the limits, and where they begin; None: none do."""
    limits, between_s = np.array(high), of.split.between_s
    longest = min(
        int(np.searchsorted(shortest, limit, side="right"))
        for shortest, limit in zip(of.shortest, high, strict=True)
    )
    if not longest:
        return np.inf, None
    found = loops.transfers(of.paces, limits, longest, between_s, of.split.shards, of.deepest)
    if not np.isfinite(found[0]):
        return np.inf, None
    firsts = len(between_s) - np.cumsum(found[1:-1]).astype(np.int64)
    return float(found[0]), tuple(firsts[::-1].tolist())


def _limits(problem: StagesOverLinks, plan: PipelinePlan) -> tuple[str, ...]:
    most = max(problem.containers)
    return (f"{most} containers",) if plan.functions == most else ()
