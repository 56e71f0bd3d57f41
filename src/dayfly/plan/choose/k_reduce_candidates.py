"""What candidates of K-REDUCE take and cost on functions of one memory size, as arrays.

N candidates (W, K, B^a), each with one B^n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from dayfly.plan.choose.arrays import Array, Ints, on_arrays, undominated
from dayfly.plan.choose.k_reduce_problem import FunctionSize, KReduceProblem
from dayfly.plan.choose.k_reduce_tables import Grid
from dayfly.plan.formulas.fasdl import aggregate_s, functions_usd, global_batch, loading_s, run_s


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds and dollars of runs. size: number of the memory size. row: of the grid. others: B^n;
    B^a where all are aggregators."""

    size: Ints
    row: Ints
    others: Ints
    seconds: Array
    usd: Array

    def only(self, at: Ints) -> Taken:
        """Those at these indices."""
        return Taken(self.size[at], self.row[at], self.others[at], self.seconds[at], self.usd[at])

    @staticmethod
    def front(several: list[Taken]) -> Taken:
        """Those of all that nothing dominates; of equal ones the first."""
        whole = Taken(
            np.concatenate([one.size for one in several]),
            np.concatenate([one.row for one in several]),
            np.concatenate([one.others for one in several]),
            np.concatenate([one.seconds for one in several]),
            np.concatenate([one.usd for one in several]),
        )
        return whole.only(undominated(whole.seconds, whole.usd))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Some rows of the grid on functions of one size.

    train_s: of a step for an aggregator; aggregator_s, other_s: the rest of both rounds.
    aggregated_s: T_agg of equation 1b. What is left is the grid's, of each row.
    """

    problem: KReduceProblem
    number: int
    size: FunctionSize
    rows: Ints
    workers: Ints
    aggregators: Ints
    samples: Ints
    train_s: Array
    aggregator_s: Array
    other_s: Array
    aggregated_s: Array
    step_usd: Array
    kept_usd_per_s: Array

    @classmethod
    def of(cls, problem: KReduceProblem, grid: Grid, number: int, rows: Ints) -> Self:
        """Of functions of this size, by its number."""
        size, pair = problem.sizes[number], grid.pair[rows]
        up_P, down_P = (_rates(way.throughput, problem, grid) for way in (size.up, size.down))
        shard_P = problem.size_bytes / grid.aggregators
        units = np.stack([shard_P / up_P, shard_P / down_P, np.full_like(up_P, size.latency_s)])
        aggregated_P = on_arrays(aggregate_s)(
            problem.size_bytes, grid.workers, grid.aggregators, up_P, down_P
        )
        samples = grid.samples[rows]
        return cls(
            problem=problem,
            number=number,
            size=size,
            rows=rows,
            workers=grid.workers[pair],
            aggregators=grid.aggregators[pair],
            samples=samples,
            train_s=on_arrays(size.train)(samples),
            aggregator_s=_sum(grid.aggregator, units)[pair],
            other_s=_sum(grid.other, units)[pair],
            aggregated_s=aggregated_P[pair],
            step_usd=grid.step_usd[pair],
            kept_usd_per_s=grid.kept_usd_per_s[pair],
        )

    def ends(self) -> tuple[Ints, Ints, Ints, Ints]:
        """B^n at the ends of the two pieces: B^a and the balance, the next one and the cap."""
        cap = self.cap()
        balance = self._within(self.train_s + self.aggregator_s - self.other_s, cap)
        balance = np.maximum(balance, self.samples)
        return self.samples, balance, np.minimum(balance + 1, cap), cap

    def cap(self) -> Ints:
        """The most samples B^n, as `fasdl.others_batch` has it; B^a where all are aggregators."""
        limit_s = self.train_s + self.aggregated_s
        others = self.workers - self.aggregators
        left = self.problem.most_global_samples - self.aggregators * self.samples
        most = np.minimum(self.size.most_samples, left // np.maximum(others, 1))
        cap = self._within(limit_s, most)
        # As a quotient is rounded, so that those that just keep the limit are not lost.
        train_s = on_arrays(self.size.train)
        cap += (cap < most) & (train_s(cap + 1) <= limit_s)
        cap -= train_s(cap) > limit_s
        return np.where(others > 0, cap, self.samples)

    def taken(self, others: Ints) -> Taken:
        """Equations 5 to 10, with the pace of the hybrid asynchronous protocol in equation 7."""
        p, size = self.problem, self.size
        global_ = on_arrays(global_batch)(self.workers, self.aggregators, self.samples, others)
        load_s = size.start_s + on_arrays(loading_s)(
            p.size_bytes, p.data_bytes, others, global_, size.down.peak_bytes_per_s.value
        )
        other_s = on_arrays(size.train)(others) + self.other_s
        step_s, steps = np.maximum(self.train_s + self.aggregator_s, other_s), p.samples / global_
        # Training and messages of both roles are in the step together.
        seconds = on_arrays(run_s)(load_s, step_s, 0.0, steps, p.epochs)
        usd = on_arrays(functions_usd)(size.usd_per_s, seconds, 1.0, self.workers)
        usd += self.kept_usd_per_s * seconds
        usd += p.epochs * (self.step_usd * steps + p.usd_per_invocation * self.workers)
        return Taken(np.full_like(others, self.number), self.rows, others, seconds, usd)

    def _within(self, limit_s: Array, most: Ints) -> Ints:
        """Samples that are trained in so long, but for rounding, and `most` at most."""
        train = self.size.train
        return np.minimum(np.floor((limit_s - train.fixed) / train.each), most).astype(np.int64)


def _rates(throughput: Callable[[float], float], problem: KReduceProblem, grid: Grid) -> Array:
    """Bytes a second of a shard's message, of each pair (equation 2)."""
    each = {k: throughput(problem.size_bytes / k) for k in set(grid.aggregators.tolist())}
    return np.array([each[k] for k in grid.aggregators.tolist()])


def _sum(parts_P3: Array, units_3P: Array) -> Array:
    """In the order of the formulas, so that sums have the same bits."""
    up, down, latency = parts_P3.T * units_3P
    whole: Array = up + down + latency
    return whole
