"""The header that goes before every message: its layout, as bytes.

Tensors never travel as pickle: a message is a fixed header of 128 bytes and raw bytes.

    offset  bytes  field
         0      4  magic `dfly`
         4      1  version of this layout
         5      1  dtype, a number of `message.DTYPES`
         6      1  number of dimensions, at most 8
         7      1  how it is sealed: 0 checksum, 1 authenticated
         8     40  operation, ASCII, zero-padded
        48     48  shape, 8 unsigned 48-bit numbers, zero beyond the dimensions
        96      4  zero
       100     28  the seal

    checksum        20 zeros, and XXH3-64 of the payload, seeded with XXH3-64 of bytes 0 to 119
    authenticated   a nonce of 12 bytes, and AES-GMAC of key, bytes 0 to 99 and payload: 16 bytes

All numbers are little-endian. This module is imported by servers, so it does without torch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from dayfly.errors import WireError

HEADER_BYTES = 128
#: Bytes of the header that the seal covers, and that come before it.
COVERED_BYTES = 100
#: How a message is sealed.
CHECKSUM, AUTHENTICATED = 0, 1
#: Most dimensions of a shape.
MOST_DIMENSIONS = 8
#: Most characters of an operation.
OPERATION_BYTES = 40

_LAYOUT = struct.Struct("<4sBBBB40s48s4s")
_MAGIC, _VERSION, _ZERO = b"dfly", 2, bytes(4)
_LENGTH_BYTES = 6


@dataclass(frozen=True, slots=True)
class Fields:
    """What the covered bytes of a header say. dtype: a number of `message.DTYPES`."""

    seal: int
    dtype: int
    operation: str
    shape: tuple[int, ...]

    def pack(self) -> bytes:
        """The covered bytes. Raises WireError for what does not fit the layout."""
        if len(self.shape) > MOST_DIMENSIONS or any(n >= 2**48 for n in self.shape):
            raise WireError(f"{list(self.shape)}: at most 8 dimensions, of less than 2^48 each")
        if len(self.operation) > OPERATION_BYTES or not self.operation.isascii():
            raise WireError(f"{self.operation}: at most 40 characters, all of them ASCII")
        shape = b"".join(length.to_bytes(_LENGTH_BYTES, "little") for length in self.shape)
        fixed = _MAGIC, _VERSION, self.dtype, len(self.shape), self.seal
        return _LAYOUT.pack(*fixed, self.operation.encode("ascii"), shape, _ZERO)

    @classmethod
    def unpack(cls, raw: bytes | bytearray | memoryview) -> Fields:
        """From a message's first bytes. Raises WireError if they are no header of this version."""
        if len(raw) < HEADER_BYTES:
            raise WireError(f"a message of {len(raw)} bytes is shorter than its header")
        magic, version, dtype, ndim, seal, operation, shape, zero = _LAYOUT.unpack_from(raw)
        known = (magic, version, zero) == (_MAGIC, _VERSION, _ZERO)
        if not known or ndim > MOST_DIMENSIONS or seal not in (CHECKSUM, AUTHENTICATED):
            raise WireError(f"no dayfly message of version {_VERSION}: {bytes(raw[:8])!r}")
        ends = range(_LENGTH_BYTES, _LENGTH_BYTES * ndim + 1, _LENGTH_BYTES)
        lengths = (int.from_bytes(shape[end - _LENGTH_BYTES : end], "little") for end in ends)
        text = operation.rstrip(b"\0").decode("ascii", "replace")
        return cls(seal, dtype, text, tuple(lengths))
