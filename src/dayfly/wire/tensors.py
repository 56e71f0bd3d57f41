"""Tensors as the bytes that travel."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy; writing to them writes the tensor."""
    address, size = address_of(tensor), tensor.nbytes
    if not size:
        return memoryview(b"")
    # Several times as fast as by way of views of the tensor, and this is done for every message.
    array = _bytes_type(size).from_address(address)
    # The tensor is to live as long as its bytes are in use; mypy knows no attributes of arrays.
    array.owner = tensor  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def address_of(tensor: torch.Tensor) -> int:
    """Where in memory a contiguous CPU tensor begins."""
    if not tensor.is_cpu or not tensor.is_contiguous():
        raise ValueError(f"bytes of a tensor on {tensor.device}, strides {tensor.stride()}")
    return tensor.data_ptr()


@lru_cache(maxsize=256)
def _bytes_type(size: int) -> type[ctypes.Array[ctypes.c_ubyte]]:
    """Kept, as it takes long to make one."""
    return ctypes.c_ubyte * size
