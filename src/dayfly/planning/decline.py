"""Bandwidth that declines with the functions that run at once (FuncPipe section 5.4, figure 7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

#: (functions, part of a function's bandwidth that is left while so many run), rising in functions.
Decline = tuple[tuple[float, float], ...]


def check_decline(decline: Sequence[tuple[float, float]], place: str = "") -> None:
    """Check what `left_of_bandwidth` is to be asked of.

    Args:
        decline: (functions, part of the bandwidth that is left), rising in functions.
        place: begins the errors.

    Raises:
        ValueError: functions do not rise, or a part is not above 0 and at most 1, or more is left
            with more functions.
    """
    counts = [functions for functions, _ in decline]
    if counts != sorted(set(counts)) or any(not 0 <= one < math.inf for one in counts):
        raise ValueError(f"{place}give rising numbers of functions")
    if any(more > fewer for (_, fewer), (_, more) in pairwise(decline)):
        raise ValueError(f"{place}with more functions no more bandwidth is left: let parts fall")
    if any(not 0 < part <= 1 for _, part in decline):
        raise ValueError(f"{place}give the parts that are left, above 0 and at most 1")


def left_of_bandwidth(decline: Sequence[tuple[float, float]], functions: float) -> float:
    """Returns the part of its bandwidth that a function has left when so many run.

    Args:
        decline: (functions, part), rising in functions. Linear between two of them; all of it
            below the first, and beyond the last as much as there.
        functions: that run at once.
    """
    if not decline or functions < decline[0][0]:
        return 1.0
    for (low, at_low), (high, at_high) in pairwise(decline):
        if functions <= high:
            return at_low + (at_high - at_low) * (functions - low) / (high - low)
    return decline[-1][1]
