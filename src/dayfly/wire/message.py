"""Headers of messages: what the bytes are, and whether they are what was sent.

Their layout is told in `header`. In memory that is its user's alone a checksum seals a message
against damage; what others can write to is sealed by `authentication`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import xxhash

from dayfly.errors import WireError
from dayfly.wire.authentication import Authenticator, Checking
from dayfly.wire.header import AUTHENTICATED, CHECKSUM, HEADER_BYTES, Fields
from dayfly.wire.keys import Key

#: Bytes of the header before its checksum.
_SUMMED_BYTES = HEADER_BYTES - 8

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

    def summed(self, size: int) -> tuple[bytes, int]:
        """Header bytes 0 to 119, and the seed of the checksum of a payload of `size` bytes.

        Raises WireError if the payload's size does not fit.
        """
        self._check_size(size)
        return _summed(self)

    def covered(self, size: int) -> bytes:
        """The bytes before the seal of an authenticated message. Raises WireError as `summed`."""
        self._check_size(size)
        return _covered(self, AUTHENTICATED)

    def seal(self, payload: memoryview, key: Key, by: Authenticator) -> bytes:
        """The whole header of an authenticated message. Raises WireError as `summed`."""
        return by.seal(key, self.covered(payload.nbytes), payload)

    @classmethod
    def unpack(cls, raw: bytes | bytearray | memoryview) -> Header:
        """Read a header. Raises WireError if the bytes are no header of this version."""
        fields = Fields.unpack(raw)
        if fields.dtype >= len(DTYPES):
            raise WireError(f"no dayfly message: its dtype is {fields.dtype}")
        return cls(fields.operation, DTYPES[fields.dtype], fields.shape)

    def _check_size(self, size: int) -> None:
        if size != self.nbytes:
            raise WireError(f"{self}: payload has {size} bytes, not {self.nbytes}")

    def __str__(self) -> str:
        return f"{self.operation} {str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def verify(raw_header: bytes | bytearray | memoryview, payload: memoryview) -> None:
    """Raise WireError unless a payload and its header have the checksum that was sent."""
    sent = int.from_bytes(raw_header[_SUMMED_BYTES:HEADER_BYTES], "little")
    seed = xxhash.xxh3_64_intdigest(bytes(raw_header[:_SUMMED_BYTES]))
    compare(checksum(payload, seed), sent)


def expected_header(raw: bytes | bytearray | memoryview, expected: object) -> Header:
    """Read a header. Raises WireError, saying what was expected, if it is none."""
    try:
        return Header.unpack(raw)
    except WireError as error:
        raise WireError(f"expected {expected}, found {error}") from error


def check_header(raw: bytes | bytearray, expected: Header, wanted: bytes) -> None:
    """Raise WireError unless a message begins with the header that is expected.

    raw: its first bytes, as far as they came. wanted: of `expected`, the bytes that are the same in
    each of its messages; see `Header.summed` and `Header.covered`.
    """
    if not raw.startswith(wanted):
        header = expected_header(raw, expected)
        if header != expected:
            raise WireError(f"expected {expected}, found {header}")
        raise WireError(f"expected {expected}, found its header damaged")
    if len(raw) < HEADER_BYTES:
        raise WireError(f"expected {expected}, found its header cut short")


def header_of_bytes(raw: bytes | bytearray | memoryview, operation: str) -> Header:
    """The header of a message of bytes, of any size. Raises WireError if it is another's."""
    expected = f"{operation} of bytes"
    header = expected_header(raw, expected)
    if header != Header(operation, torch.uint8, (header.nbytes,)):
        raise WireError(f"expected {expected}, found {header}")
    return header


def plain_payload(raw: bytes, operation: str, check: Callable[[bytes, memoryview], None]) -> bytes:
    """The payload of a whole message of bytes.

    Raises WireError if it is none, and what `check` raises, which gets the header and the payload.
    """
    header = header_of_bytes(raw, operation)
    payload = memoryview(raw)[HEADER_BYTES:]
    if payload.nbytes != header.nbytes:
        raise WireError(f"expected {header}, found {payload.nbytes} bytes of it")
    check(raw[:HEADER_BYTES], payload)
    return bytes(payload)


@dataclass(frozen=True, slots=True)
class Opening:
    """How a reader opens the authenticated message of a key."""

    key: Key
    by: Authenticator

    def begin(self, raw: bytes | bytearray, expected: Header) -> Checking:
        """The check of the payload that follows a header. Raises WireError for another header."""
        size = expected.nbytes
        check_header(raw, expected, expected.covered(size))
        return self.by.checking(self.key, raw, size)

    def plain(self, raw: bytes) -> bytes:
        """The payload of a whole message of bytes, of any size. Raises WireError."""
        return plain_payload(
            raw, self.key.operation, lambda head, rest: self.by.check(self.key, head, rest)
        )


def checksum(payload: memoryview, seed: int) -> int:
    """XXH3-64 of a payload."""
    return xxhash.xxh3_64_intdigest(payload, seed=seed)


def compare(found: int, sent: int) -> None:
    """Raise WireError unless two checksums are the same."""
    if found != sent:
        raise WireError(f"checksum {found:016x} of the message is not {sent:016x} as sent")


@lru_cache(maxsize=1024)
def _summed(header: Header) -> tuple[bytes, int]:
    """Kept, as most messages of a step have the headers of the step before."""
    first = _covered(header, CHECKSUM).ljust(_SUMMED_BYTES, b"\0")
    return first, xxhash.xxh3_64_intdigest(first)


@lru_cache(maxsize=2048)
def _covered(header: Header, seal: int) -> bytes:
    if header.dtype not in _NUMBERS:
        raise WireError(f"{header}: at most elements of {DTYPES}")
    return Fields(seal, _NUMBERS[header.dtype], header.operation, header.shape).pack()
