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

from dayfly.planning.channels import Means
from dayfly.planning.profile import SizeProfile
from dayfly.planning.work import direction
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.streams import Direction


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
    """One direction of a way.

    part: of its rate that is left. store_bytes_per_s: of all functions together, infinite if
    nothing limits them. speed: CPU seconds a second of the function. in_flight: messages at once.
    """

    direction: Direction
    part: float = 1.0
    store_bytes_per_s: float = math.inf
    speed: float = 1.0
    in_flight: int = 1

    @property
    def latency_s(self) -> float:
        """Of a message."""
        return self.direction.latency_s

    def occupied_s(self, nbytes: float, at_once: float = 1.0) -> float:
        """How long a message of a row of them keeps the line busy, when so many functions carry.

        As long as its bytes take, or its work for the CPU, or its latency, of which as many pass
        beside each other as are in flight; whichever is longest.
        """
        if not nbytes:
            return 0.0
        way, whole = self.direction, HEADER_BYTES + nbytes
        carried_s = max(way.occupied_s(whole) / self.part, whole * at_once / self.store_bytes_per_s)
        of_cpu_s = (way.cpu_s + way.cpu_s_per_byte * nbytes) / self.speed
        return max(carried_s, of_cpu_s, way.latency_s / self.in_flight)


@dataclass(frozen=True, slots=True)
class Way:
    """Both directions of functions of one size."""

    up: Line
    down: Line

    @classmethod
    def of(
        cls, size: SizeProfile, means: Means, part: float = 1.0, store: float | None = None
    ) -> Way:
        """Of functions of this size, with so much of their bandwidth left, at a store of so many
        bytes a second; None: it is not limited."""
        up, down = (
            Line(
                direction=direction(size, transfer),
                part=part,
                store_bytes_per_s=math.inf if store is None else store,
                speed=size.speed,
                in_flight=means.in_flight,
            )
            for transfer in (size.up, size.down)
        )
        return cls(up, down)
