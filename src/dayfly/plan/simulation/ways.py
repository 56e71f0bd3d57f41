"""A function's way to the store, when many functions run at once.

alone                          w(b) = p (1 - exp(-t b)), of a message of b bytes (FasDL eq. 2)
with n functions               w(b) d(n), d falling (FuncPipe section 5.4, figure 7)
of the whole store             C / n, if n functions carry at once (Alibaba: C = 10 Gb/s)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dayfly.plan.figures import Transfer
from dayfly.plan.profile import SizeProfile


def left_of_bandwidth(decline: Sequence[tuple[float, float]], functions: float) -> float:
    """Which part of its bandwidth a function has left when so many run.

    decline: (functions, part), rising in functions. Linear between two of them; all of it below
    the first, and beyond the last as much as there.
    """
    if not decline or functions < decline[0][0]:
        return 1.0
    for (low, at_low), (high, at_high) in pairwise(decline):
        if functions <= high:
            return at_low + (at_high - at_low) * (functions - low) / (high - low)
    return decline[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One direction of a way. part: of its rate that is left. store_bytes_per_s: of all functions
    together, infinite if nothing limits them."""

    transfer: Transfer
    part: float = 1.0
    store_bytes_per_s: float = math.inf

    @property
    def latency_s(self) -> float:
        """Of a message."""
        return self.transfer.latency_s.value

    def bytes_per_s(self, nbytes: float, at_once: float = 1.0) -> float:
        """The rate of a message of this size when so many functions carry one."""
        return min(self.transfer.throughput(nbytes) * self.part, self.store_bytes_per_s / at_once)

    def occupied_s(self, nbytes: float, at_once: float = 1.0) -> float:
        """How long a message keeps the line busy."""
        return nbytes / self.bytes_per_s(nbytes, at_once) if nbytes else 0.0


@dataclass(frozen=True, slots=True)
class Way:
    """Both directions of functions of one size."""

    up: Line
    down: Line

    @classmethod
    def of(cls, size: SizeProfile, part: float, store_bytes_per_s: float | None) -> Way:
        """Of functions of this size, with so much of their bandwidth left, at such a store."""
        whole = math.inf if store_bytes_per_s is None else store_bytes_per_s
        return cls(
            Line(transfer=size.up, part=part, store_bytes_per_s=whole),
            Line(transfer=size.down, part=part, store_bytes_per_s=whole),
        )
