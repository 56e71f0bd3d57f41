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
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from itertools import count

import numpy as np

from dayfly.plan.choose.arrays import Array, Ints, on_arrays
from dayfly.plan.choose.front import Point
from dayfly.plan.choose.pipelines.incumbents import Incumbents
from dayfly.plan.choose.pipelines.plan import PipelinePlan
from dayfly.plan.choose.pipelines.problem import MicroBatches, StagesOverLinks
from dayfly.plan.choose.pipelines.taken import step_s, step_usd
from dayfly.plan.formulas.hydrozoa import synchronisation_s

Known = Incumbents[PipelinePlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shards:
    """A way to cut into B shards, with A replicas.

    paces: (3, L + 1, L), t, r and s of a shard of layers i to q-1, by q and i; with t and r the
    transfer before it; inf where it does not fit. values: of each, all that there are, rising.
    between_s: (L,), transfer before each layer; 0 before the first. fixed_s: sum of f and b. times:
    M - 1. usd_per_s: of all containers.
    """

    way: MicroBatches
    replicas: int
    shards: int
    paces: Array
    values: tuple[Array, ...]
    between_s: Array
    fixed_s: float
    times: float
    usd_per_s: float

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
        )


def search_over_links(
    problem: StagesOverLinks, deadline: float | None
) -> tuple[list[Point[PipelinePlan]], float]:
    """The front, and its gap; nothing, if nothing fits. deadline: of time.perf_counter."""
    known: Known = Incumbents()
    boxes: list[tuple[float, int, _Shards, Ints, Ints]] = []
    order = count()

    def consider(of: _Shards, low: Ints, high: Ints) -> None:
        """Adds the plan of a box's upper ends, and the box, if it may have better ones."""
        least_s, starts = _least_transfers(of, high)
        if starts is None:
            return
        plan = of.plan(starts)
        taken = step_s(problem, plan)
        known.add([(taken, taken * of.usd_per_s, plan)])
        t, r, s = (values[i] for values, i in zip(of.values, low, strict=True))
        bound = float(of.fixed_s + 2 * least_s + of.times * (t + r) + s)
        if bound < _tau(known, of) and (low < high).any():
            heapq.heappush(boxes, (bound, next(order), of, low, high))

    for n in problem.containers:
        for way in problem.micro_batches:
            for replicas in _replicas(way, n):
                of = _shards(problem, way, replicas, n // replicas)
                high = np.array([len(values) - 1 for values in of.values])
                consider(of, np.zeros(3, dtype=np.int64), high)
    gap = 0.0
    while boxes:
        bound, _, of, low, high = heapq.heappop(boxes)
        tau = _tau(known, of)
        if bound >= tau:
            continue
        if deadline is not None and time.perf_counter() > deadline:
            gap = max(gap, tau / bound - 1)
            continue
        axis, at = _widest(of, low, high)
        lower, upper = high.copy(), low.copy()
        lower[axis], upper[axis] = at, at + 1
        consider(of, low, lower)
        consider(of, upper, high)
    points = [
        Point(step_s(problem, plan), step_usd(problem, plan), plan, _limits(problem, plan))
        for plan in known.plans
    ]
    return points, gap


def _tau(known: Known, of: _Shards) -> float:
    return float(known.tau(np.array([of.usd_per_s]))[0])


def _widest(of: _Shards, low: Ints, high: Ints) -> tuple[int, int]:
    """Where to halve a box: which of t, r and s, and the last of its values in the lower half."""
    open_ = np.flatnonzero(low < high).tolist()
    ends = {axis: (of.values[axis][low[axis]], of.values[axis][high[axis]]) for axis in open_}
    weights = (of.times, of.times, 1.0)
    axis = max(open_, key=lambda one: weights[one] * (ends[one][1] - ends[one][0]))
    at = int(np.searchsorted(of.values[axis], sum(ends[axis]) / 2, side="right")) - 1
    return axis, min(max(at, int(low[axis])), int(high[axis]) - 1)


def _replicas(way: MicroBatches, containers: int) -> list[int]:
    """All A that divide both, and leave no more shards than layers."""
    return [
        a
        for a in range(1, containers + 1)
        if containers % a == 0 and way.micro_batches % a == 0 and containers // a <= len(way.layers)
    ]


def _shards(problem: StagesOverLinks, way: MicroBatches, replicas: int, shards: int) -> _Shards:
    container, layers = way.container, way.layers
    mu = way.micro_batches // replicas

    def sums(values: list[float] | tuple[float, ...]) -> Array:
        """(L + 1, L): of layers i to q-1, by q and i."""
        before = np.concatenate([[0.0], np.cumsum(values)])
        found: Array = before[:, None] - before[None, :-1]
        return found

    size = sums([layer.parameter_bytes for layer in layers])
    held = mu * sums([layer.activation_bytes for layer in layers])
    held += problem.copies[replicas > 1] * size + container.base_bytes
    fits = np.tri(len(size), len(size) - 1, k=-1, dtype=bool) & (held <= container.memory_bytes)
    between = np.array([0.0, *(layer.output_bytes for layer in layers[:-1])])
    between /= container.bytes_per_s
    ring = on_arrays(synchronisation_s)(
        size, replicas, container.bytes_per_s, problem.ring_s_per_byte, problem.ring_round_s
    )
    forward, backward = sums(container.forward_s), sums(container.backward_s)
    paces = np.stack([np.maximum(forward, between), np.maximum(backward, between), ring])
    paces[:, ~fits] = np.inf
    return _Shards(
        way=way,
        replicas=replicas,
        shards=shards,
        paces=paces,
        values=tuple(np.unique(pace[fits]) if fits.any() else np.zeros(1) for pace in paces),
        between_s=between,
        fixed_s=sum(container.forward_s) + sum(container.backward_s),
        times=mu - 1,
        usd_per_s=replicas * shards * container.usd_per_s,
    )


def _least_transfers(of: _Shards, high: Ints) -> tuple[float, tuple[int, ...] | None]:
    """The least C of B shards that keep to the limits, and where they begin; None: none do."""
    t, r, s = (values[i] for values, i in zip(of.values, high, strict=True))
    within = (of.paces[0] <= t) & (of.paces[1] <= r) & (of.paces[2] <= s)
    adds = np.where(within, of.between_s, np.inf)
    every = np.arange(len(adds))
    least = np.full(len(adds), np.inf)
    least[0] = 0.0
    before: list[Ints] = []
    for _ in range(of.shards):
        reached = adds + least[:-1]
        first = reached.argmin(axis=1)
        least = reached[every, first]
        before.append(first)
    if not np.isfinite(least[-1]):
        return np.inf, None
    starts, end = [], len(least) - 1
    for first in reversed(before):
        end = int(first[end])
        starts.append(end)
    return float(least[-1]), tuple(starts[-2::-1])


def _limits(problem: StagesOverLinks, plan: PipelinePlan) -> tuple[str, ...]:
    most = max(problem.containers)
    return (f"{most} containers",) if plan.functions == most else ()
