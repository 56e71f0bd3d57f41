"""What each way to sum takes, for all numbers of workers: a table of the collectives' own costs.

    rows      algorithm, and K of k-reduce: 1 to W
    columns   buckets of a step; what a validation sums

Each figure is what `cost` of the algorithm says (`wire.collectives`). K-REDUCE has by far the most
rows, and its cost holds for arrays, so that all of W and K are asked for at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import numpy as np

from dayfly.catalogue.store import StoreFacts
from dayfly.planning.choose.arrays import Array, Ints, on_arrays
from dayfly.planning.configuration import ITEM_BYTES, Flat, flat
from dayfly.planning.data_parallel import TAIL, summed_numbers
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.collectives import K_REDUCE, collective
from dayfly.wire.collectives.cost import AllReduce
from dayfly.wire.collectives.k_reduce import reduce_cost
from dayfly.wire.collectives.virtual_cost import cost_of


def link_of(size: SizeProfile) -> object:
    """Returns what the time of a sum depends on: not on the CPU, where messages take none of it."""
    up, down = size.up, size.down
    works = up.cpu_s or down.cpu_s or up.cpu_s_per_byte or down.cpu_s_per_byte
    works = works or size.sum_cpu_s or size.reduce_s_per_byte
    return up, down, *((size.speed, size.sum_cpu_s, size.reduce_s_per_byte) if works else ())


@dataclass(frozen=True, slots=True)
class Sums:
    """Ways to sum of so many workers, a row each.

    Attributes:
        named: algorithm, and K.
        seconds, carried_s: (rows, buckets), of each bucket's sum alone, and of it and all later
            ones without latencies.
        step_usd: the store's.
        measured_s, measured_usd: of what a validation sums.
        held_bytes: contributions in memory, of sums under way at once.
    """

    named: Sequence[tuple[str, int | None]]
    seconds: Array
    carried_s: Array
    step_usd: Array
    measured_s: Array
    measured_usd: Array
    held_bytes: Array


class SumTable:
    """All ways to sum over one kind of link, by workers; they do not depend on memory."""

    def __init__(
        self,
        profile: Profile,
        size: SizeProfile,
        store: StoreFacts | None,
        collectives: Sequence[str],
        workers: Sequence[int],
        batch_size: int,
    ) -> None:
        self.flat: Flat = flat(profile.layers, tail=TAIL, listed=profile.listed)
        self._store, self._collectives, self._workers = store, collectives, workers
        means = ChannelModel.of(profile)
        self._link, self._at_once = means.link(size), means.at_once
        self._lengths, self._of_bucket = np.unique(self.flat.buckets, return_inverse=True)
        self._measured = np.array([summed_numbers(profile, batch_size)])
        self._k_reduce: dict[int, list[dict[str, Array]]] = {}
        self._found: dict[int, Sums] = {}

    def of(self, workers: int) -> Sums:
        """Those of so many workers; a lone one sums nothing."""
        if workers not in self._found:
            self._found[workers] = self._sums(workers)
        return self._found[workers]

    def _sums(self, workers: int) -> Sums:
        names = self._collectives if workers > 1 else ("scatter-reduce",)
        named: list[tuple[str, int | None]] = []
        gradients, measured = [], []
        for name in names:
            if name == K_REDUCE:
                named += [(name, k) for k in range(1, workers + 1)]
                gradients.append(self._of_k_reduce(workers, 0))
                measured.append(self._of_k_reduce(workers, 1))
                continue
            named.append((name, None))
            gradients.append(self._of(name, workers, self._lengths))
            measured.append(self._of(name, workers, self._measured, itemsize=8))
        # (rows, buckets) of each figure.
        by_length = {what: np.concatenate([one[what] for one in gradients]) for what in _FIGURES}
        of = {what: by_length[what][:, self._of_bucket] for what in _FIGURES}
        once = {what: np.concatenate([one[what] for one in measured]) for what in _FIGURES}
        held = np.sort(of["memory_bytes"], axis=1)[:, ::-1][:, : self._at_once]
        return Sums(
            named,
            of["seconds"],
            np.cumsum(of["carried_s"][:, ::-1], axis=1)[:, ::-1],
            self._usd(of),
            once["seconds"][:, 0],
            self._usd(once),
            held.sum(axis=1),
        )

    def _of(
        self, name: str, workers: int, lengths: Ints, itemsize: int = ITEM_BYTES
    ) -> dict[str, Array]:
        """Each figure of `Cost`, (1, lengths)."""
        how = collective(name, None, workers)
        each = [
            cost_of(name, how, self._asked(workers, length, itemsize))
            for length in lengths.tolist()
        ]
        return {what: np.array([[getattr(one, what) for one in each]]) for what in _FIGURES}

    def _of_k_reduce(self, workers: int, which: int) -> dict[str, Array]:
        """The same of each K, (K, lengths). which: 0 of gradients, 1 of validations."""
        if workers not in self._k_reduce:
            # Of many numbers of workers together, as their cost holds for arrays.
            numbers = [n for n in self._workers if n >= workers]
            few = sum(pairs <= _PAIRS for pairs in accumulate(numbers)) or 1
            numbers = numbers[:few]
            n = np.repeat(numbers, numbers)[:, None]
            k = np.concatenate([np.arange(1, one + 1) for one in numbers])[:, None]
            ends = np.cumsum(numbers)[:-1]
            both = []
            for lengths, itemsize in ((self._lengths, ITEM_BYTES), (self._measured, 8)):
                asked = self._asked(cast("int", n), cast("int", lengths), itemsize)
                cost = reduce_cost(asked, aggregators=cast("int", k))
                shape = len(k), len(lengths)
                figures = {w: np.broadcast_to(getattr(cost, w), shape) for w in _FIGURES}
                both.append({what: np.split(one, ends) for what, one in figures.items()})
            for at, one in enumerate(numbers):
                self._k_reduce[one] = [{what: rows[at] for what, rows in of.items()} for of in both]
        return self._k_reduce[workers][which]

    def _asked(self, members: int, length: int, itemsize: int) -> AllReduce:
        return AllReduce(members=members, length=length, link=self._link, itemsize=itemsize)

    def _usd(self, costs: Mapping[str, Array]) -> Array:
        """The store's, of each row's sums together."""
        store = self._store
        puts, gets, up, down = (
            costs[what].sum(axis=1) for what in ("puts", "gets", "bytes_up", "bytes_down")
        )
        if store is None:
            return np.zeros(len(puts))
        asked = on_arrays(store.puts_usd)(puts, up) + on_arrays(store.gets_usd)(gets, down)
        return asked + on_arrays(store.transfer_usd)(up, down)


#: Numbers of workers, each with all K, of which costs are found together.
_PAIRS = 20_000
#: Of `Cost`.
_FIGURES = ("seconds", "carried_s", "memory_bytes", "puts", "gets", "bytes_up", "bytes_down")
