"""Message keys and headers: the address of a message, and the layout of what goes before it.

A key says which step a message belongs to, what operation within the step it is part of, who sent
it and who reads it. Keys are deterministic, so a worker that died can start again, look for the
messages that it missed, and find those that it had already sent. The run and the generation are
the channel's (see `channels.base.Namespace`).

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

All numbers are little-endian. Servers import this module, so it does without torch.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from dayfly.errors import WireError

#: Reader of a message that every worker reads.
EVERYONE = -1
#: The coordinator, as sender or reader.
COORDINATOR = -2
#: The parameter server: it adds what is sent to it, and its sums come from it.
SERVER = -3
#: The step of a message that no trim removes, such as a request to stop.
FOREVER = 10**9 - 1

_PACKED = struct.Struct("<I40sii")
#: Bytes of a key, packed.
KEY_BYTES = _PACKED.size

_OPERATION = re.compile(r"[a-z][a-z0-9-]{0,39}")
_NAME = re.compile(
    r"([0-9]{9})\.([a-z][a-z0-9-]{0,39})\.(everyone|coordinator|server|0|[1-9][0-9]*)"
)
_PARTY_NAMES = {EVERYONE: "everyone", COORDINATOR: "coordinator", SERVER: "server"}
_PARTY_NUMBERS = {name: number for number, name in _PARTY_NAMES.items()}


def party_name(party: int) -> str:
    """A rank, `everyone` or `coordinator`, as it stands in keys and in errors."""
    return _PARTY_NAMES.get(party, str(party))


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One message's address within a run and generation.

    Args:
        step: number of the optimizer step, from 0 (or a sequence number, for reports).
        operation: what within the step, such as `grad-part` (lower case, digits, hyphens).
        source, destination: ranks, or EVERYONE, COORDINATOR or SERVER.
    """

    step: int
    operation: str
    source: int
    destination: int

    def __post_init__(self) -> None:
        if not 0 <= self.step <= FOREVER:
            raise ValueError(f"step {self.step} of a key is outside 0..{FOREVER}")
        if not _OPERATION.fullmatch(self.operation):
            raise ValueError(f"operation {self.operation!r} of a key must match [a-z][a-z0-9-]*")
        if min(self.source, self.destination) < SERVER:
            raise ValueError(f"a key from {self.source} to {self.destination}: no such party")

    @property
    def mailbox(self) -> str:
        """The reader's mailbox, where channels keep one for each: `to-3`."""
        return f"to-{party_name(self.destination)}"

    @property
    def name(self) -> str:
        """The message's name within its mailbox, sorting by step: `000000012.grad-part.3`."""
        return f"{self.step:09d}.{self.operation}.{party_name(self.source)}"

    @classmethod
    def parse(cls, name: str, destination: int) -> Key | None:
        """The key of a name in a destination's mailbox; None if the name is no message's."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        step, operation, source = match.groups()
        number = _PARTY_NUMBERS.get(source)
        return cls(int(step), operation, int(source) if number is None else number, destination)

    def pack(self) -> bytes:
        """`KEY_BYTES`: step 4, operation 40 (ASCII, zero-padded), source 4, destination 4."""
        return _PACKED.pack(self.step, self.operation.encode(), self.source, self.destination)

    @classmethod
    def unpack(cls, raw: bytes | bytearray) -> Key:
        """From what `pack` gave. Raises ValueError if the bytes are no key."""
        step, operation, source, destination = _PACKED.unpack(raw)
        return cls(step, operation.rstrip(b"\0").decode("ascii"), source, destination)

    def __str__(self) -> str:
        return (
            f"{self.operation} of step {self.step} "
            f"from {party_name(self.source)} to {party_name(self.destination)}"
        )


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
    """What the covered bytes of a header say.

    Args:
        dtype: a number of `message.DTYPES`.
    """

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
