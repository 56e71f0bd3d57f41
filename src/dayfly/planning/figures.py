"""Figures with their spread, and the link between a function and its store as figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, Self

from dayfly.dataclass_json import ABOVE_0, Bound
from dayfly.elementwise import by_value, choice


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, and how far it can be trusted.

    Attributes:
        value: the median.
        low: the lower quartile of the measurements.
        high: the upper quartile.
        count: of measurements; 0: it was written down, not measured.
    """

    value: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Of measurements. Raises ValueError if there is none."""
        ordered = sorted(values)
        if not ordered:
            raise ValueError("a figure of no measurements")
        quarter = (len(ordered) - 1) // 4
        return cls(median(ordered), ordered[quarter], ordered[-1 - quarter], len(ordered))

    @classmethod
    def given(cls, value: float) -> Self:
        """One that somebody says."""
        return cls(value, value, value, 0)

    def times(self, factor: float) -> Self:
        """Returns the figure and its spread, multiplied."""
        return replace(
            self, value=self.value * factor, low=self.low * factor, high=self.high * factor
        )

    #: In files, a plain number stands for one that somebody says.
    from_number = given

    def check_read(self) -> None:
        """Checks a figure that was read from a file.

        Raises:
            ValueError: the value does not lie between `low` and `high`.
        """
        if not self.low <= self.value <= self.high:
            raise ValueError("give low <= value <= high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One direction of a function's way to the store.

    A message of s bytes takes `latency_s + s / throughput(s)`, where the throughput saturates with
    size: p (1 - exp(-t s)) (FasDL eq. 2).

    Attributes:
        latency_s: of each message.
        peak_bytes_per_s: p, the throughput of large messages.
        saturation_per_byte: t; infinite: every message has the throughput p.
        cpu_s: CPU time of a message, which its function has no more for computing.
        cpu_s_per_byte: likewise, for each byte.
    """

    latency_s: Figure
    peak_bytes_per_s: Annotated[Figure, ABOVE_0]
    saturation_per_byte: Bound = math.inf
    cpu_s: float = 0.0
    cpu_s_per_byte: float = 0.0

    def throughput(self, nbytes: float) -> float:
        """Bytes a second of a message of this size, its latency left out (FasDL eq. 2);
        elementwise."""
        if self.saturation_per_byte == math.inf:
            return self.peak_bytes_per_s.value
        rate = -by_value(math.expm1, -self.saturation_per_byte * nbytes)
        found: float = self.peak_bytes_per_s.value * choice(nbytes, rate, 1.0)
        return found

    def occupied_s(self, nbytes: float) -> float:
        """How long a message of this size keeps the line busy; elementwise."""
        return nbytes / self.throughput(nbytes)

    def message_s(self, nbytes: float) -> float:
        """How long a message of this size takes alone."""
        return self.latency_s.value + self.occupied_s(nbytes)
