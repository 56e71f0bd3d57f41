"""Sources and slices: a sample looks the same whoever computes it, and only own rows are read."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from dayfly.training.arrays import store_arrays
from dayfly.training.order import Epochs
from dayfly.training.slices import Slices
from dayfly.training.sources import ArraySource, DatasetSource, Source, open_sources
from dayfly.wire.stores.base import StoreError
from dayfly.wire.stores.files import FileStore
from tests.training.jobs import Pairs, clusters, job
from tests.training.stores import new_store

SAMPLES, BATCH = 40, 12
X = np.arange(SAMPLES * 3, dtype=np.float32).reshape(SAMPLES, 3)


def noisy(x: torch.Tensor) -> torch.Tensor:
    """Draws from all three generators."""
    return x + torch.rand(x.shape) + np.random.rand() + random.random()


class Noisy(Pairs):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return noisy(x), y


@pytest.fixture
def store() -> Iterator[FileStore]:
    with new_store() as made:
        yield made


def array_source(store: FileStore, transform: Any = noisy) -> ArraySource:
    part, _ = store_arrays(
        {"x_train": X, "y_train": np.arange(SAMPLES), "x_val": X[:2], "y_val": np.arange(2)},
        store,
        seed=0,
    )
    return ArraySource(store, part, transform, seed=5)


def dataset_source(store: FileStore) -> DatasetSource:
    return DatasetSource(Noisy(torch.from_numpy(X), torch.arange(SAMPLES)), seed=5)


def samples(make: Any, world_size: int, pieces: int, steps: range) -> dict[Any, bytes]:
    """(epoch, sample) -> its x as the model got it, over all ranks."""
    epochs = Epochs(SAMPLES, BATCH, seed=1)
    found = {}
    for rank in range(world_size):
        slices = Slices(make(), epochs, rank, world_size, pieces)
        try:
            for step in steps:
                for piece in slices.pieces(step):
                    x, y = piece.batch
                    assert len(x) == len(y) == piece.samples
                    for row, number in zip(x, y.tolist(), strict=True):
                        found[epochs.epoch(step), number] = row.numpy().tobytes()
        finally:
            slices.close()
    return found


@pytest.mark.parametrize("source", [array_source, dataset_source])
def test_a_sample_looks_the_same_whoever_computes_it(source: Any, store: FileStore) -> None:
    alone = samples(lambda: source(store), 1, 1, range(8))
    assert len(alone) == 2 * SAMPLES, "every sample, in two epochs"
    for world_size, pieces in ((2, 1), (5, 3), (20, 1)):
        assert samples(lambda: source(store), world_size, pieces, range(8)) == alone
    restarted = samples(lambda: source(store), 3, 1, range(5, 8))
    assert restarted == {place: alone[place] for place in restarted}
    assert all(alone[0, number] != alone[1, number] for number in range(SAMPLES))


def test_a_dataset_of_dicts_collates(store: FileStore) -> None:
    dicts = [{"a": torch.tensor(i), "b": f"text {i}"} for i in range(SAMPLES)]
    source = DatasetSource(dicts, seed=0)
    slices = Slices(source, Epochs(SAMPLES, 4, seed=0), 0, 2, 1)
    (piece,) = slices.pieces(0)
    slices.close()
    assert piece.batch["b"] == [f"text {i}" for i in piece.batch["a"].tolist()]


def test_pieces_keep_their_numbers_where_some_are_empty(store: FileStore) -> None:
    """Dropout is seeded by a piece's number."""
    slices = Slices(array_source(store), Epochs(SAMPLES, 2, seed=0), 0, 1, 5)
    pieces = list(slices.pieces(0))
    slices.close()
    assert [(piece.number, piece.samples) for piece in pieces] == [(2, 1), (4, 1)]


def test_prefetching_reads_only_the_own_slices(store: FileStore) -> None:
    """Rows of 4096 bytes, far apart; two blocks, of a slice, ahead of what was asked for."""
    wide = np.zeros((SAMPLES, 1024), np.float32)
    part, _ = store_arrays(
        {"x_train": wide, "y_train": wide[:, 0], "x_val": wide[:1], "y_val": wide[:1, 0]}, store, 0
    )
    epochs = Epochs(SAMPLES, BATCH, seed=1)
    workers = [ArraySource(store, part, None, 0) for _ in range(4)]
    for rank, source in enumerate(workers):
        slices = Slices(source, epochs, rank, 4, 1, block_bytes=1)
        list(slices.pieces(0))
        slices.close()
        rows = sum(len(epochs.indices(step, rank, 4)) for step in range(3))
        own = rows * (4096 + 4)
        assert source.bytes_read <= 2 * own
        first = len(epochs.indices(0, rank, 4)) * (4096 + 4)
        assert source.bytes_read >= first
    assert sum(source.bytes_read for source in workers) <= 2 * 3 * BATCH * (4096 + 4)


def test_a_source_without_amplification_reads_each_row_once(store: FileStore) -> None:
    """A batch that is the whole epoch, by one worker: every byte exactly once an epoch."""
    source = array_source(store, None)
    source.fetch(np.arange(SAMPLES))
    assert source.bytes_read == X.nbytes + SAMPLES * 8


class Counting(Source):
    """Notes what is fetched, and by which thread."""

    samples, bytes_read, sample_bytes = SAMPLES, 0, 8

    def __init__(self) -> None:
        self.fetched: list[tuple[bytes, str]] = []

    def fetch(self, indices: Any) -> None:
        self.fetched.append((indices.tobytes(), threading.current_thread().name))

    def batch(self, fetched: Any, indices: Any, piece: range, epoch: int) -> Any:
        return threading.current_thread().name


@pytest.mark.parametrize("block_steps", [1, 2, 100])
def test_every_slice_is_fetched_once_beside_the_computation(block_steps: int) -> None:
    source, epochs = Counting(), Epochs(SAMPLES, 4, seed=0)
    slices = Slices(source, epochs, 1, 2, 1, block_bytes=block_steps * 2 * source.sample_bytes)
    made_by = {piece.batch for step in range(8) for piece in slices.pieces(step)}
    slices.close()
    own = b"".join(epochs.indices(step, 1, 2).tobytes() for step in range(8 + 3 * epochs.steps))
    fetched = [indices for indices, _ in source.fetched]
    assert own.startswith(b"".join(fetched))
    assert len(b"".join(fetched)) >= 8 * 2 * 8
    assert max(map(len, fetched)) == 8 * 2 * min(block_steps, epochs.steps)
    assert made_by == {threading.current_thread().name}, "transforms run in the training thread"
    assert not made_by & {name for _, name in source.fetched}


@pytest.mark.parametrize("block_bytes", [1, 10**6])
def test_nothing_beyond_the_end_of_the_run_is_fetched(block_bytes: int) -> None:
    source, epochs = Counting(), Epochs(SAMPLES, 4, seed=0)
    end = 2 * epochs.steps
    slices = Slices(source, epochs, 1, 2, 1, block_bytes=block_bytes, end=end)
    for step in range(end):
        list(slices.pieces(step))
    slices.close()
    own = b"".join(epochs.indices(step, 1, 2).tobytes() for step in range(end))
    assert b"".join(indices for indices, _ in source.fetched) == own


def test_errors_of_the_store_surface_in_the_training_thread(store: FileStore) -> None:
    source = array_source(store)
    slices = Slices(source, Epochs(SAMPLES, 4, seed=0), 0, 2, 1, block_bytes=1)
    assert list(slices.pieces(0))
    store.delete(["data/x_train.npy"])
    steps = range(1, 9)  # some were fetched before
    with pytest.raises(StoreError, match=r"data/x_train\.npy is not in"):
        [piece for step in steps for piece in slices.pieces(step)]
    slices.close()


def test_threads_end_at_close(store: FileStore) -> None:
    before = set(threading.enumerate())  # some may be about to end
    slices = Slices(array_source(store), Epochs(SAMPLES, 4, seed=0), 0, 1, 1)
    next(slices.pieces(0))
    own = set(threading.enumerate()) - before
    assert own
    slices.close()
    slices.close()
    assert not own & set(threading.enumerate())


def test_datasets_of_a_job_split_alike_on_every_worker(store: FileStore) -> None:
    """Whatever the generators' states are there, a data function that splits at random may."""

    def split() -> Any:
        return torch.utils.data.random_split(clusters(20), [15, 5])

    found = set()
    for state in range(3):
        torch.manual_seed(state)
        train, validation = open_sources(job(data=split), (), store)
        assert (train.samples, validation.samples) == (15, 5)
        found.add(tuple(validation._dataset.indices))
    assert len(found) == 1
