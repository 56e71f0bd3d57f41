"""Shards: the library's format, without a second copy in memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import RequestError
from dayfly.life.shards import read_shard, write_shard
from dayfly.wire.stores.base import StoreError
from dayfly.wire.stores.files import FileStore

KEPT = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64,
    torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.bool,
    torch.uint64, torch.uint32, torch.uint16, torch.uint8,
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


def some(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Bytes that are ones, so that they are of any dtype."""
    count = int(np.prod(shape)) * dtype.itemsize
    return torch.ones(count, dtype=torch.uint8).view(dtype).reshape(shape)


def raw(tensors: dict[str, torch.Tensor]) -> dict[str, object]:
    return {
        name: (t.dtype, t.shape, t.reshape(-1).view(torch.uint8).tolist())
        for name, t in tensors.items()
    }


@given(
    kinds=st.dictionaries(
        st.text(max_size=5),
        st.tuples(st.sampled_from(KEPT), st.lists(st.integers(0, 3), max_size=3).map(tuple)),
        max_size=8,
    )
)
@pytest.mark.long
def test_the_library_reads_what_is_written_and_the_other_way_round(
    kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = FileStore(tmp_path_factory.mktemp("store"))
    tensors = {name: some(*kind) for name, kind in kinds.items()}
    size, digest = write_shard(store, "ours", tensors)
    data = store.get("ours")
    assert (size, digest) == (len(data), xxhash.xxh3_128_hexdigest(data))
    assert raw(safetensors.torch.load(data)) == raw(tensors)
    store.put("its", its := safetensors.torch.save(tensors, {"made": "elsewhere"}))
    for name, whole in (("ours", data), ("its", its)):
        found, digest = read_shard(store, name, len(whole))
        assert raw(found) == raw(tensors)
        assert digest == xxhash.xxh3_128_hexdigest(whole)
    write_shard(store, "again", dict(reversed(tensors.items())))
    assert store.get("again") == data


def test_what_the_format_lacks_is_refused_by_name(store: FileStore) -> None:
    with pytest.raises(RequestError, match=r"a is of torch\.complex128, which a checkpoint cannot"):
        write_shard(store, "x", {"a": torch.zeros(1, dtype=torch.complex128)})
    assert store.stat("x") is None


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({"a": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, 8]}}, "is said to be in"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "tells of"),
        ({"a": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}}, "is said to be in"),
        ({"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, -16]}}, "is said to be in"),
        ({"a": {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]}}, "is said to be in"),
        ({"a": {"dtype": "U8", "shape": [8], "data_offsets": [8, 16]}}, "after 0"),
        ({}, "tells of"),
        ([1], "no object of JSON"),
    ],
)
def test_a_header_that_does_not_fit_takes_no_memory(
    header: object, text: str, store: FileStore
) -> None:
    head = json.dumps(header).encode()
    data = len(head).to_bytes(8, "little") + head + bytes(16)
    store.put("x", data)
    with pytest.raises(ValueError, match=text):
        read_shard(store, "x", len(data))


def test_an_object_that_ends_early(store: FileStore) -> None:
    size, _ = write_shard(store, "x", {"a": torch.ones(100)})
    store.put("x", store.get("x")[:-1])
    with pytest.raises(StoreError, match="ends before byte"):
        read_shard(store, "x", size)
