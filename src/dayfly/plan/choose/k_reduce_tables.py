"""All workers, aggregators and batches that K-REDUCE can have, with what does not depend on memory.

P  pairs (W, K)        N  candidates (W, K, B^a): a pair each, and the samples of an aggregator
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np

from dayfly.plan.choose.arrays import Array, Ints
from dayfly.plan.choose.k_reduce_problem import KReduceProblem
from dayfly.plan.formulas.fasdl import communication_s, hybrid_step_s, requests_usd
from dayfly.wire.collectives.k_reduce import k_reduce_bytes

#: Times of a shard up, a shard down, and a latency, in a round.
Parts = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Grid:
    """See above. aggregator, other: parts of the rounds of who aggregates and who does not, (P, 3).
    step_usd: what a step's messages cost; kept_usd_per_s: what it costs to keep them."""

    workers: Ints
    aggregators: Ints
    aggregator: Array
    other: Array
    step_usd: Array
    kept_usd_per_s: Array
    pair: Ints
    samples: Ints

    @classmethod
    def of(cls, problem: KReduceProblem) -> Self:
        """All that keep the limit of the global batch."""
        p, least = problem, min(problem.aggregators_samples)
        allowed = None if p.aggregators is None else set(p.aggregators)
        pairs = [
            (workers, aggregators)
            for workers in sorted(set(p.workers))
            for aggregators in range(1, workers + 1)
            if workers * least <= p.most_global_samples
            and (allowed is None or aggregators in allowed)
        ]
        workers, aggregators = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        rounds = [rounds_of(*pair) for pair in pairs]
        batches = sorted(set(p.aggregators_samples))
        fits = [np.flatnonzero(workers * one <= p.most_global_samples) for one in batches]
        return cls(
            workers=workers,
            aggregators=aggregators,
            aggregator=np.array([one for one, _ in rounds]).reshape(-1, 3),
            other=np.array([other for _, other in rounds]).reshape(-1, 3),
            step_usd=np.array(_step_usd(p, pairs)),
            kept_usd_per_s=np.array([_kept_usd_per_s(p, workers) for workers, _ in pairs]),
            pair=np.concatenate(fits),
            samples=np.repeat(np.array(batches, dtype=np.int64), [len(rows) for rows in fits]),
        )


@lru_cache(maxsize=2**16)
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


def _step_usd(problem: KReduceProblem, pairs: list[tuple[int, int]]) -> list[float]:
    """Requests of a step (equation 9), and its bytes where they are billed (equation 10)."""
    store, size = problem.store, math.ceil(problem.size_bytes)
    if store is None:
        return [0.0] * len(pairs)
    shards = {k: -(-size // k) for k in {k for _, k in pairs}}
    puts = {k: store.puts_usd(1, shard) for k, shard in shards.items()}
    gets = {k: store.gets_usd(1, shard) for k, shard in shards.items()}
    moved = {w: store.transfer_usd(*k_reduce_bytes(size, w)) for w in {w for w, _ in pairs}}
    return [requests_usd(puts[k], gets[k], w, k, 1, 1) + moved[w] for w, k in pairs]


def _kept_usd_per_s(problem: KReduceProblem, workers: int) -> float:
    """A step's contributions are there at once, at most."""
    up_bytes, _ = k_reduce_bytes(math.ceil(problem.size_bytes), workers)
    return problem.store.storage_usd(up_bytes, 1.0) if problem.store else 0.0
