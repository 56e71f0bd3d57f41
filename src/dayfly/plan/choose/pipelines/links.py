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
from dayfly.plan.choose.pipelines.engine import Engine
from dayfly.plan.choose.pipelines.incumbents import Incumbents
from dayfly.plan.choose.pipelines.plan import PipelinePlan
from dayfly.plan.choose.pipelines.problem import MicroBatches, StagesOverLinks
from dayfly.plan.choose.pipelines.taken import step_s, step_usd
from dayfly.plan.formulas.hydrozoa import synchronisation_s

Known = Incumbents[PipelinePlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shards:
    """A way to cut into B shards, with A replicas.

    paces: (3, L + 1, L), t, r and s of a shard of the m + 1 layers before q, by q and m; with t and
    r the transfer before it; inf where it does not fit. least: (3, L), of all so long shards or
    longer. values: all that there are, rising.
    between_s: (L,), transfer before each layer; 0 before the first. fixed_s: sum of f and b. times:
    M - 1. usd_per_s: of all containers.
    """

    way: MicroBatches
    replicas: int
    shards: int
    paces: Array
    least: Array
    values: tuple[Array, ...]
    between_s: Array
    fixed_s: float
    times: float
    usd_per_s: float

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
        )


def search_over_links(
    problem: StagesOverLinks, engine: Engine, deadline: float | None
) -> tuple[list[Point[PipelinePlan]], float]:
    """The front, and its gap; nothing, if nothing fits. deadline: of time.perf_counter."""
    known: Known = Incumbents()
    boxes: list[tuple[float, int, _Shards, float, Ints, Ints]] = []
    order = count()

    def consider(of: _Shards, least_s: float, low: Ints, high: Ints) -> None:
        """Adds a box, if it may have better plans. least_s: the least C of its upper ends."""
        t, r, s = (values[i] for values, i in zip(of.values, low, strict=True))
        bound = of.takes_s(least_s, t, r, s)
        if bound < _tau(known, of) and (low < high).any():
            heapq.heappush(boxes, (bound, next(order), of, least_s, low, high))

    def cut(of: _Shards, low: Ints, high: Ints) -> None:
        """The same, after the plan of its upper ends was added."""
        least_s, starts = _least_transfers(of, high, engine)
        if starts is None:
            return
        ends = np.array([*starts, len(of.between_s)])
        paces = of.paces[:, ends, np.diff(ends, prepend=0) - 1]
        taken = of.takes_s(least_s, *paces.max(axis=1).tolist())
        if taken < _tau(known, of):
            known.add([(taken, taken * of.usd_per_s, of.plan(starts))])
        consider(of, least_s, low, high)

    for n in problem.containers:
        for way in problem.micro_batches:
            for replicas in _replicas(way, n):
                of = _shards(problem, way, replicas, n // replicas)
                high = np.array([len(values) - 1 for values in of.values])
                cut(of, np.zeros(3, dtype=np.int64), high)
    gap = 0.0
    while boxes:
        bound, _, of, least_s, low, high = heapq.heappop(boxes)
        tau = _tau(known, of)
        if bound >= tau:
            continue
        if deadline is not None and time.perf_counter() > deadline:
            gap = max(gap, tau / bound - 1)
            continue
        axis, at = _widest(of, low, high)
        lower, upper = high.copy(), low.copy()
        lower[axis], upper[axis] = at, at + 1
        cut(of, low, lower)
        consider(of, least_s, upper, high)
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

    ends, lengths = np.ogrid[: len(layers) + 1, 1 : len(layers) + 1]
    inside = lengths <= ends
    firsts = np.where(inside, ends - lengths, 0)

    def sums(values: list[float] | tuple[float, ...]) -> Array:
        """(L + 1, L): of a shard's layers, by its end and length."""
        before = np.concatenate([[0.0], np.cumsum(values)])
        found: Array = before[ends] - before[firsts]
        return found

    size = sums([layer.parameter_bytes for layer in layers])
    held = mu * sums([layer.activation_bytes for layer in layers])
    held += problem.copies[replicas > 1] * size + container.base_bytes
    fits = inside & (held <= container.memory_bytes)
    between = np.array([0.0, *(layer.output_bytes for layer in layers[:-1])])
    between /= container.bytes_per_s
    ring = on_arrays(synchronisation_s)(
        size, replicas, container.bytes_per_s, problem.ring_s_per_byte, problem.ring_round_s
    )
    computed = (sums(container.forward_s), sums(container.backward_s))
    paces = np.stack([*(np.maximum(one, between[firsts]) for one in computed), ring])
    paces[:, ~fits] = np.inf
    return _Shards(
        way=way,
        replicas=replicas,
        shards=shards,
        paces=paces,
        least=np.minimum.accumulate(paces.min(axis=1)[:, ::-1], axis=1)[:, ::-1],
        values=tuple(np.unique(pace[fits]) if fits.any() else np.zeros(1) for pace in paces),
        between_s=between,
        fixed_s=sum(container.forward_s) + sum(container.backward_s),
        times=mu - 1,
        usd_per_s=replicas * shards * container.usd_per_s,
    )


def _least_transfers(
    of: _Shards, high: Ints, engine: Engine
) -> tuple[float, tuple[int, ...] | None]:
    """The least C of B shards that keep to the limits, and where they begin; None: none do."""
    limits = np.array([values[i] for values, i in zip(of.values, high, strict=True)])
    longest = min(
        int(np.searchsorted(least, limit, side="right"))
        for least, limit in zip(of.least, limits, strict=True)
    )
    if not longest:
        return np.inf, None
    found = engine.transfers(of.paces, limits, longest, of.between_s, of.shards)
    if not np.isfinite(found[0]):
        return np.inf, None
    firsts = len(of.between_s) - np.cumsum(found[1:-1]).astype(np.int64)
    return float(found[0]), tuple(firsts[::-1].tolist())


def _limits(problem: StagesOverLinks, plan: PipelinePlan) -> tuple[str, ...]:
    most = max(problem.containers)
    return (f"{most} containers",) if plan.functions == most else ()
