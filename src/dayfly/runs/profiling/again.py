"""Measures functions again whose figures are in doubt, and keeps the better measurement.

    all sizes once  ->  doubts  ->  those in doubt again  ->  doubts  ->  ...  at most `most` times

By then what disturbed the first measurement may be over. What stays in doubt is said in the
profile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dayfly.planning.conditions import Conditions, Pace, contradictions, disturbances
from dayfly.planning.profile import SizeProfile, memory_label
from dayfly.runs.profiling.neighbours import TooSmall

#: How many times functions of one size are measured, at most.
MOST_ATTEMPTS = 3


def doubts(sizes: Sequence[SizeProfile], cores: int) -> list[tuple[str, ...]]:
    """Returns what speaks against the figures of each size; of none that nobody watched.

    Args:
        sizes: of a profile, by rising memory.
        cores: of the machine.
    """
    samples = min((size.passes[-1].samples for size in sizes if size.passes), default=1)
    paces = [
        Pace(size=memory_label(size.memory_mib), speed=size.speed, pass_s=_pass_s(size, samples))
        for size in sizes
    ]
    said = contradictions(paces)
    return [
        ()
        if size.conditions is None
        else (*disturbances(size.conditions, cores, pace.size), *said.get(at, ()))
        for at, (size, pace) in enumerate(zip(sizes, paces, strict=True))
    ]


def measured_again(
    sizes: Sequence[SizeProfile],
    measures: Sequence[Callable[[], SizeProfile]],
    *,
    cores: int,
    most: int,
    note: Callable[[str], None],
) -> list[SizeProfile]:
    """Returns the sizes with what is still in doubt.

    Args:
        sizes: what was measured first, by rising memory.
        measures: measure each of them once more.
        cores: of the machine.
        most: times that one size is measured, the first time included.
        note: told of what is measured again, and of what stays in doubt.
    """
    found, attempts = list(sizes), [1] * len(sizes)
    while True:
        said = doubts(found, cores)
        again = [at for at, why in enumerate(said) if why and attempts[at] < most]
        if not again:
            break
        for at in again:
            note(f"{'; '.join(said[at])}: measuring them again")
            attempts[at] += 1
            try:
                found[at] = _better(found[at], measures[at](), cores)
            except TooSmall:  # with as much memory as the time before: what there is stays
                continue
    for why in said:
        if why:
            note(f"{'; '.join(why)}: the profile says so, and predictions will")
    return [
        replace(size, conditions=replace(_conditions(size), attempts=attempts[at], doubts=said[at]))
        if size.conditions is not None
        else size
        for at, size in enumerate(found)
    ]


def _better(one: SizeProfile, other: SizeProfile, cores: int) -> SizeProfile:
    """That with less against it; of equal ones the faster, as disturbances only make it longer."""

    def against(size: SizeProfile) -> tuple[int, float]:
        disturbed = disturbances(_conditions(size), cores, memory_label(size.memory_mib))
        return len(disturbed), _pass_s(size, size.passes[-1].samples if size.passes else 1)

    return min(one, other, key=against)


def _conditions(size: SizeProfile) -> Conditions:
    return size.conditions or Conditions()


def _pass_s(size: SizeProfile, samples: int) -> float:
    return sum(line(samples) for line in (*size.forward, *size.backward))
