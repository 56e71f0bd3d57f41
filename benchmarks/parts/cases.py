"""What is measured under caps, and how long it will take: pure functions of what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.parts.predictions import (
    CLOSED_FORMS,
    ITEM_BYTES,
    bound_s,
    link_of,
    misfit,
    virtual_s,
)
from dayfly.errors import RequestError
from dayfly.wire.channels.base import Abilities
from dayfly.wire.collectives import COLLECTIVES

#: At most so many times the bound by virtual time: what is measured in full. The others, which
#: take up to five times as long, are measured for half that time.
_FAST = 1.1
_SLOW_SHARE = 0.5
_LEAST_OPERATIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One size on one number of workers. MB and MB/s: of 10^6 bytes; rate: each way."""

    workers: int
    mb: float
    rate_mb_per_s: float
    latency_ms: float
    collectives: Sequence[str]

    @property
    def size_bytes(self) -> int:
        """Of the buffer, in whole elements."""
        return round(1e6 * self.mb) // ITEM_BYTES * ITEM_BYTES

    @property
    def bytes_per_s(self) -> float:
        """The rate of a worker's link, each way."""
        return 1e6 * self.rate_mb_per_s

    @property
    def bound_s(self) -> float:
        """The least seconds of an all-reduce."""
        return bound_s(self.size_bytes, self.workers, self.bytes_per_s)

    def virtual_ratio(self, collective: str, abilities: Abilities) -> float:
        """Virtual time over the bound."""
        link = link_of(self.bytes_per_s, self.latency_ms / 1e3, abilities)
        took_s = virtual_s(COLLECTIVES[collective], self.workers, self.size_bytes, abilities, link)
        return took_s / self.bound_s

    def formula_ratio(self, collective: str) -> float | None:
        """The paper's formula over the bound; None if there is none."""
        formula = CLOSED_FORMS.get(collective)
        if formula is None:
            return None
        latency_s = self.latency_ms / 1e3
        took_s = formula(self.size_bytes, self.workers, self.bytes_per_s, latency_s)
        return took_s / self.bound_s

    def operations(self, asked: int, ratio: float, in_full: bool) -> int:
        """How many all-reduces of a collective of this (virtual) ratio are measured in a row."""
        if in_full or ratio <= _FAST:
            return asked
        return max(min(asked, _LEAST_OPERATIONS), int(_SLOW_SHARE * asked / ratio))


def fitting(
    asked: Sequence[str] | None, workers: int, size_bytes: int, abilities: Abilities
) -> list[str]:
    """The collectives to measure: those asked for, or all that the channel can carry.

    Raises RequestError if one that was asked for cannot be carried.
    """
    why = {
        name: misfit(COLLECTIVES[name], workers, size_bytes, abilities)
        for name in (COLLECTIVES if asked is None else asked)
    }
    if asked is not None:
        for name, reason in why.items():
            if reason is not None:
                raise RequestError(f"{name} cannot be measured over this channel: {reason}")
    return [name for name, reason in why.items() if reason is None]
