"""Arrays in the store: placed once, read row by row, few requests and no more than needed."""

from __future__ import annotations

from pathlib import Path

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.data.npy_arrays import load_arrays
from dayfly.dataclass_json import dump, read
from dayfly.training.arrays import (
    AMPLIFICATION,
    ArrayReader,
    ArraySplit,
    coalesce,
    store_arrays,
)
from dayfly.training.order import Epochs
from dayfly.wire.stores.files import FileStore
from tests.training.stores import new_store

_CODES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
DTYPES = [np.dtype(code) for code in _CODES]

some_arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5))
)


def placed(store: FileStore, x: np.ndarray, **more: np.ndarray) -> tuple[ArraySplit, ArraySplit]:
    arrays = {"x_train": x, "y_train": np.arange(len(x)), **more}
    return store_arrays(arrays, store, seed=3, note=lambda text: None)


def same(tensor: torch.Tensor, array: np.ndarray) -> bool:
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape)
    found = tensor.numpy()
    return (
        found.dtype == native.dtype
        and found.shape == native.shape
        and found.tobytes() == native.tobytes()
    )


@given(array=some_arrays, data=st.data())
@pytest.mark.long
def test_rows_come_back_in_any_order_with_repeats(array: np.ndarray, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(array) - 1), max_size=12))
    rows = np.array(chosen, dtype=np.int64)
    with new_store() as store:
        part, _ = placed(store, array)
        assert same(ArrayReader(store, part.x).read(rows), array[rows])


@pytest.mark.parametrize(
    ("order", "dtype"),
    [
        *(("big-endian", dtype) for dtype in DTYPES),
        *((order, DTYPES[-1]) for order in ("fortran", "strided", "reversed", "read-only")),
    ],
    ids=str,
)
def test_arrays_of_any_making(order: str, dtype: np.dtype) -> None:
    array = (np.arange(6 * 4 * 3) % 100).reshape(6, 4, 3).astype(dtype)
    array = {
        "big-endian": lambda: array.astype(array.dtype.newbyteorder(">")),
        "fortran": lambda: np.asfortranarray(array),
        "strided": lambda: array[::2, 1:, ::2],
        "reversed": lambda: array[::-1, :, ::-1],
        "read-only": lambda: np.broadcast_to(array[:1], array.shape),
    }[order]()
    rows = np.array([len(array) - 1, 0, 1, 0], dtype=np.int64)
    with new_store() as store:
        part, _ = placed(store, array)
        assert same(ArrayReader(store, part.x).read(rows), array[rows])


@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 0), (7, 2, 0, 3), (7, 3, 2, 2, 2)])
def test_rows_of_any_shape(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    with new_store() as store:
        part, _ = placed(store, array)
        assert same(ArrayReader(store, part.x).read(np.array([6, 2, 2])), array[[6, 2, 2]])
        assert ArrayReader(store, part.x).read(np.array([], np.int64)).shape == (0, *shape[1:])


@pytest.mark.parametrize("form", ["directory", "npz"])
def test_arrays_from_files(form: str, tmp_path: Path) -> None:
    arrays = {
        "x_train": np.random.default_rng(0).normal(size=(9, 4)).astype(">f4"),
        "y_train": np.arange(9, dtype=np.int16),
        "x_val": np.ones((2, 4), np.float32),
        "y_val": np.zeros(2, np.int16),
    }
    if form == "npz":
        path = tmp_path / "all.npz"
        np.savez(path, **arrays, others=np.ones(1))
    else:
        path = tmp_path
        for name, array in arrays.items():
            np.save(path / f"{name}.npy", array)
    loaded = load_arrays(path)
    assert sorted(loaded) == sorted(arrays)
    if form == "directory":
        assert all(isinstance(array, np.memmap) for array in loaded.values())
    with new_store() as store:
        train, validation = store_arrays(loaded, store, seed=0)
        assert (train.samples, validation.samples) == (9, 2)
        everything = train.rows_of(np.arange(9))
        assert same(ArrayReader(store, train.x).read(everything), arrays["x_train"])
        assert same(ArrayReader(store, train.y).read(everything), arrays["y_train"])
        assert same(ArrayReader(store, validation.x).read(np.arange(2)), arrays["x_val"])


@given(st.sets(st.integers(0, 400), max_size=80))
def test_coalesced_ranges_cover_the_rows_and_read_at_most_twice_as_much(rows: set[int]) -> None:
    wanted = np.array(sorted(rows), dtype=np.int64)
    ranges = coalesce(wanted)
    covered = [row for some in ranges for row in some]
    assert rows <= set(covered)
    assert covered == sorted(set(covered)), "in order, and none twice"
    for some in ranges:
        needed = len(rows & set(some))
        assert len(some) <= AMPLIFICATION * needed
        assert {some.start, some.stop - 1} <= rows, "no range begins or ends with waste"


def test_coalescing_makes_few_ranges() -> None:
    assert coalesce(np.arange(50)) == [range(50)]
    assert coalesce(np.arange(0, 50, 2)) == [range(49)]
    assert len(coalesce(np.arange(0, 500, 10))) == 50


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("batch_size", [8, 64, 300])
def test_an_epoch_reads_at_most_twice_what_it_needs(workers: int, batch_size: int) -> None:
    x = np.random.default_rng(1).normal(size=(300, 5)).astype(np.float32)
    with new_store() as store:
        part, _ = placed(store, x)
        epochs = Epochs(part.samples, batch_size, seed=1)
        readers = [ArrayReader(store, part.x) for _ in range(workers)]
        for step in range(epochs.steps):
            for rank, reader in enumerate(readers):
                rows = part.rows_of(epochs.indices(step, rank, workers))
                assert same(reader.read(rows), x[rows])
        needed = part.samples * part.x.row_bytes
        assert needed <= sum(reader.bytes_read for reader in readers) <= AMPLIFICATION * needed


@given(rows=st.integers(2, 120), seed=st.integers(0, 50))
def test_the_tenth_that_is_split_off_is_disjoint_from_training(rows: int, seed: int) -> None:
    with new_store() as store:
        train, validation = store_arrays(
            {"x_train": np.ones(rows), "y_train": np.ones(rows)}, store, seed
        )
    assert validation.samples == max(1, rows // 10)
    both = [part.rows_of(np.arange(part.samples)).tolist() for part in (train, validation)]
    assert sorted(both[0] + both[1]) == list(range(rows))


def test_the_split_depends_on_the_seed_and_travels() -> None:
    splits = set()
    for seed in range(5):
        with new_store() as store:
            _, validation = store_arrays(
                {"x_train": np.ones(90), "y_train": np.ones(90)}, store, seed
            )
        assert read(ArraySplit, dump(validation), "p") == validation
        splits.add(tuple(validation.rows_of(np.arange(9)).tolist()))
    assert len(splits) == 5
