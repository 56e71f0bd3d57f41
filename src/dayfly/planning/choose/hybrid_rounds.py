"""Rounds of hybrid asynchronous workers for all numbers of aggregators at once, by closed forms.

As `planning.closed_form_kinds` has them: each bucket b of the gradients is an exchange of its own,
which begins when it is whole, and the slower of two rounds sets the pace.

    aggregator   max over b { whole_b(B^a) + sum_b(W, K) }                + apply
    another      max over b { whole_b(B^n) + put_b(W, K) } + read(W, K)   + apply

Arrays: P pairs (W, K), K of them of one W; B buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Self, cast

import numpy as np

from dayfly.planning.bursts import Bursts
from dayfly.planning.choose.arrays import Array, Ints, on_arrays
from dayfly.planning.choose.sums import PAIRS, SumTable
from dayfly.planning.closed_sums import MOVED, whole_s_of
from dayfly.planning.function_times import pace, passed
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.wire.collectives.cost import Cost
from dayfly.wire.collectives.k_reduce import hybrid_costs


@dataclass(frozen=True, slots=True)
class HybridSums:
    """What sums take beside computing.

    Attributes:
        own_s: from when a bucket is whole until it and all later ones are summed, (P, B).
        put_s: the same until another worker has put its parts, (P, B).
        read_s: in which another takes the sums of a step, (P,).
        own_work_s, others_work_s: in which a worker's processor begins sums and handles messages,
            (P,); and own_begun_s, others_begun_s: in which it begins them, (P,).
        after_own_s: in which others take an epoch's last sums when aggregators are through, where
            the aggregators' rounds are the longer ones, (P,).
        after_put_s: where theirs are, (P,).
        step_usd: the store's, (P,).
    """

    own_s: Array
    put_s: Array
    read_s: Array
    own_work_s: Array
    others_work_s: Array
    own_begun_s: Array
    others_begun_s: Array
    after_own_s: Array
    after_put_s: Array
    step_usd: Array

    @classmethod
    def by_workers(cls, table: SumTable, workers: Sequence[int]) -> Iterator[tuple[int, Self]]:
        """Yields each number of workers W with its sums, one row for each K from 1 to W.

        Where K = W, all workers are aggregators, and none lags. Costs of several W are computed as
        one array.
        """
        left = list(workers)
        while left:
            many = sum(pairs <= PAIRS for pairs in accumulate(left)) or 1
            some, left = left[:many], left[many:]
            found = cls._of(table, np.repeat(some, some), np.concatenate([*map(_every, some)]))
            ends = np.cumsum(some)[:-1]
            parts = [np.split(getattr(found, one.name), ends) for one in fields(cls)]
            yield from zip(some, (cls(*one) for one in zip(*parts, strict=True)), strict=True)

    @classmethod
    def _of(cls, table: SumTable, workers_P: Ints, k_P: Ints) -> Self:
        asked = table.asked(workers_P[:, None])
        own, put, read = hybrid_costs(asked, aggregators=cast("int", k_P[:, None]))
        shape = len(k_P), len(table.flat.buckets)

        def each(value: object) -> Array:
            return np.broadcast_to(cast("Array", value), shape)

        def until_s(cost: Cost) -> Array:
            """As `all_reduced_s` has it."""
            later_s = np.cumsum(each(cost.busiest_s)[:, ::-1], axis=1)[:, ::-1]
            later_s = later_s - cost.busiest_s
            return np.maximum(each(cost.seconds), cost.carried_s + later_s)

        read_s, lags = each(read.seconds).sum(axis=1), k_P < workers_P
        last_s = each(own.phases[-1].length_s).sum(axis=1)
        made_s = each(sum(phase.length_s for phase in own.phases[-4:-1]))[:, -1]
        begin_s = np.where(workers_P > 1, asked.link.begin_s * len(table.flat.buckets), 0.0)

        def work_s(*costs: Cost, members: Ints) -> Array:
            moved = (sum(each(getattr(one, of)).sum(axis=1) for one in costs) for of in MOVED)
            handled_s = on_arrays(asked.link.handled_s)(*(of / members for of in moved))
            return begin_s * len(costs) + handled_s

        return cls(
            own_s=until_s(own),
            put_s=until_s(put),
            read_s=read_s,
            own_work_s=work_s(own, members=k_P),
            others_work_s=lags * work_s(put, read, members=np.maximum(1, workers_P - k_P)),
            own_begun_s=begin_s,
            others_begun_s=np.where(lags, 2 * begin_s, 0.0),
            after_own_s=lags * np.maximum(0.0, read_s - last_s),
            after_put_s=lags * made_s,
            step_usd=table.usd(
                {
                    what: sum((each(getattr(one, what)) for one in (own, put, read)), np.zeros(1))
                    for what in MOVED
                }
            ),
        )


def _every(workers: int) -> Ints:
    return np.arange(1, workers + 1)


def ending_of(profile: Profile, size: SizeProfile) -> float:
    """Returns the seconds of a step beside its passes and sums.

    Args:
        profile: of the job.
        size: of the function.
    """
    return size.apply(sum(layer.trained for layer in profile.layers)) + size.step_s.value


@dataclass(frozen=True, slots=True)
class HybridRounds:
    """Rounds of so many functions of one size.

    Attributes:
        own_s: of an aggregator by K and B^a, (K, J), and at last where few samples tend to.
        others_s: of another by K and B^n, (K, L), and at last likewise; 0 where there is none.
        own_J: all B^a; 0: it computes nothing.
        sums: of the same K.
    """

    own_s: Array
    others_s: Array
    own_J: Ints
    sums: HybridSums

    @classmethod
    def of(
        cls, profile: Profile, size: SizeProfile, table: SumTable, sums: HybridSums, *each: Ints
    ) -> Self:
        """Returns those of each K.

        Args:
            profile: of the job.
            size: of the functions, as they compute and send beside each other.
            table: of sums over their links.
            sums: of all K.
            each: all B^a, and all B^n.
        """

        ending_s = ending_of(profile, size)
        workers = len(sums.own_s)
        bursts = Bursts.of(size, workers, profile.shared_cores)

        def computed_s(samples: int) -> float:
            passes_s = passed(size.forward, samples) + passed(size.backward, samples)
            return size.data(samples) + passes_s

        def whole_s(samples: int) -> Array:
            return np.array(whole_s_of(size.backward, table.flat, computed_s(samples), samples))

        def by_samples(first: float, second: float, samples_N: Ints) -> Array:
            """Of what takes so long of 1 and of 2 samples; at last of few samples."""
            fixed_s, each_s = 2 * first - second, second - first
            return np.append(np.where(samples_N > 0, fixed_s + each_s * samples_N, 0.0), fixed_s)

        def round_s(
            samples_N: Ints,
            pace_K: Array,
            sum_KB: Array,
            read_K: Array,
            begun_K: Array,
            work_K: Array,
        ) -> Array:
            found, pace_K1 = np.zeros((workers, len(samples_N) + 1)), pace_K[:, None]
            for first_s, second_s, sum_K in zip(whole_s(1), whole_s(2), sum_KB.T, strict=True):
                whole_KN = pace_K1 * by_samples(first_s, second_s, samples_N)
                np.maximum(found, whole_KN + sum_K[:, None], out=found)
            computed_KN = pace_K1 * by_samples(computed_s(1), computed_s(2), samples_N)
            waited_KN = found + read_K[:, None] - computed_KN
            burst_KN = computed_KN + ending_s
            begun_KN = np.minimum(begun_K[:, None], np.maximum(0.0, waited_KN))
            work_KN = burst_KN + work_K[:, None]
            return on_arrays(bursts.step_s)(waited_KN + burst_KN, burst_KN, begun_KN, work_KN)

        own_J, others_L = each
        # The first K ranks are aggregators; each role is as slow as the slowest that has it.
        paces = np.array([pace(size, rank, workers, 1) for rank in range(workers)])
        own_K = np.maximum.accumulate(paces)
        others_K = np.append(np.maximum.accumulate(paces[::-1])[::-1][1:], 1.0)
        nothing_K = np.zeros(workers)
        own = own_K, sums.own_s, nothing_K, sums.own_begun_s, sums.own_work_s
        others = others_K, sums.put_s, sums.read_s, sums.others_begun_s, sums.others_work_s
        others_s = round_s(others_L, *others)
        others_s[-1] = 0.0
        return cls(round_s(own_J, *own), others_s, own_J, sums)

    def epoch_s(self, k: Ints, j: Ints, at: Ints, steps: Ints, part: Array) -> Array:
        """Returns the seconds of an epoch's steps, of each plan, (N,).

        Args:
            k: which K, (N,).
            j: which B^a, (N,).
            at: which B^n, (N,).
            steps: of an epoch, (N,).
            part: samples of its last step over those of a whole one, (N,).
        """
        own_s, others_s = self.own_s[k, j], self.others_s[k, at]
        # What a step of fewer samples takes lies between that and one of nearly none.
        none_s = np.where(self.own_J[j] > 0, self.own_s[k, -1], own_s), self.others_s[k, -1]
        parts_s = (
            of + part * (whole - of) for of, whole in zip(none_s, (own_s, others_s), strict=True)
        )
        after_s = np.where(others_s > own_s, self.sums.after_put_s[k], self.sums.after_own_s[k])
        found = (steps - 1) * np.maximum(own_s, others_s) + np.maximum(*parts_s) + after_s
        return cast("Array", found)
