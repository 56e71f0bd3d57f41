"""Where a worker's samples come from: arrays in the store, or the user's own Datasets.

`fetch` moves bytes and may run beside the computation; `batch` makes what the model gets. Random
transforms draw from the global generators, as dropout does, so they run in `batch`, in the
training thread or in processes of their own (`decoders.py`), seeded for each sample: a sample looks
the same whoever computes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch.utils.data import IterableDataset, default_collate

from dayfly.errors import RunFailed
from dayfly.job import Job, Transform
from dayfly.training.arrays import ArraySplit, opened
from dayfly.training.order import Indices
from dayfly.training.randomness import AUGMENT, DATA, seed_generators
from dayfly.training.shard_order import ShardOrder
from dayfly.training.streams import lengths_of
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
    #: Puts the samples of a batch shard by shard, as each worker is to read few; None: they stay.
    by_shard: Callable[[range], Indices] | None = None

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
        collate: makes a batch of a list of samples.
    """

    def __init__(
        self,
        dataset: Any,
        seed: int,
        make: Callable[[], Any] | None = None,
        *,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        self.samples = len(dataset)
        self._dataset = dataset
        self._seed = seed
        self._make = make
        self._collate = collate

    @property
    def bytes_read(self) -> int:
        return 0

    def fetch(self, indices: Indices) -> None:
        return None

    def batch(self, fetched: None, indices: Indices, piece: range, epoch: int) -> Any:
        numbers = indices[piece.start : piece.stop].tolist()
        return self.collated([self.sample(epoch, number) for number in numbers])

    def collated(self, samples: list[Any]) -> Any:
        """A batch of samples."""
        return self._collate(samples)

    def again(self) -> Source:
        assert self._make is not None, "nobody says how it is made"
        return type(self)(self._make(), self._seed, self._make, collate=self._collate)

    def sample(self, epoch: int, number: int) -> Any:
        """A sample, drawn with a seed of its own."""
        seed_generators(AUGMENT, self._seed, epoch, number)
        return self._dataset[number]


class StreamSource(DatasetSource):
    """Samples of an IterableDataset, in its order; what lies before one that is asked for is read.

    Each sample is drawn with generators seeded for it, so all workers read the same stream. It
    begins anew in each epoch, of which a `set_epoch` is told. Shards are read by themselves, those
    alone of which a sample is asked for.

    Args:
        in_turn: how the samples of shards are numbered; see `ShardOrder`.
    """

    in_order = True

    def __init__(self, *args: Any, in_turn: bool = True, **named: Any) -> None:
        super().__init__(*args, **named)
        self._order = ShardOrder(lengths_of(self._dataset), in_turn=in_turn)
        self._count = len(self._order.lengths)
        if in_turn and self._count > 1:
            self.by_shard = self._order.by_shard
        self._epoch: int | None = None
        self._open: dict[int, _OpenShard] = {}

    def again(self) -> Source:
        assert self._make is not None, "nobody says how it is made"
        return type(self)(
            self._make(),
            self._seed,
            self._make,
            collate=self._collate,
            in_turn=self._order.in_turn,
        )

    def sample(self, epoch: int, number: int) -> Any:
        if epoch != self._epoch:
            self._epoch, self._open = epoch, {}
        shard, place = self._order.find(number)
        opened = self._open.get(shard)
        if opened is None or place < opened.following:
            opened = self._open[shard] = self._opened(epoch, shard)
        while True:
            of_sample = self._order.serial(shard, opened.following)
            seed_generators(AUGMENT, self._seed, epoch, of_sample)
            try:
                sample = next(opened.samples)
            except StopIteration:
                raise self._too_short(shard, opened.following) from None
            opened.following += 1
            if opened.following > place:
                return sample

    def _opened(self, epoch: int, shard: int) -> _OpenShard:
        seed_generators(AUGMENT, self._seed, epoch, shard)
        opened = self._dataset
        _tell_epoch(opened, epoch)
        if self._count > 1:
            opened = opened.shard(num_shards=self._count, index=shard)
            _tell_epoch(opened, epoch)  # those of Hugging Face begin at epoch 0
        return _OpenShard(iter(opened))

    def _too_short(self, shard: int, found: int) -> RunFailed:
        if self._count == 1:
            return RunFailed(
                f"the job's stream ended after {found} samples, and its length says "
                f"{self.samples}: let its __len__ be the samples of each epoch"
            )
        return RunFailed(
            f"shard {shard} of the job's stream ended after {found} samples, and "
            f"{self._order.lengths[shard]} were expected: give it shard_lengths, the samples of "
            "each shard in every epoch, or a __len__ of shards that are equally long"
        )


def _tell_epoch(stream: Any, epoch: int) -> None:
    """Tells a stream the epoch, if it wants to know. A validation is of none: always the same."""
    if callable(told := getattr(stream, "set_epoch", None)) and epoch >= 0:
        told(epoch)


@dataclass(slots=True)
class _OpenShard:
    """A shard, or a stream without any, that is being read; `following`: its next sample."""

    samples: Iterator[Any]
    following: int = 0


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
        dataset_source(one, job.seed, partial(made, side), in_turn=not side)
        for side, one in enumerate(make())
    ]
    return both[0], both[1]


def dataset_source(
    dataset: Any,
    seed: int,
    make: Callable[[], Any] | None = None,
    *,
    in_turn: bool,
    **more: Any,
) -> Source:
    """Returns the samples of a torch Dataset, or of a stream.

    Args:
        dataset: the user's.
        seed: of the job.
        make: see `DatasetSource`.
        in_turn: how samples of shards are numbered; see `StreamSource`.
        more: keywords of `DatasetSource`.
    """
    if isinstance(dataset, IterableDataset):
        return StreamSource(dataset, seed, make, in_turn=in_turn, **more)
    return DatasetSource(dataset, seed, make, **more)
