"""Streams: the order of one process, whoever reads them, from any step on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from dayfly.errors import RequestError, RunFailed
from dayfly.runs.prepare import Data
from dayfly.training.order import Epochs
from dayfly.training.sources import Slices, StreamSource
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
