"""Where a worker's samples come from: arrays in the store, or the user's own Datasets.

`fetch` moves bytes and may run beside the computation; `batch` makes what the model gets. Random
transforms draw from the global generators, as dropout does, so they run in `batch`, in the
training thread, seeded for each sample: a sample looks the same whoever computes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import default_collate

from dayfly.job import Job, Transform
from dayfly.training.arrays import ArraySplit, opened
from dayfly.training.order import Epochs, Indices, share
from dayfly.training.randomness import AUGMENT, DATA, seed_generators
from dayfly.wire.leaves import leaves_of
from dayfly.wire.stores.base import Store

#: x or y of some samples: a tensor, or what is still to be stacked; None: it is of no use.
_Side = torch.Tensor | list[Any] | None
#: What a source's `fetch` gives to its `batch`; each source has its own.
Fetched = Any


@dataclass(frozen=True, slots=True)
class Sides:
    """Which of a sample (x, y) is of use: a model's first stage needs x, and its last one y."""

    x: bool = True
    y: bool = True


BOTH = Sides()


class Source(ABC):
    """Training or validation samples, by their number from 0."""

    samples: int
    #: Bytes that `fetch` takes from the store for a sample; 0 if it takes none.
    sample_bytes: int = 0

    @property
    @abstractmethod
    def bytes_read(self) -> int:
        """Bytes taken from the store so far."""

    @abstractmethod
    def fetch(self, indices: Indices) -> Fetched:
        """What `batch` needs of these samples, from the store. Draws nothing random."""

    @abstractmethod
    def batch(self, fetched: Fetched, indices: Indices, piece: range, epoch: int) -> Any:
        """The samples `indices[piece]` as the model gets them: (x, y), or as they collate."""


class ArraySource(Source):
    """Samples (x, y) that are rows of two arrays in the store; None for a side of no use."""

    def __init__(
        self,
        store: Store,
        part: ArraySplit,
        transform: Transform | None,
        seed: int,
        sides: Sides = BOTH,
    ) -> None:
        self.samples = part.samples
        self.sample_bytes = sides.x * part.x.sample_bytes + sides.y * part.y.sample_bytes
        self._sides = sides
        self._part = part
        self._x, self._y = opened(store, part.x), opened(store, part.y)
        self._finish = part.x.form.finish
        self._transform = transform
        self._seed = seed

    @property
    def bytes_read(self) -> int:
        return self._x.bytes_read + self._y.bytes_read

    def fetch(self, indices: Indices) -> tuple[_Side, _Side]:
        rows = self._part.rows_of(indices)
        x = self._x.read(rows) if self._sides.x else None
        y = self._y.read(rows) if self._sides.y else None
        return x, y

    def batch(
        self, fetched: tuple[_Side, _Side], indices: Indices, piece: range, epoch: int
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        x, y = (None if side is None else side[piece.start : piece.stop] for side in fetched)
        if self._transform is not None and x is not None:
            transformed = []
            for sample, index in zip(x, indices[piece.start : piece.stop].tolist(), strict=True):
                seed_generators(AUGMENT, self._seed, epoch, index)
                transformed.append(self._transform(sample))
            x = transformed
        return self._stacked(x), self._stacked(y)

    def _stacked(self, side: _Side) -> torch.Tensor | None:
        if side is None or isinstance(side, torch.Tensor):
            return side
        return torch.stack([self._finish(sample) for sample in side])


class DatasetSource(Source):
    """Samples of a torch Dataset that the user's function made; read one by one, when needed."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.samples = len(dataset)
        self._dataset = dataset
        self._seed = seed

    @property
    def bytes_read(self) -> int:
        return 0

    def fetch(self, indices: Indices) -> None:
        return None

    def batch(self, fetched: None, indices: Indices, piece: range, epoch: int) -> Any:
        samples = []
        for index in indices[piece.start : piece.stop].tolist():
            seed_generators(AUGMENT, self._seed, epoch, index)
            samples.append(self._dataset[index])
        return default_collate(samples)


def open_sources(
    job: Job, parts: Sequence[ArraySplit], store: Store, sides: Sides = BOTH
) -> tuple[Source, Source]:
    """The training and the validation source of a job; `parts` of its arrays, if it has any.

    sides: what of their samples is of use; a Dataset gives all.
    """
    if parts:
        train, validation = parts
        return (
            ArraySource(store, train, job.transform, job.seed, sides),
            ArraySource(store, validation, job.eval_transform, job.seed, sides),
        )
    # A function that splits at random splits alike on every worker.
    seed_generators(DATA, job.seed)
    datasets = cast("Callable[[], tuple[Any, Any]]", job.data)()
    return DatasetSource(datasets[0], job.seed), DatasetSource(datasets[1], job.seed)


#: Blocks that are fetched ahead.
_AHEAD = 2
#: Most of a block, in bytes and in steps.
BLOCK_BYTES = 2**20
_BLOCK_STEPS = 32


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a leaf, small enough to compute at once. last: of the leaf."""

    number: int
    samples: int
    batch: Any
    last: bool


class Slices:
    """The slices of one rank, by step. Close it to end its thread.

    They are fetched in blocks of up to `block_bytes`, at most 32 steps of an epoch: to find the
    samples of one step, and to read them, costs nearly as much as for many. block_steps: of most
    blocks. end: the run's last step has the number before it, and nothing beyond is fetched; None:
    there is no end. virtual_workers: leaves of a batch, of which a rank has some in a row; None:
    there are as many as ranks. leaves: the rank's.
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
        block_bytes: int = BLOCK_BYTES,
        end: int | None = None,
    ) -> None:
        self._end = end
        self.source = source
        self._epochs = epochs
        self._of = virtual_workers or world_size
        self.leaves = leaves_of(rank, world_size, self._of)
        self._pieces = pieces
        most_bytes = source.sample_bytes * -(-epochs.largest // world_size)
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
        batch = len(self._epochs.batch(step))
        own = share(batch, self.leaves.start if leaf is None else leaf, self._of)
        before = share(batch, self.leaves.start, self._of).start
        first = block.cuts[step - steps.start] + own.start - before
        stop = first + len(own)
        for number in range(self._pieces):
            piece = share(stop - first, number, self._pieces)
            if piece:
                within = range(first + piece.start, first + piece.stop)
                epoch = self._epochs.epoch(step)
                samples = self.source.batch(block.fetched, block.indices, within, epoch)
                # A leaf's last piece has a sample, if any piece has (see `share`).
                yield Piece(number, len(piece), samples, last=number == self._pieces - 1)

    def close(self) -> None:
        """End the fetching thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _block(self, step: int) -> range:
        """The steps that are fetched together with this one, all of its epoch."""
        epoch = self._epochs.epoch(step)
        begin, end = self._epochs.first(epoch), self._epochs.first(epoch + 1)
        first = step - (step - begin) % self.block_steps
        return range(first, min(first + self.block_steps, end))

    def _fetch(self, steps: range) -> _Block:
        slices = self._epochs.slices(steps, self.leaves.start, self._of, len(self.leaves))
        indices = np.concatenate(slices)
        cuts = [0, *accumulate(len(one) for one in slices)]
        return _Block(indices, cuts, self.source.fetch(indices))


@dataclass(frozen=True, slots=True)
class _Block:
    """Slices of several steps: that of the n-th is `indices[cuts[n]:cuts[n + 1]]`."""

    indices: Indices
    cuts: list[int]
    fetched: Fetched
