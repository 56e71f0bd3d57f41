"""The header that goes before every message: what the bytes are, and that they are whole.

Tensors never travel as pickle: a message is a fixed header of 128 bytes and raw bytes.

    offset  bytes  field
         0      4  magic `dfly`
         4      1  version of this layout
         5      1  dtype, a number of `DTYPES`
         6      1  number of dimensions, at most 8
         7      1  zero
         8     40  operation, ASCII, zero-padded
        48     64  shape, 8 unsigned 64-bit numbers, zero beyond the dimensions
       112      8  payload's size in bytes
       120      8  checksum: XXH3-64 of the payload, seeded with XXH3-64 of bytes 0 to 119
All numbers are little-endian.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import torch
import xxhash

from dayfly.errors import WireError

HEADER_BYTES = 128
_LAYOUT = struct.Struct("<4sBBBx40s8QQQ")
_MAGIC = b"dfly"
_VERSION = 1

#: Element types that travel, by the number in the header; a type keeps its number for ever.
DTYPES: tuple[torch.dtype, ...] = (
    torch.uint8,
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)
_NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES)}


@dataclass(frozen=True, slots=True)
class Header:
    """What a message holds: operation, element type and shape."""

    operation: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the payload in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def pack(self, payload: memoryview) -> bytes:
        """The 128 header bytes for this payload. Raises WireError if its size does not fit."""
        if payload.nbytes != self.nbytes:
            raise WireError(f"{self}: payload has {payload.nbytes} bytes, not {self.nbytes}")
        return self._layout(_checksum(self._layout(0)[:-8], payload))

    def _layout(self, checksum: int) -> bytes:
        if len(self.shape) > 8 or self.dtype not in _NUMBERS:
            raise WireError(f"{self}: at most 8 dimensions, and one of {DTYPES}")
        if len(self.operation) > 40 or not self.operation.isascii():
            raise WireError(f"{self}: an operation has at most 40 characters, all of them ASCII")
        shape = (*self.shape, *([0] * (8 - len(self.shape))))
        number, operation = _NUMBERS[self.dtype], self.operation.encode("ascii")
        return _LAYOUT.pack(
            _MAGIC, _VERSION, number, len(self.shape), operation, *shape, self.nbytes, checksum
        )

    @classmethod
    def unpack(cls, raw: bytes | bytearray | memoryview) -> Header:
        """Read a header. Raises WireError if the bytes are no header of this version."""
        if len(raw) < HEADER_BYTES:
            raise WireError(f"a message of {len(raw)} bytes is shorter than its header")
        magic, version, number, ndim, operation, *rest = _LAYOUT.unpack_from(raw)
        if magic != _MAGIC or version != _VERSION or number >= len(DTYPES) or ndim > 8:
            raise WireError(f"no dayfly message of version {_VERSION}: {bytes(raw[:8])!r}")
        text = operation.rstrip(b"\0").decode("ascii", "replace")
        header = cls(text, DTYPES[number], tuple(rest[:ndim]))
        if header.nbytes != rest[8]:
            raise WireError(f"{header}: says {rest[8]} bytes, its shape needs {header.nbytes}")
        return header

    def __str__(self) -> str:
        return f"{self.operation} {str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def verify(raw_header: bytes | bytearray | memoryview, payload: memoryview) -> None:
    """Raise WireError unless the payload and its header are what was sent."""
    expected = int.from_bytes(raw_header[HEADER_BYTES - 8 : HEADER_BYTES], "little")
    found = _checksum(bytes(raw_header[: HEADER_BYTES - 8]), payload)
    if found != expected:
        raise WireError(f"checksum {found:016x} of the message is not {expected:016x} as sent")


def _checksum(header: bytes, payload: memoryview) -> int:
    return xxhash.xxh3_64_intdigest(payload, seed=xxhash.xxh3_64_intdigest(header))
