"""The machine while functions of one memory size were measured, and what speaks against the result.

    stolen        CPU time that the machine's host gave to others       of what was wanted
    other_cores   CPU time of processes that are not dayfly's           a second
    pace_s        mean CPU time of a fixed piece of work                before, between and after
    spread        quartiles of the time of a pass                       over its median

Each has a bound, above which the profile says so. A bound is about what a prediction is off by when
nothing was wrong (`planning.intervals`). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.dataclass_json import Count

#: Of the CPU time that was wanted, the most that the host may have given to others.
MOST_STOLEN = 0.03
#: Of the machine's cores, the most that other processes may have used on average.
MOST_OTHERS = 0.1
#: Distance of the quartiles of passes over their median.
MOST_SPREAD = 0.25
#: Slowest over fastest of the fixed pieces of work.
MOST_PACE = 1.15
#: How many times the CPU time of another size a pass may take in functions of one size: where a
#: function stands still most of the time, caches are cold whenever it goes on.
MOST_APART = 1.4
#: Functions with more CPU may be slower by so much before that cannot be.
MOST_SLOWER = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The machine while functions of one size were measured.

    Attributes:
        stolen: CPU time that the host gave to others, over all that the machine's processes wanted;
            None: the kernel does not tell.
        other_cores: cores on which processes computed that are not dayfly's; None as above.
        pace_s: mean CPU seconds of a fixed piece of work, in the order of time.
        spread: distance of the quartiles of passes over their median; 0: there were too few.
        attempts: how many times functions of this size were measured; the figures are of the best.
        doubts: what speaks against the figures, a sentence each.
    """

    stolen: float | None = None
    other_cores: float | None = None
    pace_s: tuple[float, ...] = ()
    spread: float = 0.0
    attempts: Count = 1
    doubts: tuple[str, ...] = ()

    @property
    def pace_change(self) -> float:
        """Ratio of the slowest to the fastest mean."""
        least = min(self.pace_s, default=0.0)
        return max(self.pace_s) / least if least else 1.0


def disturbances(found: Conditions, cores: int, size: str) -> tuple[str, ...]:
    """Returns what disturbed a measurement beyond the bounds, a sentence each.

    Args:
        found: while it was made.
        cores: of the machine.
        size: of the functions, as people read it.
    """
    said = []
    while_measured = f"while functions of {size} were measured"
    if (found.stolen or 0.0) > MOST_STOLEN:
        said.append(
            f"the host of this machine took {found.stolen:.0%} of the CPU time {while_measured}"
        )
    if (found.other_cores or 0.0) > MOST_OTHERS * cores:
        said.append(
            f"other processes used {found.other_cores:.2g} of {cores} cores {while_measured}"
        )
    if found.spread > MOST_SPREAD:
        said.append(
            f"passes in functions of {size} differ: the middle half of them lies within "
            f"{found.spread:.0%} of the median"
        )
    if found.pace_change > MOST_PACE:
        said.append(f"the machine's pace changed by {found.pace_change - 1:.0%} {while_measured}")
    return tuple(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast functions of one size compute.

    Attributes:
        size: as people read it.
        speed: CPU seconds a second of one thread.
        pass_s: wall seconds of a pass, of as many samples as that of the other sizes.
    """

    size: str
    speed: float
    pass_s: float

    @property
    def cpu_s(self) -> float:
        """CPU seconds of a pass."""
        return self.pass_s * self.speed


def contradictions(paces: Sequence[Pace]) -> dict[int, tuple[str, ...]]:
    """Returns what cannot be true of sizes beside each other, by the numbers of those to measure
    again. Whatever disturbs a measurement makes it longer, so it is always the longer one.

    Args:
        paces: of all sizes, by rising memory.
    """
    said: dict[int, tuple[str, ...]] = {}
    for at, one in enumerate(paces):
        slower = [
            other
            for other in paces
            if other.speed < one.speed and one.pass_s > MOST_SLOWER * other.pass_s
        ]
        if slower:
            other = min(slower, key=lambda pace: pace.pass_s)
            said[at] = (
                f"functions of {one.size} have {one.speed / other.speed:.2g} times the CPU of "
                f"those of {other.size}, and were {one.pass_s / other.pass_s - 1:.0%} slower",
            )
            continue
        least = min(paces, key=lambda pace: pace.cpu_s)
        if one.cpu_s > MOST_APART * least.cpu_s:
            said[at] = (
                f"the same pass took {one.cpu_s / least.cpu_s:.2g} times the CPU time in functions "
                f"of {one.size} as in those of {least.size}",
            )
    return said
