"""Where everything lies in a segment, the file with all messages of one sender.

    offset        what
         0        header: 64-bit words, numbered below, and from byte 2048 on the doorbells
      4096        buckets: 32-bit numbers of entries, a hash table with open addressing
    a page on     entries: 128 bytes each, which message lies where
    a page on     arena: the messages, each at a multiple of 64 bytes

An entry:

    offset  bytes  field
         0      8  commit word: the message's sequence number; 0 as long as it does not count
         8      8  sequence number of the message that was dropped, whatever the entry holds now
        16      8  digest of the address
        24      8  where in the arena the message begins
        32      8  its size in bytes, header and payload
        64     64  address: step, source, destination (4 bytes each), operation (40 bytes), zeros

All numbers are in the machine's order of bytes: everybody who maps a segment is on one machine.
The file is sparse: its arena is as large as all senders' may be together. Only the part below
`TOUCHED_BYTES` (and entries below `TOUCHED_SLOTS`) may be used.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import xxhash

from dayfly.errors import WireError
from dayfly.wire.keys import Key

PAGE_BYTES = 4096
#: Messages begin at multiples of this.
ALIGN_BYTES = 64
ENTRY_BYTES = 128
ENTRY_WORDS = ENTRY_BYTES // 8

MAGIC = int.from_bytes(b"dfsegmnt", "little")
VERSION = 1

# Words of the header, by number.
W_MAGIC, W_VERSION, W_SENDERS, W_SLOTS, W_BUCKETS, W_ARENA_BYTES = range(6)
#: Not 0: the run's messages were removed, and nobody reads what is put here.
W_GONE = 6
#: The sequence number that was given last.
W_SEQUENCE = 7
#: Who wrote last, a random number: whoever finds another's looks at the whole index first.
W_WRITER = 8
#: Entries, and bytes of the arena, that the coordinator has touched: these may be used.
W_TOUCHED_SLOTS, W_TOUCHED_BYTES = 9, 10
#: Entries from here on are free. Bytes of the arena from here on were never used.
W_USED_SLOTS, W_USED_BYTES = 11, 12
#: Changes whenever messages were dropped: nanoseconds of a clock.
W_DROPPED_AT = 13
#: What a waiting writer needs to be touched; 0: nothing.
W_WANTED_SLOTS, W_WANTED_BYTES = 14, 15
#: Why it will not get that: one of the numbers below; 0: it may.
W_REFUSED = 16
REFUSED_BUDGET, REFUSED_DISK, REFUSED_FAILED = 1, 2, 3
#: A writer that uses more of the arena than this asks for more to be touched, without waiting.
W_ASK_BYTES = 17
#: Rises whenever an entry goes to another bucket.
W_MOVES = 18

#: 32-bit numbers in the header, by number: the doorbells.
BELLS_FROM = 512
#: Rings when more was touched; in the coordinator's segment, when more is to be touched.
BELL_TOUCHED, BELL_WANTED = BELLS_FROM, BELLS_FROM + 1
_BELL_BOXES = BELLS_FROM + 2
_BOXES = 256

#: What a bucket holds if not the number of an entry plus 1.
EMPTY = 0

#: A slot for so many bytes of a sender's share of the budget, and between these bounds.
_BYTES_A_SLOT = 16 * 1024
_LEAST_SLOTS, _MOST_SLOTS = 256, 2**16
#: Every rank may be sent so many messages by every other at once, at least.
_SLOTS_A_PEER = 16

ENTRY = np.dtype(
    {
        "names": ["sequence", "dropped", "digest", "offset", "size", "step", "destination"],
        "formats": ["=u8", "=u8", "=u8", "=u8", "=u8", "=u4", "=i4"],
        "offsets": [0, 8, 16, 24, 32, 64, 72],
        "itemsize": ENTRY_BYTES,
    }
)
_FIELDS = struct.Struct("=QQQQQ24x64s")
_ADDRESS = struct.Struct("=Iii40s12x")
ADDRESS_AT, ADDRESS_BYTES = 64, _ADDRESS.size

assert _FIELDS.size == ENTRY_BYTES
assert ENTRY_BYTES - ADDRESS_AT == ADDRESS_BYTES


@dataclass(frozen=True, slots=True)
class SegmentLayout:
    """Sizes of a segment.

    Args:
        senders: ranks that may send, beside the coordinator.
    """

    senders: int
    slots: int
    arena_bytes: int

    @classmethod
    def of(cls, senders: int, budget_bytes: int) -> SegmentLayout:
        """The layout with which all segments together keep within a budget.

        Raises WireError if the budget is too small for the segments themselves.
        """
        share = budget_bytes // (senders * _BYTES_A_SLOT)
        slots = _power_of_2(max(_LEAST_SLOTS, _SLOTS_A_PEER * senders, min(share, _MOST_SLOTS)))
        fixed = (senders + 1) * cls(senders, slots, 0).arena_at
        arena_bytes = (budget_bytes - fixed) // PAGE_BYTES * PAGE_BYTES
        if arena_bytes < (senders + 1) * PAGE_BYTES:
            raise WireError(
                f"{budget_bytes / 2**20:.1f} MiB are too few for the messages of {senders} "
                f"workers, whose lists alone take {fixed / 2**20:.1f} MiB: raise --log-budget"
            )
        return cls(senders, slots, arena_bytes)

    @property
    def buckets(self) -> int:
        """Size of the hash table: it is never more than half full."""
        return 2 * self.slots

    @property
    def entries_at(self) -> int:
        """Where in the file the entries begin."""
        return PAGE_BYTES + _pages(4 * self.buckets)

    @property
    def arena_at(self) -> int:
        """Where in the file the arena begins; what header, buckets and entries take."""
        return self.entries_at + _pages(ENTRY_BYTES * self.slots)

    @property
    def file_bytes(self) -> int:
        """The file's size, most of it holes."""
        return self.arena_at + self.arena_bytes


def bell_of(destination: int) -> int:
    """The number of the doorbell for messages to a rank, or to EVERYONE or COORDINATOR."""
    return _BELL_BOXES + (destination + 2 if destination + 2 < _BOXES else destination % _BOXES)


def address_of(key: Key) -> tuple[bytes, int]:
    """A key as it stands in an entry, and its digest."""
    address = _ADDRESS.pack(key.step, key.source, key.destination, key.operation.encode("ascii"))
    return address, xxhash.xxh3_64_intdigest(address)


def digested(address: bytes) -> tuple[bytes, int]:
    """An address with its digest."""
    return address, xxhash.xxh3_64_intdigest(address)


def key_of(address: bytes) -> Key:
    """The key of an address. Raises ValueError if it is none's."""
    step, source, destination, operation = _ADDRESS.unpack(address)
    return Key(step, operation.rstrip(b"\0").decode("ascii"), source, destination)


def pack_entry(address: bytes, digest: int, offset: int, size: int) -> bytes:
    """An entry that does not count yet."""
    return _FIELDS.pack(0, 0, digest, offset, size, address)


def room_for(size: int) -> int:
    """Bytes of the arena that a message of `size` bytes takes."""
    return max(ALIGN_BYTES, -(-size // ALIGN_BYTES) * ALIGN_BYTES)


def _pages(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def _power_of_2(least: int) -> int:
    return 1 << (least - 1).bit_length()
