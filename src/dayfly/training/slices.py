"""A worker's slices of the batches, fetched ahead beside the computation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from dayfly.training.order import Epochs, Indices, share
from dayfly.training.sources import Fetched, Source

#: Blocks that are fetched ahead.
_AHEAD = 2
#: Most of a block, in bytes and in steps.
BLOCK_BYTES = 2**20
_BLOCK_STEPS = 32


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a worker's slice, small enough to compute at once. last: of the slice."""

    number: int
    samples: int
    batch: Any
    last: bool


class Slices:
    """The slices of one rank, by step. Close it to end its thread.

    They are fetched in blocks of up to `block_bytes`, at most 32 steps of an epoch: to find the
    samples of one step, and to read them, costs nearly as much as for many. block_steps: of most
    blocks. end: the run's last step has the number before it, and nothing beyond is fetched; None:
    there is no end.
    """

    def __init__(
        self,
        source: Source,
        epochs: Epochs,
        rank: int,
        world_size: int,
        pieces: int,
        block_bytes: int = BLOCK_BYTES,
        end: int | None = None,
    ) -> None:
        self._end = end
        self.source = source
        self._epochs = epochs
        self._rank = rank
        self._world_size = world_size
        self._pieces = pieces
        most_bytes = source.sample_bytes * -(-epochs.batch_size // world_size)
        self.block_steps = max(1, min(_BLOCK_STEPS, block_bytes // max(1, most_bytes)))
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dayfly-data")
        self._coming: dict[range, Future[_Block]] = {}

    def pieces(self, step: int) -> Iterator[Piece]:
        """The step's slice in pieces, each made when asked for; none if the slice is empty."""
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
        first, stop = block.cuts[step - steps.start], block.cuts[step - steps.start + 1]
        for number in range(self._pieces):
            piece = share(stop - first, number, self._pieces)
            if piece:
                within = range(first + piece.start, first + piece.stop)
                epoch = self._epochs.epoch(step)
                batch = self.source.batch(block.fetched, block.indices, within, epoch)
                # A slice's last piece has a sample, if any piece has (see `share`).
                yield Piece(number, len(piece), batch, last=number == self._pieces - 1)

    def close(self) -> None:
        """End the fetching thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _block(self, step: int) -> range:
        """The steps that are fetched together with this one, all of its epoch."""
        epoch = self._epochs.epoch(step) * self._epochs.steps
        first = step - (step - epoch) % self.block_steps
        return range(first, min(first + self.block_steps, epoch + self._epochs.steps))

    def _fetch(self, steps: range) -> _Block:
        slices = self._epochs.slices(steps, self._rank, self._world_size)
        indices = np.concatenate(slices)
        cuts = [0, *accumulate(len(one) for one in slices)]
        return _Block(indices, cuts, self.source.fetch(indices))


@dataclass(frozen=True, slots=True)
class _Block:
    """Slices of several steps: that of the n-th is `indices[cuts[n]:cuts[n + 1]]`."""

    indices: Indices
    cuts: list[int]
    fetched: Fetched
