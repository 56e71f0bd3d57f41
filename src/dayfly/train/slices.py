"""A worker's slices of the batches, fetched ahead beside the computation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from dayfly.train.order import Epochs, Indices, share
from dayfly.train.sources import Fetched, Source

#: Slices that are fetched ahead.
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a worker's slice, small enough to compute at once. last: of the slice."""

    number: int
    samples: int
    batch: Any
    last: bool


class Slices:
    """The slices of one rank, by step. Close it to end its thread."""

    def __init__(
        self, source: Source, epochs: Epochs, rank: int, world_size: int, pieces: int
    ) -> None:
        self._source = source
        self._epochs = epochs
        self._rank = rank
        self._world_size = world_size
        self._pieces = pieces
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dayfly-data")
        self._coming: dict[int, tuple[Indices, Future[Fetched]]] = {}

    def pieces(self, step: int) -> Iterator[Piece]:
        """The step's slice in pieces, each made when asked for; none if the slice is empty."""
        self._coming = {at: coming for at, coming in self._coming.items() if at >= step}
        for at in range(step, step + 1 + _AHEAD):
            if at not in self._coming:
                indices = self._epochs.indices(at, self._rank, self._world_size)
                self._coming[at] = indices, self._pool.submit(self._source.fetch, indices)
        indices, future = self._coming[step]
        fetched = future.result()
        for number in range(self._pieces):
            piece = share(len(indices), number, self._pieces)
            if piece:
                batch = self._source.batch(fetched, indices, piece, self._epochs.epoch(step))
                # A slice's last piece has a sample, if any piece has (see `share`).
                yield Piece(number, len(piece), batch, last=number == self._pieces - 1)

    def close(self) -> None:
        """End the fetching thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)
