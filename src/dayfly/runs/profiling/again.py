"""How often functions are measured, and again if their figures are in doubt; the better ones count.

    all sizes once  ->  doubts  ->  those in doubt again  ->  doubts  ->  ...  at most `most` times

By then what disturbed the first measurement may be over. What stays in doubt is said in the
profile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dayfly.errors import RequestError
from dayfly.planning.conditions import Conditions, Pace, contradictions, disturbances
from dayfly.planning.function_kinds import memory_label
from dayfly.planning.profile import SizeProfile
from dayfly.runs.profiling.neighbours import TooSmall

#: Messages of which sizes are sent.
_SIZES = tuple(2**power for power in range(10, 25, 2))
_QUICK_SIZES = tuple(2**power for power in (10, 14, 18, 22, 24))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How often all is measured.

    Attributes:
        attempts: times that functions of one size are measured, at most.
        idle: functions that do nothing.
        life_s: seconds in which steps and their parts are timed.
        messages: sizes of messages; rows: of each; sums: of the collective.
        beside_s: seconds in which passes are timed beside messages.
        paces: pieces of work whose mean is the machine's pace.
    """

    attempts: int
    idle: int
    life_s: float
    messages: tuple[int, ...]
    rows: int
    sums: int
    beside_s: float
    paces: int

    @classmethod
    def of(cls, *, quick: bool, repeat: int) -> Effort:
        """Returns that of a request.

        Raises RequestError.

        Args:
            repeat: times as much of everything.
        """
        if repeat < 1:
            raise RequestError(f"repeat is {repeat}: give 1 or more")
        return cls(
            attempts=1 if quick else 3,
            idle=repeat * (3 if quick else 7),
            life_s=repeat * (3.0 if quick else 8.0),
            messages=_QUICK_SIZES if quick else _SIZES,
            rows=repeat * (3 if quick else 5),
            sums=repeat * (10 if quick else 30),
            beside_s=repeat * (0.7 if quick else 1.5),
            paces=5 if quick else 20,
        )


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
