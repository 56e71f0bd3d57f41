"""Requests to stores: how many and how large, and what to do while a store does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock

#: What is counted, by name.
COUNTERS = ("bytes_up", "bytes_down", "requests", "puts", "gets")


@dataclass(slots=True)
class Traffic:
    """Bytes and requests, counted by this process. Of messages, payload and header bytes.

    requests: puts, gets, and questions whether something is there.
    """

    bytes_up: int = 0
    bytes_down: int = 0
    requests: int = 0
    puts: int = 0
    gets: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def count(self, *, up: int | None = None, down: int | None = None, requests: int = 1) -> None:
        """Add requests to the counters; safe from any thread.

        up: bytes of puts, 0 for one that came second. down: bytes of gets. Neither: what was
        asked moved nothing.
        """
        with self._lock:
            self.bytes_up += up or 0
            self.bytes_down += down or 0
            self.requests += requests
            self.puts += requests if up is not None else 0
            self.gets += requests if down is not None else 0

    def counters(self) -> dict[str, int]:
        """All of them, by name."""
        with self._lock:
            return {name: getattr(self, name) for name in COUNTERS}


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
