"""Which requests read the ranges that are asked for, and where the bytes of an answer go.

ranges   |aa|b|    |c|                         |dddddddddddddddddd|
reads    |<- one ->|                           |<- 8 MiB ->|<- ->|
          the bytes between are read, and thrown away
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

#: The most bytes that one request reads, and how many requests go side by side.
READ_BYTES, READS_AT_ONCE = 8 * 2**20, 8
#: Ranges that are no further apart are read by one request: it costs more than so many bytes.
GAP_BYTES = 64 * 2**10


@dataclass(slots=True)
class Read:
    """A request that reads bytes from `start` to `stop`, and where they go: offset and memory."""

    start: int
    stop: int
    into: list[tuple[int, memoryview]] = field(default_factory=list)


def plan_reads(ranges: Sequence[tuple[int, memoryview]]) -> list[Read]:
    """Returns the requests that read these ranges: small neighbours together, large ones cut.

    Overlapping ranges are read by requests of their own.
    """
    reads: list[Read] = []
    for offset, into in sorted(ranges, key=lambda one: one[0]):
        for begin in range(0, into.nbytes, READ_BYTES):
            piece = into[begin : begin + READ_BYTES]
            start = offset + begin
            stop = start + piece.nbytes
            last = reads[-1] if reads else None
            if (
                last is None
                or not 0 <= start - last.stop <= GAP_BYTES
                or stop - last.start > READ_BYTES
            ):
                reads.append(last := Read(start, stop))
            last.stop = stop
            last.into.append((start, piece))
    return reads


def scatter(chunks: Iterable[memoryview], read: Read) -> int:
    """Copies the bytes of an answer to where they go; returns the position after the last one."""
    at, targets = read.start, iter(read.into)
    offset, into = next(targets)
    for rest in chunks:
        while rest.nbytes:
            if at == offset + into.nbytes:
                offset, into = next(targets, (read.stop, into[:0]))
            # Before the next target there are bytes that nobody asked for.
            count = min(rest.nbytes, (offset if at < offset else offset + into.nbytes) - at)
            if count == 0:
                return at
            if at >= offset:
                into[at - offset : at - offset + count] = rest[:count]
            rest = rest[count:]
            at += count
    return at
