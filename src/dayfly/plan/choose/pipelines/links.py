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

from dayfly.plan.choose.arrays import Array, Ints
from dayfly.plan.choose.front import Point
from dayfly.plan.choose.pipelines.incumbents import Incumbents
from dayfly.plan.choose.pipelines.plan import PipelinePlan
from dayfly.plan.choose.pipelines.problem import MicroBatches, StagesOverLinks
from dayfly.plan.choose.pipelines.taken import step_s, step_usd
from dayfly.plan.formulas.hydrozoa import synchronisation_s

Known = Incumbents[PipelinePlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shards:
    """A way to cut into B shards. values: of t, r and s: all that shards may have, rising.

    at: (3, L, L + 1), where in values a shard of layers l to q-1 is; the end where it does not fit.
    between_s: (L,), transfer before each layer; 0 before the first. fixed_s: sum of f and b.
    times: M - 1.
    """

    plan: PipelinePlan
    shards: int
    values: tuple[Array, Array, Array]
    at: Ints
    between_s: Array
    fixed_s: float
    times: float


def search_over_links(
    problem: StagesOverLinks, deadline: float | None
) -> tuple[list[Point[PipelinePlan]], float]:
    """The front, and its gap; nothing, if nothing fits. deadline: of time.perf_counter."""
    known: Known = Incumbents()
    boxes: list[tuple[float, int, _Shards, Array, float]] = []
    order = count()

    def consider(of: _Shards, low: Ints, high: Ints, usd_per_s: float) -> None:
        """Adds the plan of a box's upper ends, and the box, if it may have better ones."""
        least_s, starts = _fewest_transfers(of, high)
        if starts is None:
            return
        plan = _with(of.plan, starts)
        taken = step_s(problem, plan)
        known.add([(taken, taken * usd_per_s, plan)])
        ends = [values[i] for values, i in zip(of.values, low, strict=True)]
        bound = of.fixed_s + 2 * least_s + of.times * (ends[0] + ends[1]) + ends[2]
        box = np.stack([low, high])
        if bound < known.tau(np.array([usd_per_s]))[0] and (low < high).any():
            heapq.heappush(boxes, (bound, next(order), of, box, usd_per_s))

    for n in problem.containers:
        for way in problem.micro_batches:
            for replicas in _replicas(way, n):
                of = _shards(problem, way, replicas, n // replicas)
                high = np.array([len(values) - 1 for values in of.values])
                consider(of, np.zeros(3, dtype=np.int64), high, n * way.container.usd_per_s)
    gap = 0.0
    while boxes:
        bound, _, of, (low, high), usd_per_s = heapq.heappop(boxes)
        tau = known.tau(np.array([usd_per_s]))[0]
        if bound >= tau:
            continue
        if deadline is not None and time.perf_counter() > deadline:
            gap = max(gap, float(tau / bound) - 1)
            continue
        wide = [
            (of.times if axis < 2 else 1.0)
            * (of.values[axis][high[axis]] - of.values[axis][low[axis]])
            for axis in range(3)
        ]
        axis = int(np.argmax(wide))
        middle = of.values[axis][[low[axis], high[axis]]].mean()
        at = int(np.searchsorted(of.values[axis], middle, side="right")) - 1
        at = min(max(at, low[axis]), high[axis] - 1)
        lower, upper = high.copy(), low.copy()
        lower[axis], upper[axis] = at, at + 1
        consider(of, low, lower, usd_per_s)
        consider(of, upper, high, usd_per_s)
    points = [
        Point(step_s(problem, plan), step_usd(problem, plan), plan, _limits(problem, plan))
        for plan in known.plans
    ]
    return points, gap


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

    def sums(values: list[float]) -> Array:
        """(L, L + 1): of layers l to q-1."""
        before = np.concatenate([[0.0], np.cumsum(values)])
        return before[None, :] - before[:-1, None]

    size = sums([layer.parameter_bytes for layer in layers])
    held = mu * sums([layer.activation_bytes for layer in layers])
    held += problem.copies[replicas > 1] * size + container.base_bytes
    inside = np.triu(np.ones(size.shape, dtype=bool), k=1)
    fits = inside & (held <= container.memory_bytes)
    between = (
        np.array([0.0, *(layer.output_bytes for layer in layers[:-1])]) / container.bytes_per_s
    )
    ring = np.array(
        [
            [
                synchronisation_s(
                    bytes_,
                    replicas,
                    container.bytes_per_s,
                    problem.ring_s_per_byte,
                    problem.ring_round_s,
                )
                for bytes_ in row
            ]
            for row in size
        ]
    )
    # A shard's pace counts the transfer before it: with the first shard's own, that is all.
    paces = [
        np.maximum(sums(list(container.forward_s)), between[:, None]),
        np.maximum(sums(list(container.backward_s)), between[:, None]),
        ring,
    ]
    values = tuple(np.unique(pace[fits]) if fits.any() else np.zeros(1) for pace in paces)
    at = np.array(
        [
            np.where(fits, np.searchsorted(known, pace), len(known))
            for known, pace in zip(values, paces, strict=True)
        ]
    )
    count = len(layers)
    plan = PipelinePlan(
        layers=count,
        starts=(),
        options=(0,),
        memory_mib=(container.memory_mib,),
        replicas=(replicas,),
        micro_batches=way.micro_batches,
        collective="ring",
    )
    return _Shards(
        plan=plan,
        shards=shards,
        values=(values[0], values[1], values[2]),
        at=at,
        between_s=between,
        fixed_s=sum(container.forward_s) + sum(container.backward_s),
        times=mu - 1,
    )


def _fewest_transfers(of: _Shards, high: Ints) -> tuple[float, tuple[int, ...] | None]:
    """The least C of B shards that keep to the limits, and where they begin; None: none do."""
    adds = np.where((of.at <= high[:, None, None]).all(axis=0), of.between_s[:, None], np.inf)
    least = np.full(of.at.shape[2], np.inf)
    least[0] = 0.0
    before: list[Ints] = []
    for _ in range(of.shards):
        reached = least[:-1, None] + adds
        before.append(reached.argmin(axis=0))
        least = reached.min(axis=0)
    if not np.isfinite(least[-1]):
        return np.inf, None
    starts, end = [], len(least) - 1
    for first in reversed(before):
        end = int(first[end])
        starts.append(end)
    return float(least[-1]), tuple(starts[-2::-1])


def _with(plan: PipelinePlan, starts: tuple[int, ...]) -> PipelinePlan:
    shards = len(starts) + 1
    return PipelinePlan(
        layers=plan.layers,
        starts=starts,
        options=plan.options * shards,
        memory_mib=plan.memory_mib * shards,
        replicas=plan.replicas * shards,
        micro_batches=plan.micro_batches,
        collective=plan.collective,
    )


def _limits(problem: StagesOverLinks, plan: PipelinePlan) -> tuple[str, ...]:
    most = max(problem.containers)
    return (f"{most} containers",) if plan.functions == most else ()
