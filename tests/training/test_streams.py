"""Streams: the order of one process, whoever reads them, from any step on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from dayfly.errors import RequestError, RunFailed
from dayfly.runs.prepare import Data
from dayfly.training.order import Epochs
from dayfly.training.slices import Slices
from dayfly.training.sources import StreamSource
from dayfly.training.streams import lengths_of, measured
from tests.training.jobs import clusters, job

SAMPLES, BATCH = 22, 6


class Numbers(IterableDataset):  # type: ignore[type-arg]
    """Numbers from 0, drawn from a buffer at random."""

    def __init__(self, samples: int = SAMPLES, says: int = SAMPLES) -> None:
        self.samples, self.says = samples, says
        self.epoch = -1
        self.read = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.says

    def __iter__(self) -> Iterator[Any]:
        buffer: list[int] = []
        for number in range(self.samples):
            self.read += 1
            buffer.append(number)
            if len(buffer) == 4:
                yield self._sample(buffer.pop(random.randrange(4)))
        while buffer:
            yield self._sample(buffer.pop(0))

    def _sample(self, number: int) -> Any:
        return torch.tensor([number, self.epoch]), torch.rand(())


def seen(workers: int, steps: range, decoders: int = 0) -> dict[int, list[Any]]:
    """Of each step its samples, in the order of the ranks."""
    found: dict[int, list[Any]] = {step: [] for step in steps}
    for rank in range(workers):
        source = StreamSource(Numbers(), 7, Numbers)
        epochs = Epochs(SAMPLES, BATCH, seed=1)
        slices = Slices(source, epochs, rank, workers, 2, end=steps.stop, decoders=decoders)
        try:
            for step in steps:
                random.random()  # whatever is drawn meanwhile
                for piece in slices.pieces(step):
                    x, y = piece.batch
                    found[step] += zip(x.tolist(), y.tolist(), strict=True)
        finally:
            slices.close()
    return found


def test_a_stream_is_what_one_process_sees() -> None:
    alone = seen(1, range(8))
    epochs = [[x for step in steps for x, _ in alone[step]] for steps in (range(4), range(4, 8))]
    for epoch, found in enumerate(epochs):
        assert sorted(found) == [[number, epoch] for number in range(SAMPLES)]
        assert found != sorted(found)
    assert [x[0] for x in epochs[0]] != [x[0] for x in epochs[1]]
    for workers in (2, 3):
        assert seen(workers, range(8)) == alone
    restarted = seen(2, range(5, 8))
    assert restarted == {step: alone[step] for step in restarted}


@pytest.mark.long
def test_one_process_reads_ahead() -> None:
    assert seen(2, range(2, 8), decoders=1) == seen(1, range(2, 8))


def test_a_stream_that_is_shorter_than_it_says_is_named() -> None:
    source = StreamSource(Numbers(5), 7)
    with pytest.raises(RunFailed, match="ended after 5 samples, and its length says 22"):
        source.batch(None, np.arange(8), range(8), 0)


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        yield from clusters()


@pytest.mark.parametrize(
    ("train", "changes", "wrong"),
    [
        (Endless(), {}, "iterable and has no length: give it a __len__"),
        (Numbers(), {"num_workers": 2}, "a stream, which one process reads: give 1, or 0"),
        (Numbers(0), {}, "gives no sample"),
    ],
)
def test_streams_that_cannot_be_are_refused(train: Any, changes: Any, wrong: str) -> None:
    with pytest.raises(RequestError, match=wrong):
        Data.of(job(data=lambda: (train, clusters(10)), **changes))


class Sharded(IterableDataset):  # type: ignore[type-arg]
    """Texts in files, each drawn from a buffer at random; `read` counts what was read of each."""

    def __init__(self, sizes: tuple[int, ...], says: int, read: Counter[int]) -> None:
        self.sizes, self.says, self.read = dict(enumerate(sizes)), says, read

    @property
    def num_shards(self) -> int:
        return len(self.sizes)

    def shard(self, num_shards: int, index: int) -> Sharded:
        assert num_shards == self.num_shards
        one = Sharded((), self.says, self.read)
        one.sizes = {index: self.sizes[index]}
        return one

    def __len__(self) -> int:
        return self.says

    def __iter__(self) -> Iterator[Any]:
        for shard, size in self.sizes.items():
            for number in range(size):
                self.read[shard] += 1
                yield torch.tensor([shard, number]), torch.rand(())


#: Batches of eight samples of four shards, which have 10, 10, 9 and 9.
SIZES, OF_SHARDS = (10, 10, 9, 9), 38


def of_shards(workers: int, steps: range, batch: int = 8) -> tuple[dict[int, Any], list[int]]:
    """Of each step its samples, in the order of the ranks; and how many samples each rank read."""
    found: dict[int, list[Any]] = {step: [] for step in steps}
    reads = []
    for rank in range(workers):
        read: Counter[int] = Counter()
        source = StreamSource(Sharded(SIZES, OF_SHARDS, read), 7)
        slices = Slices(source, Epochs(OF_SHARDS, batch, seed=1), rank, workers, 1, end=steps.stop)
        for step in steps:
            for piece in slices.pieces(step):
                x, y = piece.batch
                found[step] += zip(x.tolist(), y.tolist(), strict=True)
        slices.close()
        reads.append(read.total())
    return found, reads


def test_shards_are_read_by_those_who_need_them() -> None:
    alone, reads = of_shards(1, range(5))
    assert [x for x, _ in alone[0]] == [[s, n] for s in range(4) for n in (0, 1)]
    assert [x for x, _ in alone[4]] == [[s, n] for s in range(4) for n in (8, 9) if n < SIZES[s]]
    seen = sorted(x for step in alone.values() for x, _ in step)
    assert seen == [[shard, n] for shard, size in enumerate(SIZES) for n in range(size)]
    assert reads == [OF_SHARDS]
    for workers in (2, 4):
        shared, reads = of_shards(workers, range(4))  # whole batches: each sample is read once
        assert shared == {step: alone[step] for step in range(4)}
        assert sum(reads) == 32
    for workers, most in ((2, 1.5), (3, 2.0), (8, 2.5)):  # eight share four shards
        shared, reads = of_shards(workers, range(5))
        assert shared == alone
        assert sum(reads) <= most * OF_SHARDS
    odd, reads = of_shards(2, range(8), batch=5)  # no multiple of the shards
    assert odd == of_shards(1, range(8), batch=5)[0]
    assert sum(reads) <= 2 * OF_SHARDS
    assert of_shards(2, range(3, 5))[0] == {step: alone[step] for step in (3, 4)}


def test_a_validation_reads_shards_one_after_another() -> None:
    read: Counter[int] = Counter()
    source = StreamSource(Sharded(SIZES, OF_SHARDS, read), 7, in_turn=False)
    assert source.by_shard is None
    numbers = np.arange(OF_SHARDS)
    x, _ = source.batch(None, numbers, range(OF_SHARDS), -1)
    assert x.tolist() == [[shard, n] for shard, size in enumerate(SIZES) for n in range(size)]
    read.clear()
    source.batch(None, numbers, range(21, 27), -1)
    assert read == {2: 7}, "from the shard's beginning"


def test_a_shard_that_is_too_short_is_named() -> None:
    source = StreamSource(Sharded((10, 4), 20, Counter()), 7)
    with pytest.raises(RunFailed, match="shard 1 of the job's stream ended after 4 samples, and"):
        source.batch(None, np.arange(20), range(20), 0)


def test_lengths_that_contradict_each_other_are_refused() -> None:
    stream = SaysBoth((4, 4), 10)
    with pytest.raises(RequestError, match="a length of 10, and shard_lengths that make 8"):
        lengths_of(stream)


class SaysBoth(Numbers):
    """A length, and those of its shards."""

    num_shards = 2

    def __init__(self, lengths: tuple[int, ...], says: int) -> None:
        super().__init__(says=says)
        self.shard_lengths = lengths

    def shard(self, num_shards: int, index: int) -> Any:
        return self


def test_a_data_function_without_streams_to_count_is_called_once() -> None:
    called = []

    def data() -> Any:
        called.append(1)
        return clusters(), clusters()

    assert Data.of(*measured(job(data=data))).trained == len(clusters())
    assert called == [1]
