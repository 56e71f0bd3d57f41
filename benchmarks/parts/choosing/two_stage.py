"""FasDL's two-stage search (section VI-B).

    for delta in 0.6, 0.7, 0.8, 0.9, 1:
      first    W, M and B^a of the cheapest ScatterReduce (K = W) with (equation 17)
               T <= T_con / delta and B^g <= B^g_max delta; for each W from the largest M down, and
               no further once no B^a of an M keeps the time
      second   with these, K from W to 1, and B^n of each by equation 16; those that keep T_con and
               B^g_max
    the cheapest of all

Equation 16 is a cap, rounded down, and equation 12's < is <= (docs/errata.md). What the first stage
computes does not depend on delta, so it is computed once for all five.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.parts.choosing.answer import Answer, Goal
from benchmarks.parts.choosing.k_reduce_costs import hybrid, rates, synchronous
from benchmarks.parts.papers.formulas.fasdl import others_batch
from dayfly.planning.choose.arrays import Array, Ints
from dayfly.planning.choose.formulas import aggregate_s
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.k_reduce_problem import FunctionSize, KReducePlan, KReduceProblem

#: Reduction factors.
DELTAS = (0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class _Batches:
    """ScatterReduce on W functions of one size. samples: all B^a that fit into memory."""

    workers: int
    size: FunctionSize
    samples: Ints
    seconds: Array
    usd: Array


def two_stage(problem: KReduceProblem, goal: Goal) -> Answer[KReducePlan]:
    """The least dollars within a deadline. `goal`'s deadline is T_con."""
    tables = [
        [
            _batches(problem, workers, size)
            for size in _from_the_largest(problem)
            if size.allows(workers)
        ]
        for workers in problem.workers
    ]
    found: list[Point[KReducePlan]] = []
    for delta in DELTAS:
        first = _first(problem, tables, goal.deadline_s / delta, delta)
        if first is not None:
            found += _second(problem, *first)
    return Answer(goal.best(found))


def _from_the_largest(problem: KReduceProblem) -> list[FunctionSize]:
    return sorted(problem.sizes, key=lambda size: size.memory_mib, reverse=True)


def _batches(problem: KReduceProblem, workers: int, size: FunctionSize) -> _Batches:
    every = np.array(problem.aggregators_samples, dtype=np.int64)
    samples = every[every <= size.most_samples]
    seconds, usd = synchronous(problem, size, workers, workers, samples)
    return _Batches(workers, size, samples, seconds, usd)


def _first(
    problem: KReduceProblem, tables: list[list[_Batches]], limit_s: float, delta: float
) -> tuple[int, FunctionSize, int] | None:
    """W, functions and B^a. None: nothing keeps the limits."""
    best: tuple[float, float] | None = None
    chosen = None
    for by_size in tables:
        for one in by_size:
            small = one.workers * one.samples <= problem.most_global_samples * delta
            in_time = np.flatnonzero(small & (one.seconds <= limit_s))
            if not len(in_time):
                break
            at = in_time[np.lexsort((one.seconds[in_time], one.usd[in_time]))[0]]
            value = (float(one.usd[at]), float(one.seconds[at]))
            if best is None or value < best:
                best, chosen = value, (one.workers, one.size, int(one.samples[at]))
    return chosen


def _second(
    problem: KReduceProblem, workers: int, size: FunctionSize, own: int
) -> Iterator[Point[KReducePlan]]:
    """A plan for each K that leaves samples for the others."""
    for aggregators in range(workers, 0, -1):
        if problem.aggregators is not None and aggregators not in problem.aggregators:
            continue
        others = 0
        if aggregators < workers:
            up, down = rates(problem, size, aggregators)
            aggregated_s = aggregate_s(problem.size_bytes, workers, aggregators, up, down)
            others = others_batch(
                size.train,
                own,
                aggregated_s,
                workers=workers,
                aggregators=aggregators,
                most_samples=size.most_samples,
                most_global_samples=problem.most_global_samples,
            )
            if others < own:  # equation 5 has the others load most
                continue
        plan = KReducePlan(
            workers=workers,
            memory_mib=size.memory_mib,
            aggregators=aggregators,
            aggregators_samples=own,
            others_samples=others,
        )
        yield hybrid(problem, size, plan)
