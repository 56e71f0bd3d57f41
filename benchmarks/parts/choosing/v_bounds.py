"""Hydrozoa's partitions by V x V bounds, and its planner (section 3.4, appendix A.2).

    t_B, r_1   time between micro-batches at the last shard's forward and the first's backward pass
    c_u        seconds of what passes before layer u

For each of V evenly spaced bounds of t_B and V of r_1 the cut of the least communication that keeps
them, for each number of shards i, over the first j layers:

    C(i, j) = min over u of C(i - 1, u) + c_(u+1)

The best of all of these for each number of shards B is compared as A x B by the time of a step,
synchronisation included, which the partition leaves out (algorithm 1). The paper's V is 1000; its
bounds reach from the least f of a layer to the greatest of all f together and all c. The ring has A
members (docs/errata.md).

A shard that does not fit is no shard here; the paper only says that it tries what fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.parts.choosing.answer import Answer, Goal
from benchmarks.parts.choosing.pipeline_points import holds, point
from dayfly.planning.choose.arrays import Array, Ints
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    MicroBatches,
    StagesOverLinks,
)

#: Of the paper.
V = 1000


def v_bounds(problem: StagesOverLinks, goal: Goal, *, v: int = V) -> Answer[PipelinePlan]:
    """The best A x B and micro-batches."""
    found: list[Point[PipelinePlan]] = []
    for way in problem.micro_batches:
        for replicas, shards in _shapes(problem, way).items():
            table = _Shards.of(problem, way, replicas)
            for starts in _partitions(table, shards, v):
                plan = _plan(way, starts, replicas)
                if plan.functions in problem.containers and holds(problem, plan):
                    found.append(point(problem, plan))
    return Answer(goal.best(found), f"{v} x {v} bounds")


def _shapes(problem: StagesOverLinks, way: MicroBatches) -> dict[int, int]:
    """The most shards B for each number of replicas A that divides M and a number of containers."""
    most: dict[int, int] = {}
    for containers in problem.containers:
        for replicas in range(1, containers + 1):
            if containers % replicas == 0 and way.micro_batches % replicas == 0:
                shards = min(containers // replicas, len(way.layers))
                most[replicas] = max(most.get(replicas, 0), shards)
    return most


def _plan(way: MicroBatches, starts: tuple[int, ...], replicas: int) -> PipelinePlan:
    shards = len(starts) + 1
    return PipelinePlan(
        layers=len(way.layers),
        starts=starts,
        options=(0,) * shards,
        memory_mib=(way.container.memory_mib,) * shards,
        replicas=(replicas,) * shards,
        micro_batches=way.micro_batches,
        collective="ring",
    )


@dataclass(frozen=True, slots=True)
class _Shards:
    """forward, backward: (L, L + 1), of layers u to j-1; infinite where they do not fit. passing:
    (L,), c before each layer. micro_batches: of a replica. layers: f of each layer, and b."""

    forward: Array
    backward: Array
    passing: Array
    micro_batches: int
    layers: tuple[tuple[float, ...], tuple[float, ...]]

    @classmethod
    def of(cls, problem: StagesOverLinks, way: MicroBatches, replicas: int) -> _Shards:
        on, count = way.container, len(way.layers)
        mu, copies = way.micro_batches // replicas, problem.copies[replicas > 1]
        needed = mu * _sums([layer.activation_bytes for layer in way.layers]) + on.base_bytes
        needed += copies * _sums([layer.parameter_bytes for layer in way.layers])
        rows, columns = np.arange(count)[:, None], np.arange(count + 1)[None, :]
        fits = (rows < columns) & (needed <= on.memory_bytes)
        sent = [layer.output_bytes / on.bytes_per_s for layer in way.layers[:-1]]
        return cls(
            forward=np.where(fits, _sums(on.forward_s), np.inf),
            backward=np.where(fits, _sums(on.backward_s), np.inf),
            passing=np.array([0.0, *sent]),
            micro_batches=mu,
            layers=(on.forward_s, on.backward_s),
        )

    def bounds(self, v: int) -> tuple[Array, Array]:
        """Of t_B and of r_1."""
        most = float(self.passing.max())
        each = (np.linspace(min(one), max(sum(one), most), v) for one in self.layers)
        t, r = each
        # All keep the greatest, however it was rounded; infinity would let in what does not fit.
        t[-1], r[-1] = t[-1] * (1 + 1e-9), r[-1] * (1 + 1e-9)
        return t, r


def _partitions(table: _Shards, shards: int, v: int) -> Iterator[tuple[int, ...]]:
    """For each number of shards the best starts by appendix A.1, of those of all bounds."""
    t_bounds, r_bounds = table.bounds(v)
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    for t_bound in t_bounds:
        for starts in _cheapest(table, shards, float(t_bound), r_bounds):
            time_s = _time_s(table, starts)
            known = best.get(len(starts))
            if known is None or time_s < known[0]:
                best[len(starts)] = time_s, starts
    for _, starts in best.values():
        yield starts


def _cheapest(table: _Shards, shards: int, t_bound: float, r_bounds: Array) -> set[tuple[int, ...]]:
    """The cuts of the least communication for one bound of t_B and all V of r_1."""
    count = len(table.passing)
    # (u, j, V): whether layers u to j-1 may be a shard.
    allowed = (table.forward <= t_bound) & (table.passing <= t_bound)[:, None]
    slow = np.maximum(table.backward, table.passing[:, None])
    cost = np.where(allowed[:, :, None] & (slow[:, :, None] <= r_bounds), 0.0, np.inf)
    cost += table.passing[:, None, None]
    c = cost[0]  # (L + 1, V), of the first j layers as one shard
    froms: list[Ints] = []
    found: set[tuple[int, ...]] = set()
    for number in range(shards):
        if number:
            through = c[:-1, None, :] + cost
            froms.append(through.argmin(axis=0))
            c = through.min(axis=0)
        columns = np.flatnonzero(np.isfinite(c[count]))
        starts = np.empty((len(columns), number), dtype=np.int64)
        at = np.full(len(columns), count)
        for step, chosen in enumerate(reversed(froms)):
            at = chosen[at, columns]
            starts[:, number - 1 - step] = at
        found.update(map(tuple, np.unique(starts, axis=0).tolist()))
    return found


def _time_s(table: _Shards, starts: tuple[int, ...]) -> float:
    """Appendix A.1, without what is the same for all cuts."""
    ends = [*starts, len(table.passing)]
    shards = list(zip((0, *starts), ends, strict=True))
    sent = [float(table.passing[start]) for start in starts]
    t = max([*sent, *(float(table.forward[shard]) for shard in shards)])
    r = max([*sent, *(float(table.backward[shard]) for shard in shards)])
    return 2 * sum(sent) + (table.micro_batches - 1) * (t + r)


def _sums(values: list[float] | tuple[float, ...]) -> Array:
    """(L, L + 1): of layers u to j-1."""
    before = np.concatenate([[0.0], np.cumsum(values)])
    whole: Array = before[None, :] - before[:-1, None]
    return whole
