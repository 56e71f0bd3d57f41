"""What each way to sum takes, for all numbers of workers: a table of the collectives' own costs.

    rows      algorithm, and K of k-reduce: 1 to W
    columns   buckets of a step; what a validation sums

Each figure is what `cost` of the algorithm says (`wire.collectives`). dayfly's own costs hold for
arrays, so that each is asked for all W, and K, at once. Those of others are asked one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dayfly.planning.choose.arrays import Array, Ints, on_arrays
from dayfly.planning.closed_sums import MOVED
from dayfly.planning.configuration import ITEM_BYTES, Flat
from dayfly.planning.data_parallel import averaged_of, buckets_of, flat_of, summed_numbers
from dayfly.planning.local_rounds import SumTimes
from dayfly.planning.profile import SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.summed import Summed
from dayfly.wire.collectives import COLLECTIVES, K_REDUCE, collective
from dayfly.wire.collectives.cost import AllReduce, Cost
from dayfly.wire.collectives.k_reduce import k_reduce
from dayfly.wire.collectives.virtual_cost import cost_of

if TYPE_CHECKING:
    from dayfly.planning.choose.data_parallel_problem import DataParallelProblem


def link_of(size: SizeProfile) -> object:
    """Returns what the time of a sum depends on: not on the CPU, where messages take none of it."""
    up, down = size.up, size.down
    works = up.cpu_s or down.cpu_s or up.cpu_s_per_byte or down.cpu_s_per_byte
    works = works or size.sum_cpu_s or size.reduce_s_per_byte
    return up, down, *((size.cpu_cores, size.sum_cpu_s, size.reduce_s_per_byte) if works else ())


@dataclass(frozen=True, slots=True)
class Sums:
    """Ways to sum, a row each.

    Attributes:
        workers: (rows,), that sum.
        named: algorithm, and K.
        seconds, least_s: (rows, buckets), of each bucket's sum alone, and of the time from where
            its sum may begin to the end of all, at least: alone, or without latencies and with the
            busier direction of all later ones.
        alone_s, busiest_s: (rows, buckets), of each bucket's sum without latencies, and of the
            busier direction.
        begun_s, work_s: (rows,), in which a worker begins them all, and in which its processor
            does that and handles its messages.
        step_usd: the store's.
        measured_s, measured_usd: of what a validation sums.
        held_bytes: contributions in memory, of sums under way at once.
    """

    workers: Ints
    named: Sequence[tuple[str, int | None]]
    seconds: Array
    least_s: Array
    alone_s: Array
    busiest_s: Array
    begun_s: Array
    work_s: Array
    step_usd: Array
    measured_s: Array
    measured_usd: Array
    held_bytes: Array

    def times(self, rows: Ints) -> list[SumTimes]:
        """Returns what each bucket's sum takes, of some ways, (rows,)."""
        each = (one[rows].T for one in (self.seconds, self.alone_s, self.busiest_s))
        found = cast("zip[tuple[float, float, float]]", zip(*each, strict=True))
        return [SumTimes(*one) for one in found]


class SumTable:
    """All ways to sum over one kind of link, by workers; they do not depend on memory."""

    def __init__(
        self, problem: DataParallelProblem, size: SizeProfile, workers: Sequence[int]
    ) -> None:
        p, means = problem, ChannelModel.of(problem.profile)
        self.flat: Flat = flat_of(p.profile, p.configuration(2))
        self._store, self._collectives, self._workers = p.store, p.collectives, workers
        self._link, self._at_once = means.link(size), means.at_once
        self._each = _summed(p)
        self._unique = sorted(set(self._each))
        self._of_bucket = np.array([self._unique.index(one) for one in self._each])
        lengths = np.array([one.length for one in self._unique])
        measured = np.array([summed_numbers(p.profile, p.batch_size)])
        self._lengths = ((lengths, ITEM_BYTES), (measured, 8))
        #: By algorithm and workers: of gradients, and of validations.
        self._costs: dict[tuple[str, int], tuple[Array, Array]] = {}
        self._found: dict[tuple[int, ...], Sums] = {}

    def of(self, workers: Sequence[int]) -> Sums:
        """Returns the ways in which these numbers of workers can sum, in the order of the numbers.

        A worker alone has one way, which sends nothing.
        """
        key = tuple(workers)
        if key not in self._found:
            self._found[key] = self._sums(key)
        return self._found[key]

    def _sums(self, workers: Sequence[int]) -> Sums:
        named: list[tuple[str, int | None]] = []
        numbers: list[int] = []
        gradients, measured = [], []  # of each: (figures, rows, lengths)
        for n in workers:
            for name in self._collectives if n > 1 else ("scatter-reduce",):
                ks = range(1, n + 1) if name == K_REDUCE and n > 1 else (None,)
                named += [(name, k) for k in ks]
                numbers += [n] * len(ks)
                of_gradients, of_validation = self._of(name, n)
                gradients.append(of_gradients)
                measured.append(of_validation)
        by_bucket = np.concatenate(gradients, axis=1)[:, :, self._of_bucket]
        of = dict(zip(_FIGURES, by_bucket, strict=True))
        once = dict(zip(_FIGURES, np.concatenate(measured, axis=1), strict=True))
        held = np.sort(of["memory_bytes"], axis=1)[:, ::-1][:, : self._at_once]
        later_s = np.cumsum(of["busiest_s"][:, ::-1], axis=1)[:, ::-1]
        each = np.array(numbers)
        begun_s = np.where(each > 1, self._link.begin_s * len(self._each), 0.0)
        handled_s = on_arrays(self._link.handled_s)(*(of[one].sum(axis=1) / each for one in MOVED))
        return Sums(
            each,
            named,
            of["seconds"],
            np.maximum(of["seconds"], of["carried_s"] + later_s - of["busiest_s"]),
            of["carried_s"],
            of["busiest_s"],
            begun_s,
            begun_s + handled_s,
            self.usd(of),
            once["seconds"][:, 0],
            self.usd(once),
            held.sum(axis=1),
        )

    def _of(self, name: str, workers: int) -> tuple[Array, Array]:
        """Figures of `Cost`, (figures, rows, lengths), of gradients, and of validations."""
        if (name, workers) not in self._costs:
            own = name == K_REDUCE or name in COLLECTIVES.built_in
            find = self._together if own and workers > 1 else self._one_by_one
            self._costs |= {(name, n): costs for n, costs in find(name, workers).items()}
        return self._costs[name, workers]

    def _together(self, name: str, workers: int) -> dict[int, tuple[Array, Array]]:
        """Of so many workers and more."""
        numbers = [n for n in self._workers if n >= workers]
        rows = numbers if name == K_REDUCE else [1] * len(numbers)
        few = sum(pairs <= PAIRS for pairs in accumulate(rows)) or 1
        numbers, rows = numbers[:few], rows[:few]
        n = np.repeat(numbers, rows)[:, None]
        k = np.concatenate([np.arange(1, one + 1) for one in rows])[:, None]
        how = k_reduce(cast("int", k)) if name == K_REDUCE else COLLECTIVES[name]
        assert how.cost is not None, f"{name} states its cost"
        ends = np.cumsum(rows)[:-1]
        of_gradients, of_validation = (
            np.split(_figures(how.cost(self._asked(n, lengths, itemsize)), n * lengths), ends, 1)
            for lengths, itemsize in self._lengths
        )
        return dict(zip(numbers, zip(of_gradients, of_validation, strict=True), strict=True))

    def _one_by_one(self, name: str, workers: int) -> dict[int, tuple[Array, Array]]:
        """Of so many workers."""
        how, found = collective(name, None, workers), []
        for lengths, itemsize in self._lengths:
            asked = [
                self._asked(workers, length, itemsize, at)
                for at, length in enumerate(lengths.tolist())
            ]
            each = [_figures(cost_of(name, how, one), np.zeros((1, 1))) for one in asked]
            found.append(np.concatenate(each, axis=2))
        return {workers: (found[0], found[1])}

    def _asked(
        self, members: Ints | int, lengths: Ints | int, itemsize: int, at: int | None = None
    ) -> AllReduce:
        """Of many at once, or of the one number `at`."""
        travel: dict[str, Any] = {}
        if itemsize == ITEM_BYTES:
            travel |= self._travel(members, self._unique if at is None else [self._unique[at]])
        if at is not None:
            travel = {name: int(found[0, 0]) for name, found in travel.items()}
        return AllReduce(
            members=cast("int", members),
            length=cast("int", lengths),
            link=self._link,
            itemsize=itemsize,
            **travel,
        )

    def asked(self, workers: Ints) -> AllReduce:
        """Returns the all-reduces of a step's buckets, to pass to a collective's cost.

        Args:
            workers: numbers of workers that sum, (rows, 1); costs then are (rows, buckets).
        """
        lengths = np.array([one.length for one in self._each])
        return AllReduce(
            members=cast("int", workers),
            length=cast("int", lengths),
            link=self._link,
            **self._travel(workers, self._each),  # type: ignore[arg-type]
        )

    def _travel(self, members: Ints | int, among: Sequence[Summed]) -> dict[str, NDArray[np.int64]]:
        """Bytes on their way, of contributions and of sums; empty: nothing is compressed."""
        if all(one.compress == "none" for one in self._unique):
            return {}
        return {
            "travelling_bytes": _travelling(members, among, False),
            "sum_bytes": _travelling(members, among, True),
        }

    def usd(self, costs: Mapping[str, Array]) -> Array:
        """Returns the store's dollars, of each row's sums together.

        Args:
            costs: puts, gets, bytes_up and bytes_down, (rows, sums).
        """
        store = self._store
        puts, gets, up, down = (costs[what].sum(axis=1) for what in MOVED)
        if store is None:
            return np.zeros(len(puts))
        asked = on_arrays(store.puts_usd)(puts, up) + on_arrays(store.gets_usd)(gets, down)
        return asked + on_arrays(store.transfer_usd)(up, down)


def _figures(cost: Cost, like: Array | Ints) -> Array:
    """Figures of a cost, (figures, rows, lengths). like: (rows, lengths), of that shape."""
    return np.stack([np.broadcast_to(getattr(cost, what), like.shape) for what in _FIGURES])


def _summed(p: DataParallelProblem) -> Sequence[Summed]:
    """What is summed at once: the buckets of a step, or a round's exchanges, of two workers or
    more."""
    found = averaged_of if p.method.protocol.averages else buckets_of
    return found(p.profile, p.configuration(2))


def _travelling(members: Ints | int, among: Sequence[Summed], total: bool) -> NDArray[np.int64]:
    """Bytes of each on their way, (rows, lengths)."""
    n, row = np.unique(members, return_inverse=True)
    by_members = [[one.travelling_bytes(m, total=total) for one in among] for m in n.tolist()]
    return np.array(by_members, dtype=np.int64)[row.ravel()]


#: Rows of which costs are found together.
PAIRS = 20_000
#: Of `Cost`.
_FIGURES = ("seconds", "carried_s", "busiest_s", "memory_bytes", *MOVED)
