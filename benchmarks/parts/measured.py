"""What one run of one side came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of one side.

    steps_per_s: of the measured steps, from the end of the one before them to the end of the last.
    losses: of every step, the mean over the global batch. parts_ms: what a measured step consists
    of, in ms, the mean over steps and processes; `step` is the whole, and `fastest tenth` the
    time below which a tenth of the steps are.
    """

    steps_per_s: float
    losses: Sequence[float]
    parts_ms: Mapping[str, float] = field(default_factory=dict)


def fastest_tenth(times: Sequence[float]) -> float:
    """The time below which a tenth of the times are."""
    return quantiles(times, n=10, method="inclusive")[0] if len(times) > 1 else times[0]


def furthest_apart(ours: Sequence[float], theirs: Sequence[float]) -> tuple[int, float]:
    """The step whose losses differ most, and by what share of the larger of the loss and 1.

    Losses that are no number are infinitely far apart. Raises ValueError for different lengths.
    """
    apart = [
        difference if (difference := abs(a - b) / max(1.0, abs(b))) == difference else float("inf")
        for a, b in zip(ours, theirs, strict=True)
    ]
    worst = max(range(len(apart)), key=apart.__getitem__)
    return worst, apart[worst]
