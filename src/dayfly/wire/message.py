"""Messages of tensors: headers, checks of what arrives, and tensors as the bytes that travel.

The layout of a header is in `keys`. In memory that belongs to one user alone a checksum protects a
message against damage; where others can write, `authentication` does. What arrives in pieces is
authenticated and copied once, from the memory of the client to the tensor.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import xxhash

from dayfly.errors import WireError
from dayfly.wire.authentication import Authenticator, Checking
from dayfly.wire.keys import AUTHENTICATED, CHECKSUM, HEADER_BYTES, Fields, Key

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

    Args:
        raw: its first bytes, as far as they came.
        wanted: of `expected`, the bytes that are the same in each of its messages; see
            `Header.summed` and `Header.covered`.
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
class Opener:
    """How a reader opens the authenticated message of a key."""

    key: Key
    by: Authenticator

    def begin(
        self, raw: bytes | bytearray, expected: Header, whole_bytes: int | None = None
    ) -> Checking:
        """Returns the check of the payload that follows a header.

        Args:
            raw: the header, as far as it came.
            expected: the header that the reader expects.
            whole_bytes: of header and payload, where that is known.

        Raises:
            WireError: it is another header, or the payload has another size.
        """
        size = expected.nbytes
        check_header(raw, expected, expected.covered(size))
        if whole_bytes not in (None, HEADER_BYTES + size):
            raise WireError(f"expected {expected}, found {whole_bytes - HEADER_BYTES} bytes of it")
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
    """Returns the type of so many bytes; cached, as making one is slow."""
    return ctypes.c_ubyte * size


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that a store has.

    Args:
        size: of header and payload.
        pieces: the bytes, in order.
        requests: made to read it; more than one if it is stored in parts.
    """

    size: int
    pieces: Iterable[memoryview]
    requests: int = 1


def receive_tensor(incoming: Incoming, into: torch.Tensor, opener: Opener) -> None:
    """Read a message into a contiguous CPU tensor.

    Raises WireError, saying what was expected and found; the tensor is not defined then.
    """
    expected = Header(opener.key.operation, into.dtype, tuple(into.shape))
    target, done, size = address_of(into), 0, into.nbytes
    checking: Checking | None = None
    head = b""
    for piece in incoming.pieces:
        rest = piece
        if checking is None:
            missing = HEADER_BYTES - len(head)
            head, rest = head + bytes(piece[:missing]), piece[missing:]
            if len(head) < HEADER_BYTES:
                continue
            checking = opener.begin(head, expected, incoming.size)
        if rest.nbytes:
            if done + rest.nbytes > size:
                raise WireError(f"expected {expected}, found more bytes than that")
            checking.update(rest)
            ctypes.memmove(target + done, np.frombuffer(rest, np.uint8).ctypes.data, rest.nbytes)
            done += rest.nbytes
    if checking is None:
        checking = opener.begin(head, expected, incoming.size)
    if done != size:
        raise WireError(f"expected {expected}, found {done} bytes of it")
    checking.finish()
