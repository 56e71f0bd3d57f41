"""What candidates of K-REDUCE take and cost, as arrays.

N candidates (M, W, K, B^a), each with one B^n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dayfly.planning.choose.arrays import Array, Ints, on_arrays, undominated
from dayfly.planning.choose.k_reduce_tables import Rounds
from dayfly.planning.formulas.fasdl import functions_usd, global_batch, loading_s, run_s


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds and dollars of runs. size: number of the memory size. pair: of the grid. samples:
    B^a. others: B^n; B^a where all are aggregators."""

    size: Ints
    pair: Ints
    samples: Ints
    others: Ints
    seconds: Array
    usd: Array

    def only(self, at: Ints) -> Taken:
        """Those at these indices."""
        return Taken(
            self.size[at],
            self.pair[at],
            self.samples[at],
            self.others[at],
            self.seconds[at],
            self.usd[at],
        )

    @staticmethod
    def front(several: list[Taken]) -> Taken:
        """Those of all that nothing dominates; of equal ones the first."""
        seconds = np.concatenate([one.seconds for one in several])
        usd = np.concatenate([one.usd for one in several])
        whole = Taken(
            np.concatenate([one.size for one in several]),
            np.concatenate([one.pair for one in several]),
            np.concatenate([one.samples for one in several]),
            np.concatenate([one.others for one in several]),
            seconds,
            usd,
        )
        return whole.only(undominated(seconds, usd))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Functions by rounds, with these samples B^a of an aggregator; all (N,).

    train_s: of a step for an aggregator.
    """

    rounds: Rounds
    samples: Ints
    train_s: Array

    @classmethod
    def of(cls, rounds: Rounds, samples: Ints) -> Candidates:
        """Of these."""
        sizes, at = rounds.tables.sizes, rounds.size
        return cls(rounds, samples, sizes.fixed_s[at] + sizes.each_s[at] * samples)

    def ends(self) -> tuple[Ints, Ints, Ints, Ints]:
        """B^n at the ends of the two pieces: B^a and the balance, the next one and the cap."""
        cap, rounds = self.cap(), self.rounds
        balance = self._within(self.train_s + rounds.aggregator_s - rounds.other_s, cap)
        balance = np.maximum(balance, self.samples)
        return self.samples, balance, np.minimum(balance + 1, cap), cap

    def cap(self) -> Ints:
        """The most samples B^n, as `fasdl.others_batch` has it; B^a where all are aggregators."""
        rounds, tables = self.rounds, self.rounds.tables
        limit_s = self.train_s + rounds.aggregated_s
        others = rounds.workers - rounds.aggregators
        left = tables.problem.most_global_samples - rounds.aggregators * self.samples
        most = np.minimum(tables.sizes.most_samples[rounds.size], left // np.maximum(others, 1))
        cap = self._within(limit_s, most)
        # As a quotient is rounded, so that those that just keep the limit are not lost.
        cap += (cap < most) & (self._train_s(cap + 1) <= limit_s)
        cap -= self._train_s(cap) > limit_s
        return np.where(others > 0, cap, self.samples)

    def taken(self, others: Ints) -> Taken:
        """Equations 5 to 10, with the pace of the hybrid asynchronous protocol in equation 7."""
        rounds, tables, size, pair = (
            self.rounds,
            self.rounds.tables,
            self.rounds.size,
            self.rounds.pair,
        )
        p, sizes, grid = tables.problem, tables.sizes, tables.grid
        workers = rounds.workers
        global_ = on_arrays(global_batch)(workers, rounds.aggregators, self.samples, others)
        load_s = sizes.start_s[size] + on_arrays(loading_s)(
            p.size_bytes, p.data_bytes, others, global_, sizes.down_bytes_per_s[size]
        )
        other_s = self._train_s(others) + rounds.other_s
        step_s, steps = np.maximum(self.train_s + rounds.aggregator_s, other_s), p.samples / global_
        # Training and messages of both roles are in the step together.
        seconds = on_arrays(run_s)(load_s, step_s, 0.0, steps, p.epochs)
        usd = on_arrays(functions_usd)(sizes.usd_per_s[size], seconds, 1.0, workers)
        usd += grid.kept_usd_per_s[pair] * seconds
        usd += p.epochs * (grid.step_usd[pair] * steps + p.usd_per_invocation * workers)
        return Taken(size, pair, self.samples, others, seconds, usd)

    def _train_s(self, samples: Ints) -> Array:
        sizes, at = self.rounds.tables.sizes, self.rounds.size
        found: Array = sizes.fixed_s[at] + sizes.each_s[at] * samples
        return found

    def _within(self, limit_s: Array, most: Ints) -> Ints:
        """Samples that are trained in so long, but for rounding, and `most` at most."""
        sizes, at = self.rounds.tables.sizes, self.rounds.size
        samples = np.floor((limit_s - sizes.fixed_s[at]) / sizes.each_s[at])
        return np.minimum(samples, most).astype(np.int64)
