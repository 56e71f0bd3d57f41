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
from functools import lru_cache

import torch
import xxhash

from dayfly.errors import WireError
from dayfly.wire.header import HEADER_BYTES

_SEALED_BYTES = HEADER_BYTES - 8
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
    torch.complex64,
    torch.complex128,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex32,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
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
        first, seed = self.sealed(payload.nbytes)
        return first + checksum(payload, seed).to_bytes(8, "little")

    def sealed(self, size: int) -> tuple[bytes, int]:
        """Header bytes 0 to 119, and the seed of the checksum of a payload of `size` bytes.

        Raises WireError if the payload's size does not fit.
        """
        if size != self.nbytes:
            raise WireError(f"{self}: payload has {size} bytes, not {self.nbytes}")
        return _sealed(self)

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
    sent = int.from_bytes(raw_header[_SEALED_BYTES:HEADER_BYTES], "little")
    seed = xxhash.xxh3_64_intdigest(bytes(raw_header[:_SEALED_BYTES]))
    compare(checksum(payload, seed), sent)


def expected_header(raw: bytes | bytearray | memoryview, expected: object) -> Header:
    """Read a header. Raises WireError, saying what was expected, if it is none."""
    try:
        return Header.unpack(raw)
    except WireError as error:
        raise WireError(f"expected {expected}, found {error}") from error


def check_header(raw: bytes | bytearray, expected: Header, sealed: bytes) -> None:
    """Raise WireError unless a message begins with the header that is expected.

    raw: its first bytes, as far as they came. sealed: of `expected`; see `Header.sealed`.
    """
    if not raw.startswith(sealed):
        header = expected_header(raw, expected)
        if header != expected:
            raise WireError(f"expected {expected}, found {header}")
        raise WireError(f"expected {expected}, found its header damaged")


def header_of_bytes(raw: bytes | bytearray | memoryview, operation: str) -> Header:
    """The header of a message of bytes, of any size. Raises WireError if it is another's."""
    expected = f"{operation} of bytes"
    header = expected_header(raw, expected)
    if header != Header(operation, torch.uint8, (header.nbytes,)):
        raise WireError(f"expected {expected}, found {header}")
    return header


def plain_payload(raw: bytes, operation: str) -> bytes:
    """The payload of a whole message of bytes. Raises WireError if it is none, or damaged."""
    header = header_of_bytes(raw, operation)
    payload = memoryview(raw)[HEADER_BYTES:]
    if payload.nbytes != header.nbytes:
        raise WireError(f"expected {header}, found {payload.nbytes} bytes of it")
    verify(raw, payload)
    return bytes(payload)


def checksum(payload: memoryview, seed: int) -> int:
    """XXH3-64 of a payload."""
    return xxhash.xxh3_64_intdigest(payload, seed=seed)


def compare(found: int, sent: int) -> None:
    """Raise WireError unless two checksums are the same."""
    if found != sent:
        raise WireError(f"checksum {found:016x} of the message is not {sent:016x} as sent")


@lru_cache(maxsize=1024)
def _sealed(header: Header) -> tuple[bytes, int]:
    """Kept, as most messages of a step have the headers of the step before."""
    shape, dtype = header.shape, header.dtype
    if len(shape) > 8 or dtype not in _NUMBERS:
        raise WireError(f"{header}: at most 8 dimensions, and one of {DTYPES}")
    if len(header.operation) > 40 or not header.operation.isascii():
        raise WireError(f"{header}: an operation has at most 40 characters, all of them ASCII")
    sizes = (*shape, *([0] * (8 - len(shape))))
    number, operation = _NUMBERS[dtype], header.operation.encode("ascii")
    raw = _LAYOUT.pack(_MAGIC, _VERSION, number, len(shape), operation, *sizes, header.nbytes, 0)
    first = raw[:_SEALED_BYTES]
    return first, xxhash.xxh3_64_intdigest(first)
