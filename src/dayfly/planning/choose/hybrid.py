"""Plans of hybrid asynchronous workers: FasDL's axes, by the closed forms of a run.

    W, M       functions; memory of each
    K          aggregators, 1 to W; where all are, workers are bsp's
    B^a, B^n   samples of a step for an aggregator, and for another;  B^g = K B^a + (W - K) B^n

FasDL (section VI) searches by equations in which a step has one exchange after all of its
computing, and a run a fraction of a step. Here a plan takes what a prediction counts, by closed
forms: rounds with an exchange for each bucket (`hybrid_rounds`), whole steps and a last one of
fewer samples, how long the others lag at an epoch's end, validation, start, hand-overs, reports and
the end. Aggregators hold contributions, and the others none: each role has its own limit of memory.

All (M, W, K, B^a, B^n) are gone through, those of an (M, W) at once; an (M, W) is skipped if a plan
beats what it takes at least. B^a is FasDL's (`batches`), or 0: aggregators then only sum. B^n is at
least B^a, without which equation 5 would not hold, and at least the least B^a above 0. It is any
number up to 100; above, numbers lie 1% apart. So do times then: of as many steps an epoch trains as
many samples, and so many more steps are as many more exchanges at most. Equation 16 limits B^n to
what keeps the aggregators' pace. That is left out: where the others set the pace, this is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dayfly.batches import block_samples, validations
from dayfly.errors import RequestError
from dayfly.planning.bursts import Bursts
from dayfly.planning.choose.arrays import Array, Ints, near, undominated
from dayfly.planning.choose.data_parallel_problem import DataParallelProblem
from dayfly.planning.choose.from_profile import allowed, limited, most_at_once
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.hybrid_rounds import HybridRounds, HybridSums, ending_of
from dayfly.planning.choose.k_reduce_from_profile import training
from dayfly.planning.choose.k_reduce_problem import RATE, STEP, KReducePlan, batches
from dayfly.planning.choose.known import Known
from dayfly.planning.choose.sums import SumTable, link_of
from dayfly.planning.choose.whole_memory import Peaks
from dayfly.planning.choose.whole_runs import least_sum_s, lived, usd_beside_sums
from dayfly.planning.configuration import CHECKPOINT_EVERY_S, ITEM_BYTES, Configuration
from dayfly.planning.data_parallel import blocks_s
from dayfly.planning.function_times import contended, declined, factor
from dayfly.planning.memory import logged_steps
from dayfly.planning.profile import NOTHING, SizeProfile
from dayfly.wire.collectives import K_REDUCE

#: Closed forms of hap err by more where functions share a host's link: whether roles send at the
#: same time they do not say.
_HOSTED_ERROR = 0.30
#: Part of B^n by which those lie apart that are more than its inverse; likewise parts of seconds
#: and dollars within which plans that differ in B^n alone are alike.
_APART = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridProblem:
    """What there is to choose among.

    Attributes:
        whole: the job, its place, all W to consider, the method; its batch is the most samples of a
            step (equation 12).
        aggregators: all K to consider; None: any.
        all_aggregate: whether several may all be, which is bsp; None: as `aggregators` has it.
        rate: see `batches`.
        step: see `batches`.
    """

    whole: DataParallelProblem
    aggregators: tuple[int, ...] | None = None
    all_aggregate: bool | None = None
    rate: float = RATE
    step: int = STEP

    def aggregators_of(self, workers: int) -> Ints:
        """Returns all K of so many functions, rising; a lone one may always aggregate."""
        every = np.arange(1, workers + 1)
        of = np.isin(every, every if self.aggregators is None else self.aggregators)
        if self.all_aggregate is not None:
            of[-1] = self.all_aggregate or workers == 1
        return every[of]

    def aggregators_samples(self) -> Ints:
        """Returns all B^a to consider, rising, 0 first. Raises RequestError as `limited`."""
        profile = self.whole.profile
        lines = [training(profile, size) for _, size in limited(profile)]
        least = min(lines, key=lambda one: one.fixed / one.each)
        most = self.whole.batch_size
        return np.array([0, *batches(least, most, rate=self.rate, step=self.step)])

    def others_samples(self) -> Ints:
        """Returns all B^n to consider, rising."""
        found = [int(self.aggregators_samples()[1])]
        while (one := found[-1] + max(1, int(_APART * found[-1]))) <= self.whole.batch_size:
            found.append(one)
        return np.array(found)


def near_hybrid(problem: HybridProblem, slack: float, most: int) -> list[Point[KReducePlan]]:
    """Returns the plans that are nearest to the front, by the distance that `Front.near` has.

    Of plans that differ only in B^n, and whose seconds and dollars agree within 1%, only the
    nearest is returned.

    Args:
        problem: of the job.
        slack: relative error of the closed forms.
        most: number of plans to return.

    Raises:
        RequestError: nothing fits; with what is missing.
    """
    if problem.whole.profile.host is not None:
        slack = max(slack, _HOSTED_ERROR)
    search = _Search(problem, Known(slack))
    rows = search.rows()
    on = undominated(rows.s, rows.usd)
    front = np.stack([rows.s[on], rows.usd[on]], axis=1)
    among = near(rows.s, rows.usd, front, slack, len(rows.s))
    cells = np.rint(np.log([rows.s[among], rows.usd[among]]) / _APART).astype(np.int64)
    alike = [rows.size, rows.workers, rows.aggregators, rows.own]
    keys = np.stack([*(one[among] for one in alike), *cells])
    first = np.sort(np.unique(keys, axis=1, return_index=True)[1])
    return [search.point(rows, at) for at in among[first][:most].tolist()]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Plans, a column each, (N,): index of the memory size, W, K, B^a, B^n, seconds, dollars."""

    size: Ints
    workers: Ints
    aggregators: Ints
    own: Ints
    others: Ints
    s: Array
    usd: Array

    def only(self, which: NDArray[np.bool_] | Ints) -> _Rows:
        """Returns those."""
        return _Rows(*(getattr(self, one.name)[which] for one in fields(self)))

    @classmethod
    def joined(cls, several: Sequence[_Rows]) -> _Rows:
        """Returns all of them."""
        return cls(
            *(np.concatenate([getattr(one, of.name) for one in several]) for of in fields(cls))
        )


@dataclass(frozen=True, slots=True)
class _Fits:
    """Whether aggregators hold their samples, (K, J), and the most samples that others do."""

    own_KJ: NDArray[np.bool_]
    others: int


class _Search:
    """The search for all plans that no plan found so far beats by more than the slack."""

    def __init__(self, problem: HybridProblem, known: Known) -> None:
        self._problem, self._known = problem, known
        p = problem.whole
        self._sizes = allowed(p.profile, p.vcpus_at_once, p.allowed[0])
        self._own, self._others = problem.aggregators_samples(), problem.others_samples()
        self._block = np.array([block_samples(batch) for batch in range(p.batch_size + 1)])
        self._whole = Peaks(p.profile, self._run)
        # Memory of a run that ends before a checkpoint is due: that of one sample does.
        self._short = Peaks(replace(p.profile, samples=1), self._run)
        self._sums: dict[object, tuple[SumTable, dict[int, HybridSums]]] = {}

    def rows(self) -> _Rows:
        """Returns them. Raises RequestError if nothing fits."""
        p, found = self._problem.whole, []
        for number, (memory_mib, size) in enumerate(self._sizes):
            most = most_at_once(size, p.allowed[-1], p.vcpus_at_once)
            held = {True: 0, False: 0}
            least_s, least_usd = self._least(memory_mib, size)
            for at, workers in enumerate(p.allowed):
                k_K = self._problem.aggregators_of(workers)
                if workers > most or not len(k_K):
                    continue
                if not self._known.beats(float(least_s[at]), float(least_usd[at])):
                    found.append(self._of(number, memory_mib, size, workers, k_K, held))
        every = [one for one in found if len(one.s)]
        if not every:
            raise self._nothing()
        rows = _Rows.joined(every)
        return rows.only(~self._known.beat(rows.s, rows.usd))

    def _least(self, memory_mib: int, size: SizeProfile) -> tuple[Array, Array]:
        """Seconds and dollars that each number of workers takes at least: each computes its part of
        all samples, at the fastest worker's pace, and the slower round is no shorter than their
        mean; or its sums, and what surrounds passes at full speed."""
        p, n = self._problem.whole, np.array(self._problem.whole.allowed)
        kind, steps = p.profile.kind_of(size), -(-p.profile.samples // p.batch_size)
        summed_bytes = p.summed_bytes if p.method.compress == "none" else 0.0
        summed_s = steps * least_sum_s(p.profile, size, cast("int", n), summed_bytes)
        fastest = np.array([factor(size.jitter, 0, many, 1) for many in n.tolist()])
        computed_s = fastest * p.profile.samples * training(p.profile, size).each / n
        ending_s = steps * ending_of(p.profile, size)
        saved = Bursts.of(size, cast("int", n), p.profile.shared_cores).saved
        trained_s = np.maximum(computed_s + ending_s, summed_s + (1 - saved) * ending_s)
        seconds = size.init_s.value + p.epochs * trained_s
        usd_per_s = p.platform.usd_per_s(memory_mib, kind.gpu_share, kind.vcpus)
        return seconds, n * usd_per_s * seconds

    def _sums_of(self, size: SizeProfile, workers: int) -> tuple[SumTable, HybridSums]:
        """Of functions of a size; other sizes may have links that are alike."""
        p = self._problem.whole
        among = (workers,) if p.profile.decline else p.allowed
        key = link_of(size), among
        if key not in self._sums:
            table = SumTable(p, size, among)
            self._sums[key] = table, dict(HybridSums.by_workers(table, among))
        table, found = self._sums[key]
        return table, found[workers]

    def _of(
        self,
        number: int,
        memory_mib: int,
        size: SizeProfile,
        workers: int,
        k_K: Ints,
        held: dict[bool, int],
    ) -> _Rows:
        """Plans of so many functions of a size, which is one of `_sizes`.

        held: the most samples that others of fewer workers hold, of short runs and of all.
        """
        p, n = self._problem.whole, workers
        size = declined(size, p.profile.decline, n)
        size = contended(size, (n - 1) * size.speed)
        table, hybrid = self._sums_of(size, n)
        sums = table.of([n])
        rounds = HybridRounds.of(p.profile, size, table, hybrid, self._own, self._others)
        short, whole = (
            self._fitting(size, memory_mib, n, k_K, sums.held_bytes[k_K - 1], held, short=short)
            for short in (True, False)
        )
        row, j, at = self._numbers(n, k_K, short)
        k = k_K[row] - 1
        own, others = self._own[j], np.where(k + 1 < n, self._others[at], 0)
        batch = (k + 1) * own + (n - 1 - k) * others
        samples, validation_samples = p.profile.samples, p.profile.validation_samples
        steps = -(-samples // batch)
        trained_s = rounds.epoch_s(k, j, at, steps, (samples - (steps - 1) * batch) / batch)
        validated = validations(p.epochs, p.validate_every)
        in_one = replace(size, forward=(sum(size.forward, NOTHING),))
        block = cast("int", self._block[batch])
        validated_s = blocks_s(in_one, validation_samples, block, n)
        training_s = p.epochs * trained_s + validated * (validated_s + sums.measured_s[k])
        of_run = lived(p, size, n, cast("float", training_s))
        run_s = cast("Array", of_run[0])
        usd = usd_beside_sums(p, memory_mib, size, n, *of_run, cast("int", steps)) + (
            p.epochs * steps * hybrid.step_usd[k] + validated * sums.measured_usd[k]
        )
        due = logged_steps(n, ITEM_BYTES * table.flat.length)
        is_short = (run_s <= CHECKPOINT_EVERY_S) & (p.epochs * steps <= due)
        fits = is_short | (whole.own_KJ[row, j] & (others <= whole.others))
        kept = np.flatnonzero(fits & ~self._known.beat(run_s, usd))
        self._known.add(run_s[kept], usd[kept])
        every = _Rows(np.full(len(k), number), np.full(len(k), n), k + 1, own, others, run_s, usd)
        return every.only(kept)

    def _numbers(self, workers: int, k_K: Ints, fits: _Fits) -> tuple[Ints, Ints, Ints]:
        """Which K, B^a and B^n each plan has within the limits; where nobody lags, any B^n."""
        k_K1, own_J, most = k_K[:, None], self._own, self._problem.whole.batch_size
        lags_K1 = k_K1 < workers
        left_KJ = (most - k_K1 * own_J) // np.maximum(1, workers - k_K1)
        first_J = np.searchsorted(self._others, own_J)
        last_KJ = np.searchsorted(self._others, np.minimum(left_KJ, fits.others), side="right")
        alone_KJ = (own_J > 0) & (left_KJ >= 0)
        count_KJ = np.where(lags_K1, np.maximum(0, last_KJ - first_J), alone_KJ) * fits.own_KJ
        k, j = np.nonzero(count_KJ)
        count = count_KJ[k, j]
        row = np.repeat(np.arange(len(k)), count)
        nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        at = np.where(lags_K1[k[row], 0], first_J[j[row]] + nth, 0)
        return k[row], j[row], at

    def _fitting(
        self,
        size: SizeProfile,
        memory_mib: int,
        workers: int,
        k_K: Ints,
        held_K: Array,
        held: dict[bool, int],
        *,
        short: bool,
    ) -> _Fits:
        peaks = self._short if short else self._whole

        def fits(samples: int, held: Array | float, lags: bool) -> NDArray[np.bool_]:
            of = workers, samples, int(lags)
            needs = peaks.needs_mib(size, *of, held_bytes=cast("float", held), short=short)
            return np.asarray(needs <= memory_mib) & peaks.holds_on_gpu(size, *of)

        owns_KJ = np.zeros((len(k_K), len(self._own)), dtype=bool)
        most = self._problem.whole.batch_size // workers
        for at, samples in enumerate(self._own[self._own <= most].tolist()):
            for lags in set((k_K < workers).tolist()):
                if samples or lags:
                    which = (k_K < workers) == lags
                    owns_KJ[which, at] = fits(samples, held_K[which], lags)
            if samples and not owns_KJ[:, at].any():
                break
        # The more workers share checkpoints, the less each holds of them.
        low, high = held[short], int(self._others[-1])
        first = high
        while low < high and k_K[0] < workers:  # the last of low to high that fits
            if fits(first, 0.0, True):
                low = first
            else:
                high = first - 1
            first = low + 1 if low == held[short] else (low + high + 1) // 2
        held[short] = low
        return _Fits(owns_KJ, low)

    def _run(self, memory_mib: int, workers: int, samples: int, lags: int) -> Configuration:
        """Whose last kind of workers has so many samples; of a batch that is no larger than a
        plan's, so that no block of a validation is."""
        p = self._problem.whole
        c = p.configuration(
            workers,
            memory_mib=(memory_mib,),
            collective=K_REDUCE,
            aggregators=workers,
            lifetime_s=p.platform.lifetime_max_s,
        )
        if not lags:
            compress = c.compress if workers > 1 else "none"
            return replace(c, sync="bsp", batch_size=workers * samples, compress=compress)
        if not samples:
            return replace(c, shares=(1,) + (0,) * (workers - 1), batch_size=1)
        shares = (0,) * (workers - 1) + (1,)
        return replace(c, aggregators=workers - 1, shares=shares, batch_size=samples)

    def _nothing(self) -> RequestError:
        p, least = self._problem.whole, int(self._others[0])
        few = next((n for n in p.allowed if len(self._problem.aggregators_of(n))), None)
        if few is None:
            k = min(self._problem.aggregators or (1,))
            return RequestError(
                f"{k} aggregators and another are more than {p.allowed[-1]} functions: allow "
                f"{k + 1} functions, or fewer aggregators"
            )
        memory_mib, size = self._sizes[-1]
        needs_mib = self._short.needs_mib(
            size, few, least, int(few > 1), held_bytes=0.0, short=True
        )
        has = "" if p.profile.gpu is None else f", or its share of a {p.profile.gpu.type}"
        return RequestError(
            f"the model of {p.profile.job} fits nowhere: with {least} samples a function needs "
            f"{needs_mib:.0f} MiB, and the largest has {memory_mib}{has}; or {few} functions with "
            f"as many are more than a batch of {p.batch_size}: allow smaller batches, larger "
            "functions, or cut it into stages"
        )

    def point(self, rows: _Rows, at: int) -> Point[KReducePlan]:
        """Returns a plan, and what it is at the limit of: more of it might allow a better one."""
        p = self._problem.whole
        memory_mib, size = self._sizes[int(rows.size[at])]
        plan = KReducePlan(
            workers=int(rows.workers[at]),
            memory_mib=memory_mib,
            aggregators=int(rows.aggregators[at]),
            aggregators_samples=int(rows.own[at]),
            others_samples=int(rows.others[at]),
            has=p.profile.kind_of(size),
        )
        found = []
        if plan.workers == p.allowed[-1]:
            found.append(f"{plan.workers} functions at once")
        if memory_mib == max(one for one, _ in limited(p.profile)):
            found.append(f"functions of {memory_mib} MiB")
        if plan.global_samples + max(1, plan.workers - plan.aggregators) > p.batch_size:
            found.append(f"a global batch of {p.batch_size}")
        return Point(float(rows.s[at]), float(rows.usd[at]), plan, tuple(found))
