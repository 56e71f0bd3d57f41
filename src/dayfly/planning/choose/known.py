"""Plans that are known while others are sought, wherever either of them run.

A search need not look at what a known plan beats by more than its model errs: it could not be
among the best. What it looks at is bounded by `beats` of the least seconds and the least dollars
that any plan of a kind takes; so a place whose every kind is beaten needs no search at all, and
the front of all places together stays what enumeration would make it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dayfly.planning.choose.front import Front, Point


@dataclass(slots=True)
class Known:
    """The front of all plans that were added.

    Args:
        slack: relative error of both goals within which a plan may still be the better one.
    """

    slack: float = 0.0
    _front: tuple[Point[Any], ...] = ()
    _seconds: list[float] = field(default_factory=list)

    def add(self, points: Iterable[Point[Any]]) -> None:
        """Adds plans."""
        every = [*self._front, *points]
        self._front = Front.of(every).points if every else ()
        self._seconds = [one.seconds for one in self._front]

    def beats(self, seconds: float, usd: float) -> bool:
        """Returns whether a known plan is better in both goals by more than the slack.

        Args:
            seconds: that a plan takes at least.
            usd: that it costs at least.
        """
        at = bisect_left(self._seconds, seconds / (1 + self.slack))
        return at > 0 and self._front[at - 1].usd * (1 + self.slack) < usd
