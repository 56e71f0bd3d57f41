"""Message keys: they tell the whole story.

A key says which step a message belongs to, what operation within the step it is part of, who sent
it and who reads it. Keys are deterministic, so a worker that died can start again, look for the
messages that it missed, and find those that it had already sent. The run and the generation are
the channel's (see `channels.base.Namespace`), the same for all messages of one life of a run.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

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
    def box(self) -> str:
        """The reader's box, for channels that keep one place a reader: `to-3`, `to-everyone`."""
        return f"to-{party_name(self.destination)}"

    @property
    def name(self) -> str:
        """The message's name within its box, sorting by step: `000000012.grad-part.3`."""
        return f"{self.step:09d}.{self.operation}.{party_name(self.source)}"

    @classmethod
    def parse(cls, name: str, destination: int) -> Key | None:
        """The key of a name in a destination's box; None if the name is no message's."""
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
