"""What is measured under caps, and for how long: pure functions of what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.parts.predictions import ITEM_BYTES, AllReduce
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.collectives.overlapped import bound_s

#: At most so many times the bound in virtual time: what is measured in full. The others, which may
#: take five times as long, get a third of the time, but so many operations at least.
_FAST = 1.1
_SLOW_SHARE = 1 / 3
_LEAST_OPERATIONS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One size on one number of workers. MB and MB/s: of 10^6 bytes; rate: each way."""

    workers: int
    mb: float
    rate_mb_per_s: float
    latency_ms: float
    collectives: Sequence[str]

    def __str__(self) -> str:
        return (
            f"{self.workers} workers, {self.mb:g} MB, {self.rate_mb_per_s:g} MB/s each way, "
            f"{self.latency_ms:g} ms"
        )

    @property
    def size_bytes(self) -> int:
        """Of the buffer, in whole elements."""
        return size_bytes(self.mb)

    @property
    def bytes_per_s(self) -> float:
        """The rate of a worker's link, each way."""
        return 1e6 * self.rate_mb_per_s

    @property
    def bound_s(self) -> float:
        """Least seconds over a store that only keeps."""
        return bound_s(self.size_bytes, self.workers, self.bytes_per_s)

    def one(self, collective: str, abilities: Abilities) -> AllReduce:
        """An all-reduce of the case."""
        return AllReduce(
            name=collective,
            world_size=self.workers,
            size_bytes=self.size_bytes,
            bytes_per_s=self.bytes_per_s,
            latency_s=self.latency_ms / 1e3,
            abilities=abilities,
        )


def size_bytes(mb: float) -> int:
    """Of a buffer of so many MB, in whole elements."""
    return round(1e6 * mb) // ITEM_BYTES * ITEM_BYTES


def in_a_row(asked: int, ratio: float, in_full: bool) -> int:
    """How many all-reduces are measured in a row that take `ratio` times the bound."""
    if in_full or ratio <= _FAST:
        return asked
    return max(min(asked, _LEAST_OPERATIONS), int(_SLOW_SHARE * asked / ratio))
