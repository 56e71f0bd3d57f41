"""Stores that do not answer: what their errors come to, how long to pause, when to give up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """Why a store did not do what it was asked for."""

    DENIED = "denied"
    FULL = "full"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    BEYOND = "beyond its end"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a store's error comes to.

    Attributes:
        text: safe to show.
        passing: whether to try again helps.
        cause: of which kind it is.
    """

    text: str
    passing: bool
    cause: Cause = Cause.UNREACHABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that grow from `first_s` by `growth` up to `most_s`, each cut by up to a half."""

    first_s: float = 0.005
    most_s: float = 1.0
    growth: float = 1.5

    def pause_s(self, misses: int, chance: float) -> float:
        """The pause after so many misses, at least one. chance: 0 to 1, of the cut."""
        whole_s = self.first_s
        for _ in range(misses - 1):
            if whole_s >= self.most_s:
                break
            whole_s *= self.growth
        return min(whole_s, self.most_s) * (1 - chance / 2)


class Outage:
    """For how long a store has not answered, over all threads. A store that does ends it.

    most_s: how long it may last, and the run goes on.
    """

    def __init__(self, most_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_s = most_s
        self._clock = clock
        self._since_s: float | None = None

    def answered(self) -> None:
        """The store answered."""
        self._since_s = None

    def too_long(self) -> bool:
        """Note that the store did not answer; whether it has not for more than `most_s`."""
        since_s = self._since_s
        if since_s is None:
            self._since_s = since_s = self._clock()
        return self._clock() - since_s > self.most_s
