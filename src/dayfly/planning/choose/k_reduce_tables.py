"""All workers, aggregators and sizes that K-REDUCE can have, and what does not depend on batches.

P  pairs (W, K)        K  different numbers of aggregators        S  memory sizes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from dayfly.planning.choose.arrays import Array, Ints, on_arrays
from dayfly.planning.choose.k_reduce_problem import KReduceProblem
from dayfly.planning.figures import Transfer
from dayfly.planning.formulas.fasdl import aggregate_s, communication_s, hybrid_step_s, requests_usd
from dayfly.wire.collectives.k_reduce import k_reduce_bytes

#: Times of a shard up, a shard down, and a latency, in a round.
Parts = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Grid:
    """Pairs, by rising workers, then aggregators: (P,), parts of rounds (P, 3).

    aggregator, other: rounds of who aggregates and who does not. step_usd: what a step's messages
    cost; kept_usd_per_s: what it costs to keep them. shard: which of `shards`, the different K.
    """

    workers: Ints
    aggregators: Ints
    aggregator: Array
    other: Array
    step_usd: Array
    kept_usd_per_s: Array
    shard: Ints
    shards: Ints

    @classmethod
    def of(cls, problem: KReduceProblem) -> Self:
        """All that keep the limit of the global batch."""
        p = problem
        most = p.most_global_samples // min(p.aggregators_samples)
        counts = [one for one in sorted(set(p.workers)) if one <= most]
        every = np.arange(1, max(counts, default=0) + 1)
        if p.aggregators is not None:
            every = every[np.isin(every, p.aggregators)]
        of_each = [every[: np.searchsorted(every, one, side="right")] for one in counts]
        workers = np.repeat(np.array(counts, dtype=np.int64), [len(one) for one in of_each])
        aggregators = np.concatenate([np.empty(0, dtype=np.int64), *of_each])
        shards, shard = np.unique(aggregators, return_inverse=True)
        aggregator, other = _rounds(workers, aggregators, shards, shard)
        return cls(
            workers=workers,
            aggregators=aggregators,
            aggregator=aggregator,
            other=other,
            step_usd=_step_usd(p, counts, of_each),
            kept_usd_per_s=np.repeat(
                [_kept_usd_per_s(p, one) for one in counts], [len(one) for one in of_each]
            ),
            shard=shard,
            shards=shards,
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """What `FunctionSize` says, (S,). fixed_s, each_s: of training. down_bytes_per_s: at best."""

    fixed_s: Array
    each_s: Array
    start_s: Array
    usd_per_s: Array
    most_samples: Ints
    most_workers: Array
    down_bytes_per_s: Array

    @classmethod
    def of(cls, problem: KReduceProblem) -> Self:
        """All of them."""
        every = problem.sizes
        return cls(
            fixed_s=np.array([one.train.fixed for one in every]),
            each_s=np.array([one.train.each for one in every]),
            start_s=np.array([one.start_s for one in every]),
            usd_per_s=np.array([one.usd_per_s for one in every]),
            most_samples=np.array([one.most_samples for one in every]),
            most_workers=np.array([one.most_workers for one in every]),
            down_bytes_per_s=np.array([one.down.peak_bytes_per_s.value for one in every]),
        )


@dataclass(frozen=True, slots=True)
class Tables:
    """Of a problem; U different ways to the store.

    way: (S,), of each size. aggregator_s, other_s: (U, P), both rounds, without training.
    aggregated_s: (U, P), T_agg of equation 1b.
    """

    problem: KReduceProblem
    grid: Grid
    sizes: Sizes
    way: Ints
    aggregator_s: Array
    other_s: Array
    aggregated_s: Array

    @classmethod
    def of(cls, problem: KReduceProblem) -> Self:
        """Of all pairs and sizes."""
        grid = Grid.of(problem)
        every = [(one.up, one.down, one.latency_s) for one in problem.sizes]
        ways = {way: number for number, way in enumerate(dict.fromkeys(every))}
        found = [_way(problem, grid, *way) for way in ways]
        aggregator_s, other_s, aggregated_s = map(np.stack, zip(*found, strict=True))
        return cls(
            problem=problem,
            grid=grid,
            sizes=Sizes.of(problem),
            way=np.array([ways[one] for one in every]),
            aggregator_s=aggregator_s,
            other_s=other_s,
            aggregated_s=aggregated_s,
        )


def _way(
    problem: KReduceProblem, grid: Grid, up: Transfer, down: Transfer, latency_s: float
) -> tuple[Array, Array, Array]:
    """Both rounds and T_agg of all pairs; bytes a second are of a shard's message (equation 2)."""
    shard_bytes = problem.size_bytes / grid.shards
    up_K, down_K = (
        np.array([way.throughput(one) for one in shard_bytes.tolist()]) for way in (up, down)
    )
    up_P, down_P = up_K[grid.shard], down_K[grid.shard]
    units_3P = (
        (shard_bytes / up_K)[grid.shard],
        (shard_bytes / down_K)[grid.shard],
        np.full_like(up_P, latency_s),
    )
    aggregated_s = on_arrays(aggregate_s)(
        problem.size_bytes, grid.workers, grid.aggregators, up_P, down_P
    )
    return _sum(grid.aggregator, units_3P), _sum(grid.other, units_3P), aggregated_s


def _sum(parts_P3: Array, units_3P: tuple[Array, Array, Array]) -> Array:
    """In the order of the formulas, so that sums have the same bits."""
    up, down, latency = (part * unit for part, unit in zip(parts_P3.T, units_3P, strict=True))
    whole: Array = up + down + latency
    return whole


@dataclass(frozen=True, slots=True)
class Rounds:
    """Functions of some sizes and pairs, by index, of any shapes that broadcast; see `Tables`."""

    tables: Tables
    size: Ints
    pair: Ints
    aggregator_s: Array
    other_s: Array
    aggregated_s: Array

    @classmethod
    def of(cls, tables: Tables, size: Ints, pair: Ints) -> Self:
        """Of these."""
        way = tables.way[size]
        return cls(
            tables=tables,
            size=size,
            pair=pair,
            aggregator_s=tables.aggregator_s[way, pair],
            other_s=tables.other_s[way, pair],
            aggregated_s=tables.aggregated_s[way, pair],
        )

    @property
    def workers(self) -> Ints:
        """W."""
        return self.tables.grid.workers[self.pair]

    @property
    def aggregators(self) -> Ints:
        """K."""
        return self.tables.grid.aggregators[self.pair]


def rounds_of(workers: int, aggregators: int) -> tuple[Parts, Parts]:
    """What the rounds of an aggregator and of another worker have beside training.

    Both are sums of whole numbers of u, v and the latency, which are asked of the formulas one at a
    time. All being aggregators (bsp), there is no other, and its round takes nothing.
    """
    w, k = workers, aggregators
    if w == k:
        return _parts(lambda up, down, lat: communication_s(k, w, k, up, down, lat)), (0.0,) * 3
    never = -math.inf  # a role that is always through does not set the pace
    return (
        _parts(lambda up, down, lat: hybrid_step_s(0.0, never, k, w, k, up, down, lat)),
        _parts(lambda up, down, lat: hybrid_step_s(never, 0.0, k, w, k, up, down, lat)),
    )


def _parts(round_s: Callable[[float, float, float], float]) -> Parts:
    """Of a round by the rates up and down and the latency, where a shard is one byte."""
    at_once = math.inf
    return round_s(1.0, at_once, 0.0), round_s(at_once, 1.0, 0.0), round_s(at_once, at_once, 1.0)


def _rounds(workers: Ints, aggregators: Ints, shards: Ints, shard: Ints) -> tuple[Array, Array]:
    """`rounds_of` all pairs: with each worker that does not aggregate they grow by as much."""
    found = []
    for k in shards.tolist():
        alone, first, second = (np.array(rounds_of(k + more, k)) for more in range(3))
        found.append((alone, first, second - first))
    alone, first, each = np.array(found).reshape(-1, 3, 2, 3)[shard].transpose(1, 2, 0, 3)
    others = (workers - aggregators)[:, None]
    aggregator, other = np.where(others > 0, first + (others - 1) * each, alone)
    return aggregator, other


def _step_usd(problem: KReduceProblem, counts: list[int], of_each: list[Ints]) -> Array:
    """Requests of a step (equation 9), and its bytes where they are billed (equation 10)."""
    store, size = problem.store, math.ceil(problem.size_bytes)
    if store is None:
        return np.zeros(sum(len(one) for one in of_each))
    most = of_each[-1].tolist() if of_each else []
    puts = np.array([store.puts_usd(1, -(-size // k)) for k in most])
    gets = np.array([store.gets_usd(1, -(-size // k)) for k in most])
    found = [np.empty(0)]
    for w, ks in zip(counts, of_each, strict=True):
        requests = on_arrays(requests_usd)(puts[: len(ks)], gets[: len(ks)], w, ks, 1, 1)
        found.append(requests + store.transfer_usd(*k_reduce_bytes(size, w)))
    return np.concatenate(found)


def _kept_usd_per_s(problem: KReduceProblem, workers: int) -> float:
    """A step's contributions are there at once, at most."""
    up_bytes, _ = k_reduce_bytes(math.ceil(problem.size_bytes), workers)
    return problem.store.storage_usd(up_bytes, 1.0) if problem.store else 0.0
