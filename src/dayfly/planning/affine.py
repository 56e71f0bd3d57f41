"""Lines: what n samples, or bytes, take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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


def total(lines: Iterable[Affine], n: float) -> float:
    """Returns what all of these lines take of n; calls would take longer than the sum."""
    return sum([line.fixed + line.each * n for line in lines])
