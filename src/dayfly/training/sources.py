"""Where a worker's samples come from: arrays in the store, or the user's own Datasets.

`fetch` moves bytes and may run beside the computation; `batch` makes what the model gets. Random
transforms draw from the global generators, as dropout does, so they run in `batch`, in the
training thread or in processes of their own (`decoders.py`), seeded for each sample: a sample looks
the same whoever computes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import IterableDataset, default_collate

from dayfly.errors import RunFailed
from dayfly.job import Job, Transform
from dayfly.training.arrays import ArraySplit, opened
from dayfly.training.decoders import Decoders
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
    #: Whether samples come in the order of their numbers, not in one that follows from the seed.
    in_order: bool = False

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

    def part(self, fetched: Fetched, piece: range) -> Fetched:
        """What `batch` needs of a piece alone, as if that were all that was fetched."""
        return fetched

    def again(self) -> Source:
        """The same for another process, with which it shares nothing that is open."""
        return self


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
        x, y = self.part(fetched, piece)
        if self._transform is not None and x is not None:
            transformed = []
            for sample, index in zip(x, indices[piece.start : piece.stop].tolist(), strict=True):
                seed_generators(AUGMENT, self._seed, epoch, index)
                transformed.append(self._transform(sample))
            x = transformed
        return self._stacked(x), self._stacked(y)

    def part(self, fetched: tuple[_Side, _Side], piece: range) -> tuple[_Side, _Side]:
        x, y = (None if side is None else side[piece.start : piece.stop] for side in fetched)
        return x, y

    def _stacked(self, side: _Side) -> torch.Tensor | None:
        if side is None or isinstance(side, torch.Tensor):
            return side
        return torch.stack([self._finish(sample) for sample in side])


class DatasetSource(Source):
    """Samples of a torch Dataset that the user's function made; read one by one, when needed.

    Args:
        dataset: the user's.
        seed: of the job.
        make: makes it once more, in another process; None: there is no other.
    """

    def __init__(self, dataset: Any, seed: int, make: Callable[[], Any] | None = None) -> None:
        self.samples = len(dataset)
        self._dataset = dataset
        self._seed = seed
        self._make = make

    @property
    def bytes_read(self) -> int:
        return 0

    def fetch(self, indices: Indices) -> None:
        return None

    def batch(self, fetched: None, indices: Indices, piece: range, epoch: int) -> Any:
        numbers = indices[piece.start : piece.stop].tolist()
        return default_collate([self._sample(epoch, number) for number in numbers])

    def again(self) -> Source:
        assert self._make is not None, "nobody says how it is made"
        return type(self)(self._make(), self._seed, self._make)

    def _sample(self, epoch: int, number: int) -> Any:
        seed_generators(AUGMENT, self._seed, epoch, number)
        return self._dataset[number]


class StreamSource(DatasetSource):
    """Samples of an IterableDataset, in its order; what lies before one that is asked for is read.

    Each sample is drawn with generators seeded for it, so all workers read the same stream. It
    begins anew in each epoch, of which a `set_epoch` is told.
    """

    in_order = True

    def __init__(self, dataset: Any, seed: int, make: Callable[[], Any] | None = None) -> None:
        super().__init__(dataset, seed, make)
        self._epoch: int | None = None
        self._next = 0
        self._samples: Iterator[Any] = iter(())

    def _sample(self, epoch: int, number: int) -> Any:
        if epoch != self._epoch or number < self._next:
            self._epoch, self._next = epoch, 0
            seed_generators(AUGMENT, self._seed, epoch, 0)
            if callable(set_epoch := getattr(self._dataset, "set_epoch", None)):
                set_epoch(epoch)
            self._samples = iter(self._dataset)
        while True:
            seed_generators(AUGMENT, self._seed, epoch, self._next)
            try:
                sample = next(self._samples)
            except StopIteration:
                raise RunFailed(
                    f"the job's stream ended after {self._next} samples, and its length says "
                    f"{self.samples}: let its __len__ be the samples of each epoch"
                ) from None
            self._next += 1
            if self._next > number:
                return sample


def open_sources(
    job: Job, parts: Sequence[ArraySplit], store: Store, sides: Sides = BOTH
) -> tuple[Source, Source]:
    """The training and the validation source of a job; `parts` of its arrays, if it has any.

    Args:
        sides: what of their samples is of use; a Dataset gives all.
    """
    if parts:
        train, validation = parts
        return (
            ArraySource(store, train, job.transform, job.seed, sides),
            ArraySource(store, validation, job.eval_transform, job.seed, sides),
        )
    make = cast("Callable[[], tuple[Any, Any]]", job.data)

    def made(side: int) -> Any:
        # A function that splits at random splits alike on every worker.
        seed_generators(DATA, job.seed)
        return make()[side]

    seed_generators(DATA, job.seed)
    both = [
        (StreamSource if isinstance(one, IterableDataset) else DatasetSource)(
            one, job.seed, partial(made, side)
        )
        for side, one in enumerate(make())
    ]
    return both[0], both[1]


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
        decoders: processes that make the batches, ahead of use; 0: the caller does.
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
        decoders: int = 0,
    ) -> None:
        self._end = end
        self._decoders = Decoders(source, decoders) if decoders else None
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
        leaf = self.leaves.start if leaf is None else leaf
        for number in range(self._pieces):
            within = self._within(block, step, leaf, number)
            if within:
                epoch = self._epochs.epoch(step)
                if self._decoders is None:
                    samples = self.source.batch(block.fetched, block.indices, within, epoch)
                else:
                    self._ask((step, leaf, number), self._decoders)
                    samples = self._decoders.take((step, leaf, number))
                # A leaf's last piece has a sample, if any piece has (see `share`).
                yield Piece(number, len(within), samples, last=number == self._pieces - 1)

    def _ask(self, key: tuple[int, int, int], decoders: Decoders) -> None:
        """Have a piece decoded, and those after it, as far as their samples are here.

        Args:
            key: step, leaf and number of the piece.
            decoders: make it.
        """
        decoders.forget(key)
        step, leaf, number = key
        for _ in range(decoders.ahead):
            coming = self._coming.get(self._block(step))
            if coming is None or not coming.done() or coming.exception() is not None:
                return
            block = coming.result()
            within = self._within(block, step, leaf, number)
            if within:
                indices = block.indices[within.start : within.stop]
                part = self.source.part(block.fetched, within)
                decoders.ask((step, leaf, number), part, indices, self._epochs.epoch(step))
            number += 1
            if number == self._pieces:
                leaf, number = leaf + 1, 0
            if leaf == self.leaves.stop:
                step, leaf = step + 1, self.leaves.start
            if step == self._end:
                return

    def _within(self, block: _Block, step: int, leaf: int, number: int) -> range:
        """Where in the indices of a block a piece of one of the leaves is; may be empty."""
        batch = len(self._epochs.batch(step))
        own, before = share(batch, leaf, self._of), share(batch, self.leaves.start, self._of).start
        first = block.cuts[step - self._block(step).start] + own.start - before
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
        of, in_order = self._of, self.source.in_order
        first, count = self.leaves.start, len(self.leaves)
        slices = self._epochs.slices(steps, first, of, count, in_order=in_order)
        indices = np.concatenate(slices)
        cuts = [0, *accumulate(len(one) for one in slices)]
        return _Block(indices, cuts, self.source.fetch(indices))


@dataclass(frozen=True, slots=True)
class _Block:
    """Slices of several steps: that of the n-th is `indices[cuts[n]:cuts[n + 1]]`."""

    indices: Indices
    cuts: list[int]
    fetched: Fetched
