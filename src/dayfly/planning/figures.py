"""Figures of a profile: measured ones with their spread, and times that grow with samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Self

from dayfly.dataclass_json import ABOVE_0, Bound


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, and how far it can be trusted.

    value: the median. low, high: quartiles of what was measured. count: of measurements; 0: it was
    not measured but written down.
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

    #: In files, a plain number stands for one that somebody says.
    from_number = given

    def check_read(self) -> None:
        """Raises ValueError for a value outside its quartiles."""
        if not self.low <= self.value <= self.high:
            raise ValueError("give low <= value <= high")


@dataclass(frozen=True, slots=True)
class Affine:
    """fixed + each * n: a time in seconds of n samples, or bytes of n samples."""

    fixed: float
    each: float

    def __call__(self, n: float) -> float:
        return self.fixed + self.each * n

    def __add__(self, other: Affine) -> Affine:
        return Affine(self.fixed + other.fixed, self.each + other.each)

    def times(self, factor: float) -> Affine:
        """The same, so many times."""
        return Affine(self.fixed * factor, self.each * factor)


NOTHING = Affine(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One direction of a function's way to the store.

    A message of s bytes takes `latency_s + s / throughput(s)`, where the throughput saturates with
    size: p (1 - exp(-t s)) (FasDL eq. 2), with p = peak_bytes_per_s and t = saturation_per_byte;
    infinite t: p for any size. cpu_s, cpu_s_per_byte: CPU time that a message takes of its
    function, which it has no more for computing.
    """

    latency_s: Figure
    peak_bytes_per_s: Annotated[Figure, ABOVE_0]
    saturation_per_byte: Bound = math.inf
    cpu_s: float = 0.0
    cpu_s_per_byte: float = 0.0

    def throughput(self, nbytes: float) -> float:
        """Bytes a second of a message of this size, its latency left out (FasDL eq. 2)."""
        rate = -math.expm1(-self.saturation_per_byte * nbytes) if nbytes else 1.0
        return self.peak_bytes_per_s.value * rate

    def occupied_s(self, nbytes: float) -> float:
        """How long a message of this size keeps the line busy."""
        return nbytes / self.throughput(nbytes) if nbytes else 0.0

    def message_s(self, nbytes: float) -> float:
        """How long a message of this size takes alone."""
        return self.latency_s.value + self.occupied_s(nbytes)
