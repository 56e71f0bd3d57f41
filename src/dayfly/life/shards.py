"""Objects of safetensors, written from the tensors and read into memory of theirs.

    | length of the header, 8 bytes | header, JSON | the tensors' bytes, one after another |

The library's `save` and `load` go by way of the whole object in memory, beside the tensors: twice
the memory for a moment, where a function has just enough of it. What is written here the library
reads, and the other way round. Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import torch
import xxhash

from dayfly.errors import RequestError
from dayfly.wire.stores.base import Pieces, Store

#: Names of dtypes in headers.
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_LENGTH_BYTES = 8


def write_shard(store: Store, name: str, tensors: Mapping[str, torch.Tensor]) -> tuple[int, str]:
    """Write contiguous tensors as one object; returns its bytes and their digest.

    Equal tensors give equal bytes, in whatever order they come. Raises RequestError for a dtype
    that the format lacks.
    """
    # The widest elements first, so that all are aligned, as the library does.
    ordered = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    header: dict[str, Any] = {}
    at = 0
    for one in ordered:
        tensor = tensors[one]
        if (dtype := _NAMES.get(tensor.dtype)) is None:
            raise RequestError(
                f"{one} is of {tensor.dtype}, which a checkpoint cannot keep: use another dtype"
            )
        places = [at, at := at + tensor.nbytes]
        header[one] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": places}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    head = len(text).to_bytes(_LENGTH_BYTES, "little") + text
    digest = xxhash.xxh3_128(head)

    views = [_bytes(tensors[one]) for one in ordered]
    for view in views:
        digest.update(view)
    store.put(name, Pieces(len(head) + at, lambda: [head, *views]))
    return len(head) + at, digest.hexdigest()


def read_shard(store: Store, name: str, size_bytes: int) -> tuple[dict[str, torch.Tensor], str]:
    """The tensors of an object of `size_bytes`, and the digest of the bytes that were read.

    Raises ValueError if it is none, and StoreError if it is shorter.
    """
    length = bytearray(_LENGTH_BYTES)
    store.read_into(name, [(0, memoryview(length))])
    text = bytearray(min(int.from_bytes(length, "little"), size_bytes))
    store.read_into(name, [(_LENGTH_BYTES, memoryview(text))])
    digest = xxhash.xxh3_128(length)
    digest.update(text)
    start = _LENGTH_BYTES + len(text)
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ValueError("its header is no object of JSON")
    header.pop("__metadata__", None)
    tensors: dict[str, torch.Tensor] = {}
    places: list[tuple[int, memoryview]] = []
    at = 0
    for one, told in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = told["data_offsets"]
        shape, dtype = told["shape"], _DTYPES[told["dtype"]]
        # Before any memory is taken.
        size = prod(shape) * dtype.itemsize if min(shape, default=0) >= 0 else -1
        if begin != at or end - begin != size or start + end > size_bytes:
            raise ValueError(f"{one} {shape} is said to be in bytes {begin} to {end}, after {at}")
        tensors[one] = torch.empty(shape, dtype=dtype)
        places.append((start + begin, _bytes(tensors[one])))
        at = end
    if start + at != size_bytes:
        raise ValueError(f"the header tells of {start + at} bytes, not {size_bytes}")
    store.read_into(name, places)
    for _, view in places:
        digest.update(view)
    return tensors, digest.hexdigest()


def _bytes(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
