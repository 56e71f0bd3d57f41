"""The slices of one rank, step by step: fetched ahead in blocks, made into batches when needed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from dayfly.training.decoders import Decoders
from dayfly.training.order import Epochs, Indices, share
from dayfly.training.read_ahead import ReadAhead
from dayfly.training.sources import DatasetSource, Fetched, Source
from dayfly.wire.leaves import leaves_of

#: Blocks that are fetched ahead.
_AHEAD = 2
#: Most of a block, in bytes and in steps.
BLOCK_BYTES = 2**20
_BLOCK_STEPS = 32


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a leaf, small enough to compute at once.

    Attributes:
        last: of the leaf.
    """

    number: int
    samples: int
    batch: Any
    last: bool


class Slices:
    """The slices of one rank, by step. Close it to end its thread and processes.

    They are fetched in blocks of up to `block_bytes`, at most 32 steps of an epoch: to find the
    samples of one step, and to read them, costs nearly as much as for many. block_steps: of most
    blocks.

    Args:
        end: the run's last step has the number before it, and nothing beyond is fetched; None:
            there is no end.
        virtual_workers: leaves of a batch, of which a rank has some in a row; None: there are as
            many as ranks. leaves: the rank's.
        order: the rank's leaves as they are asked for in a step; empty: as they are numbered.
        weights: of the ranks' slices; empty: they are of one size (see `batches.share`).
        decoders: processes that make the batches, ahead of use; 0: the caller does, but for
            samples of a Dataset that are read while it waits (see `read_ahead`).
    """

    def __init__(
        self,
        source: Source,
        epochs: Epochs,
        rank: int,
        world_size: int,
        pieces: int,
        virtual_workers: int | None = None,
        *,
        order: tuple[int, ...] = (),
        weights: tuple[int, ...] = (),
        block_bytes: int = BLOCK_BYTES,
        end: int | None = None,
        decoders: int = 0,
    ) -> None:
        self._end = end
        self.source = source
        self._epochs = epochs
        self._of = virtual_workers or world_size
        self._weights = weights
        self.leaves = leaves_of(rank, world_size, self._of)
        self._order = order or tuple(self.leaves)
        self._turn = {leaf: turn for turn, leaf in enumerate(self._order)}
        self._pieces = pieces
        self._decoders: Decoders | ReadAhead | None = None
        if decoders:
            self._decoders = Decoders(source, decoders)
        elif type(source) is DatasetSource:
            self._decoders = ReadAhead(source, 1 + pieces * len(self.leaves))
        own, whole = (weights[rank], sum(weights)) if weights else (1, world_size)
        most_bytes = source.sample_bytes * -(-epochs.largest * own // whole)
        self.block_steps = max(1, min(_BLOCK_STEPS, block_bytes // max(1, most_bytes)))
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dayfly-data")
        self._coming: dict[range, Future[_Block]] = {}

    def pieces(self, step: int, leaf: int | None = None) -> Iterator[Piece]:
        """A leaf of the step in pieces, each made when asked for; none if it is empty.

        Args:
            step: number of the step.
            leaf: one of `leaves`; None: the first, which is all of a slice that is one.
        """
        steps = self._block(step)
        self._coming = {of: block for of, block in self._coming.items() if of.start >= steps.start}
        wanted = steps
        for ahead in range(1 + _AHEAD):
            if ahead and self._end is not None and wanted.start >= self._end:
                break
            if wanted not in self._coming:
                self._coming[wanted] = self._pool.submit(self._fetch, wanted)
            wanted = self._block(wanted.stop)
        block = self._coming[steps].result()
        leaf = self.leaves.start if leaf is None else leaf
        for number in range(self._pieces):
            within = self._within(block, step, leaf, number)
            if within:
                epoch = self._epochs.epoch(step)
                if self._decoders is None:
                    samples = self.source.batch(block.fetched, block.indices, within, epoch)
                else:
                    key = step, self._turn[leaf], number
                    self._ask(key, self._decoders)
                    samples = self._decoders.take(key)
                # A leaf's last piece has a sample, if any piece has (see `share`).
                yield Piece(number, len(within), samples, last=number == self._pieces - 1)

    def lent(self) -> AbstractContextManager[None]:
        """Lets samples be read ahead while the caller waits for other workers inside it."""
        ahead = self._decoders
        return ahead.lent() if isinstance(ahead, ReadAhead) else nullcontext()

    def at_work(self) -> AbstractContextManager[None]:
        """Inside `lent`, while the caller works on what it waited for, nothing is read."""
        ahead = self._decoders
        return ahead.at_work() if isinstance(ahead, ReadAhead) else nullcontext()

    def _ask(self, key: tuple[int, int, int], decoders: Decoders | ReadAhead) -> None:
        """Have a piece decoded, and those after it, as far as their samples are here.

        Args:
            key: step, the leaf's turn in it, and number of the piece.
            decoders: make it.
        """
        decoders.forget(key)
        step, turn, number = key
        for _ in range(decoders.ahead):
            coming = self._coming.get(self._block(step))
            if coming is None or not coming.done() or coming.exception() is not None:
                return
            block = coming.result()
            within = self._within(block, step, self._order[turn], number)
            if within:
                indices = block.indices[within.start : within.stop]
                part = self.source.part(block.fetched, within)
                decoders.ask((step, turn, number), part, indices, self._epochs.epoch(step))
            number += 1
            if number == self._pieces:
                turn, number = turn + 1, 0
            if turn == len(self._order):
                step, turn = step + 1, 0
            if step == self._end:
                return

    def _within(self, block: _Block, step: int, leaf: int, number: int) -> range:
        """Returns the positions of a leaf's piece in a block's indices; may be empty."""
        batch = len(self._epochs.batch(step))
        own, before = (
            share(batch, one, self._of, self._weights) for one in (leaf, self.leaves.start)
        )
        first = block.cuts[step - self._block(step).start] + own.start - before.start
        piece = share(len(own), number, self._pieces)
        return range(first + piece.start, first + piece.stop)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the processes that make batches."""
        return 0.0 if self._decoders is None else self._decoders.cpu_s

    def close(self) -> None:
        """End the fetching thread, and the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._decoders is not None:
            self._decoders.close()

    def _block(self, step: int) -> range:
        """The steps that are fetched together with this one, all of its epoch."""
        epoch = self._epochs.epoch(step)
        begin, end = self._epochs.first(epoch), self._epochs.first(epoch + 1)
        first = step - (step - begin) % self.block_steps
        return range(first, min(first + self.block_steps, end))

    def _fetch(self, steps: range) -> _Block:
        source, of = self.source, self._of
        first, count = self.leaves.start, len(self.leaves)
        slices = self._epochs.slices(
            steps,
            first,
            of,
            count,
            weights=self._weights,
            in_order=source.in_order,
            by_shard=source.by_shard,
        )
        indices = np.concatenate(slices)
        cuts = [0, *accumulate(len(one) for one in slices)]
        return _Block(indices, cuts, self.source.fetch(indices))


@dataclass(frozen=True, slots=True)
class _Block:
    """Slices of several steps: that of the n-th is `indices[cuts[n]:cuts[n + 1]]`."""

    indices: Indices
    cuts: list[int]
    fetched: Fetched
