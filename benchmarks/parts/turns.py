"""Measurements of several sides in turns, so that what else the machine does weighs on all.

round 0   A  B  C
round 1   B  C  A
round 2   C  A  B
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks.parts.measured import furthest_apart
from benchmarks.parts.spread import say
from dayfly.errors import RunFailed

#: Steps before all others: buckets are rebuilt, shapes inferred, pages touched.
_WARM_STEPS = 3
#: Steps whose time tells how many make a measurement, and the fewest and the most of one.
_TRIED_STEPS, _FEWEST, _MOST = 2, 2, 400
#: How far losses of two sides may be apart, as a share of the larger of the loss and 1.
_TOLERANCE = 0.005

#: Losses by rank, step by step; None where a rank knows none.
Losses = list[list[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Steps that were taken in a row. step_s: of one. cpu_s: of one, mean of the processes."""

    step_s: float
    cpu_s: float
    losses: Losses


class Side(Protocol):
    """What is measured in turns with others."""

    def take(self, count: int) -> Taken:
        """Take so many steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurns:
    """steps: of a measurement. seconds: of a step, by side and round; cpu_seconds: of processor.

    losses_apart: of any step.
    """

    steps: int
    seconds: dict[str, list[float]]
    cpu_seconds: dict[str, list[float]]
    losses_apart: float

    def ratios(self, above: str, below: str) -> list[float]:
        """Round by round, of measurements that followed each other."""
        return [a / b for a, b in zip(self.seconds[above], self.seconds[below], strict=True)]


def in_turns(
    what: str,
    sides: Mapping[str, Side],
    rounds: int,
    seconds: float,
    *,
    unlike: frozenset[str] = frozenset(),
) -> InTurns:
    """Measure the sides in turns, each for about so many seconds a round.

    All take equally many steps of the same program, and must have the same losses, but for those
    that are `unlike` the others. Raises RunFailed if they have not.
    """
    losses: dict[str, list[float]] = {name: [] for name in sides}
    took_s: dict[str, list[float]] = {name: [] for name in sides}
    cpu_s: dict[str, list[float]] = {name: [] for name in sides}

    def take(name: str, count: int) -> Taken:
        taken = sides[name].take(count)
        losses[name] += [loss for rank in taken.losses for loss in rank if loss is not None]
        return taken

    for name in sides:
        take(name, _WARM_STEPS)
    slowest_s = max(take(name, _TRIED_STEPS).step_s for name in sides)
    steps = max(_FEWEST, min(_MOST, round(seconds / slowest_s)))
    names = list(sides)
    for one in range(rounds):
        turn = one % len(names)
        for name in (*names[turn:], *names[:turn]):
            taken = take(name, steps)
            took_s[name].append(taken.step_s)
            cpu_s[name].append(taken.cpu_s)
        say(
            f"{what}, round {one + 1} of {rounds}: "
            + ", ".join(f"{name} {1e3 * took_s[name][-1]:.4g} ms" for name in names)
        )
    alike = [name for name in names if name not in unlike]
    apart = max((_apart(what, alike[0], name, losses) for name in alike[1:]), default=0.0)
    return InTurns(steps=steps, seconds=took_s, cpu_seconds=cpu_s, losses_apart=apart)


def _apart(what: str, one: str, other: str, losses: Mapping[str, list[float]]) -> float:
    number, apart = furthest_apart(losses[one], losses[other])
    if not apart <= _TOLERANCE:
        raise RunFailed(
            f"{what}: the sides did not do the same, so their speed says nothing: a loss is "
            f"{losses[one][number]:.6g} by {one} and {losses[other][number]:.6g} by {other}"
        )
    return apart
