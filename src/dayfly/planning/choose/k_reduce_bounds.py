"""Which candidates of K-REDUCE may be on the front: bounds, and batches cut and cut again.

A box has a size M, a pair (W, K), and all B^a from a first to a last one. For all that is in it,
with x = 1/B^g as in `k_reduce`, t' and c' of a round without training, and A = K B^a:

    B^n      B^a <= B^n, so B^n/B^g >= 1/W; and B^n <= B_M, and equation 16's cap of the last B^a;
             beside B^a = 0 at least the least B^a above it, so none of a box may be left
    x        >= 1/G, G the limit of B^g, or what the last B^a and the most B^n make
    T_step   >= T_train(first B^a) + t',  of aggregators
             >= T_train(B^g/W) + c',      of others, as B^n >= B^g/W; of aggregators if K = W

    T  >=  E (T_start + (S_m + S_d/W)/tp_down + D/G max{ T_train(first B^a) + t',
                                                         T_train(G/W) + c' })

as T_train is a line that is not below 0, so that T_train(B^g/W)/B^g falls with B^g. The price's
bound follows, as it has T and x alone. Where a known plan is no slower and no dearer than both
bounds, nothing in the box is better. Of boxes whose bounds no other's dominate some plans are made,
to know more; and before all, those of a few sizes and pairs down to the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dayfly.planning.choose.arrays import Array, Ints, dominated, nearest, on_arrays, undominated
from dayfly.planning.choose.formulas import functions_usd, global_batch, loading_s, run_s
from dayfly.planning.choose.k_reduce_problem import Rounds, Tables


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds and dollars of runs.

    Attributes:
        size: number of the memory size.
        pair: of the grid.
        samples: B^a.
        others: B^n; B^a where all are aggregators.
    """

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
    def joined(several: list[Taken]) -> Taken:
        """All of them."""
        size, pair, samples, others, seconds, usd = (
            np.concatenate([getattr(one, name.name) for one in several]) for name in fields(Taken)
        )
        return Taken(size, pair, samples, others, seconds, usd)

    @staticmethod
    def front(several: list[Taken]) -> Taken:
        """Those of all that nothing dominates; of equal ones the first."""
        whole = Taken.joined(several)
        return whole.only(undominated(whole.seconds, whole.usd))

    def near(self, slack: float, most: int) -> Taken:
        """Those than which none is better by more than a model's error, as `Front.near` has it;
        each once."""
        keys = np.stack([self.size, self.pair, self.samples, self.others])
        each = self.only(np.sort(np.unique(keys, axis=1, return_index=True)[1]))
        return each.only(nearest(each.seconds, each.usd, slack, most))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Functions by rounds, with these samples B^a of an aggregator; all (N,).

    Attributes:
        train_s: of a step for an aggregator.
    """

    rounds: Rounds
    samples: Ints
    train_s: Array

    @classmethod
    def of(cls, rounds: Rounds, samples: Ints) -> Candidates:
        """Of these."""
        return cls(rounds, samples, rounds.train_s(samples))

    def ends(self) -> tuple[Ints, Ints, Ints, Ints]:
        """B^n at the ends of both pieces: the least and the balance, the next one and the cap."""
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
        cap += (cap < most) & (rounds.train_s(cap + 1) <= limit_s)
        cap -= rounds.train_s(cap) > limit_s
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
            p.size_bytes, p.data_bytes, others, global_, rounds.loading_bytes_per_s
        )
        other_s = rounds.train_s(others) + rounds.other_s
        step_s, steps = np.maximum(self.train_s + rounds.aggregator_s, other_s), p.samples / global_
        # Training and messages of both roles are in the step together.
        seconds = on_arrays(run_s)(load_s, step_s, 0.0, steps, p.epochs)
        usd = on_arrays(functions_usd)(sizes.usd_per_s[size], seconds, 1.0, workers)
        usd += grid.kept_usd_per_s[pair] * seconds
        all_usd = p.usd_per_invocation * workers + p.data_usd
        usd += p.epochs * (grid.step_usd[pair] * steps + all_usd)
        return Taken(size, pair, self.samples, others, seconds, usd)

    def _within(self, limit_s: Array, most: Ints) -> Ints:
        """Samples that are trained in so long, but for rounding, and `most` at most."""
        sizes, at = self.rounds.tables.sizes, self.rounds.size
        samples = np.floor((limit_s - sizes.fixed_s[at]) / sizes.each_s[at])
        return np.minimum(samples, most).astype(np.int64)


#: Boxes that are bounded at once: their arrays stay in a core's cache.
_AT_ONCE = 2**15
#: A box is cut into so many.
_PARTS = 4
#: Sizes and pairs that are looked at first, of all.
_SAMPLE = (8, 256)
#: By which part bounds are less than they are computed, as both sides are rounded.
_SLACK = 1e-9
_NO, _NONE = np.empty(0, dtype=np.int64), np.empty(0)
_NOTHING = Taken(_NO, _NO, _NO, _NO, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Of sizes and pairs, by index; first and last of the batches, too. (N,), or what broadcasts to
    one shape; nothing is in a box whose last is before its first."""

    size: Ints
    pair: Ints
    first: Ints
    last: Ints

    def only(self, which: NDArray[np.bool_]) -> _Boxes:
        """Those, (N,)."""
        at = np.nonzero(which)
        size, pair, first, last = (
            np.broadcast_to(one, which.shape)[at]
            for one in (self.size, self.pair, self.first, self.last)
        )
        return _Boxes(size, pair, first, last)

    def parts(self) -> _Boxes:
        """Each cut into some, if it has as many batches."""
        count = self.last - self.first + 1
        parts = np.minimum(count, _PARTS)
        at = np.repeat(np.arange(len(count)), parts)
        number = np.arange(len(at)) - np.repeat(np.cumsum(parts) - parts, parts)
        count, parts, first = count[at], parts[at], self.first[at]
        return _Boxes(
            self.size[at],
            self.pair[at],
            first + number * count // parts,
            first + (number + 1) * count // parts - 1,
        )

    def turns(self) -> Iterator[_Boxes]:
        """(N,), as many as become `_AT_ONCE` parts."""
        each = _AT_ONCE // _PARTS
        for start in range(0, len(self.size), each):
            at = slice(start, start + each)
            yield _Boxes(self.size[at], self.pair[at], self.first[at], self.last[at])

    @staticmethod
    def joined(several: list[_Boxes]) -> _Boxes:
        """All of them."""
        return _Boxes(
            np.concatenate([one.size for one in several]),
            np.concatenate([one.pair for one in several]),
            np.concatenate([one.first for one in several]),
            np.concatenate([one.last for one in several]),
        )


def open_candidates(tables: Tables, slack: float = 0.0) -> tuple[Candidates, Taken] | None:
    """Those that may be better than the plans that were found on the way, which come with them.

    By rising size, then pair. None: no size may have any workers and batch.

    Args:
        tables: of the problem.
        slack: by how much both goals may be worse than those of a plan that was found.
    """
    batches = np.array(sorted(set(tables.problem.aggregators_samples)))
    every = _every(tables, batches)
    if (every.last < 0).all():
        return None
    # A few of them all first, to know something.
    rows, columns = (
        slice(None, None, -(-count // most))
        for count, most in zip(every.last.shape, _SAMPLE, strict=True)
    )
    few = _Boxes(
        every.size[rows], every.pair[columns], every.first[columns], every.last[rows, columns]
    )
    boxes, known = _open(tables, few, batches, _NOTHING, slack)
    _, known = _narrowed(tables, boxes, batches, known, slack)
    rows_at_once = max(1, _AT_ONCE // len(every.pair))
    found = []
    for start in range(0, len(every.size), rows_at_once):
        rows = slice(start, start + rows_at_once)
        some = _Boxes(every.size[rows], every.pair, every.first, every.last[rows])
        some, known = _open(tables, some, batches, known, slack)
        found.append(some)
    boxes, known = _narrowed(tables, _Boxes.joined(found), batches, known, slack)
    rounds = Rounds.of(tables, boxes.size, boxes.pair)
    return Candidates.of(rounds, batches[boxes.first]), known


def _narrowed(
    tables: Tables, boxes: _Boxes, batches: Ints, known: Taken, slack: float
) -> tuple[_Boxes, Taken]:
    """Boxes of one batch each, and what is known then."""
    while (boxes.first < boxes.last).any():
        found = []
        for some in boxes.turns():
            kept, known = _open(tables, some.parts(), batches, known, slack)
            found.append(kept)
        boxes = _Boxes.joined(found)
    return boxes, known


def _every(tables: Tables, batches: Ints) -> _Boxes:
    """All sizes and pairs, (S, P), with all batches that both allow."""
    sizes, workers = tables.sizes, tables.grid.workers
    size = np.arange(len(sizes.most_samples))[:, None]
    held = np.searchsorted(batches, sizes.most_samples, side="right")
    within = np.searchsorted(batches, tables.problem.most_global_samples // workers, side="right")
    last = np.minimum(held[size], within) - 1
    last[(workers > sizes.most_workers[size]) | (sizes.most_samples[size] == 0)] = -1
    return _Boxes(size, np.arange(len(workers)), np.zeros_like(workers), last)


def _open(
    tables: Tables, boxes: _Boxes, batches: Ints, known: Taken, slack: float
) -> tuple[_Boxes, Taken]:
    """Boxes that are not dominated by more than the slack, and what is known then."""
    rounds = Rounds.of(tables, boxes.size, boxes.pair)
    least_s, least_usd = _bounds(rounds, batches[boxes.first], batches[boxes.last])
    open_ = (boxes.first <= boxes.last) & ~_beaten(least_s, least_usd, known, slack)
    least_s, least_usd, boxes = least_s[open_], least_usd[open_], boxes.only(open_)
    if not len(least_s):
        return boxes, known
    best = undominated(least_s, least_usd)
    promising = Rounds.of(tables, boxes.size[best], boxes.pair[best])
    made = [known]
    for end in (boxes.first, boxes.last):
        candidates = Candidates.of(promising, batches[end[best]])
        made += [candidates.taken(others) for others in candidates.ends()]
    known = Taken.front(made)
    return boxes.only(~_beaten(least_s, least_usd, known, slack)), known


def _beaten(least_s: Array, least_usd: Array, known: Taken, slack: float) -> NDArray[np.bool_]:
    within = 1 + slack
    return dominated(least_s, least_usd, within * known.seconds, within * known.usd)


def _bounds(rounds: Rounds, first: Ints, last: Ints) -> tuple[Array, Array]:
    """Seconds and dollars; see above. first, last: batches."""
    p, sizes, grid = rounds.tables.problem, rounds.tables.sizes, rounds.tables.grid
    size, workers, aggregators = rounds.size, rounds.workers, rounds.aggregators
    fixed_s, each_s = sizes.fixed_s[size], sizes.each_s[size]
    others = workers - aggregators
    most = (last + rounds.aggregated_s / each_s) * (1 + _SLACK) + _SLACK
    most = np.minimum(most, sizes.most_samples[size])
    global_ = np.minimum(aggregators * last + others * most, p.most_global_samples)
    global_ = np.maximum(global_, 1)
    other_s = np.where(others > 0, rounds.other_s, rounds.aggregator_s)
    step_s = np.maximum(
        rounds.train_s(first) + rounds.aggregator_s, fixed_s + each_s / workers * global_ + other_s
    )
    load_s = (
        sizes.start_s[size] + (p.size_bytes + p.data_bytes / workers) / rounds.loading_bytes_per_s
    )
    steps = p.samples / global_
    least_s = (load_s + step_s * steps) * (p.epochs * (1 - _SLACK))
    least_usd = (workers * sizes.usd_per_s[size] + grid.kept_usd_per_s[rounds.pair]) * least_s
    step_usd, all_usd = grid.step_usd[rounds.pair], p.usd_per_invocation * workers + p.data_usd
    least_usd += (step_usd * steps + all_usd) * (p.epochs * (1 - _SLACK))
    return least_s, least_usd
