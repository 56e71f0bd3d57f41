"""Requests to stores: how many and how large, and what to do while a store does not answer."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import TypeVar

from dayfly.errors import DayflyError

Result = TypeVar("Result")

#: Seconds for which a store that does not answer is asked again.
OUTAGE_S = 60.0
#: The same while nothing has started yet, and a person waits.
FIRST_ANSWER_S = 3.0
#: What is counted, by name.
COUNTERS = ("bytes_up", "bytes_down", "requests", "puts", "gets")


@dataclass(slots=True)
class Traffic:
    """Bytes and requests, counted by this process. Of messages, payload and header bytes.

    Args:
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

        Args:
            up: bytes of puts, 0 for one that came second; None: it was no put.
            down: bytes of gets; None: it was no get.
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
        """The pause after so many misses, at least one.

        Args:
            chance: 0 to 1, of the cut.
        """
        whole_s = self.first_s
        for _ in range(misses - 1):
            if whole_s >= self.most_s:
                break
            whole_s *= self.growth
        return min(whole_s, self.most_s) * (1 - chance / 2)


_PAUSES = Backoff(first_s=0.05, most_s=2.0, growth=2.0)


def pause(tries: int = 1) -> None:
    """Leaves a store alone for a while, longer after more tries."""
    time.sleep(_PAUSES.pause_s(tries, random.random()))


class Outage:
    """For how long a store has not answered, over all threads. A store that does ends it.

    Args:
        most_s: how long it may last, and the run goes on.
    """

    def __init__(self, most_s: float = OUTAGE_S) -> None:
        self.most_s = most_s
        self._since_s: float | None = None

    def answered(self) -> None:
        """The store answered."""
        self._since_s = None

    def too_long(self) -> bool:
        """Note that the store did not answer; whether it has not for more than `most_s`."""
        since_s = self._since_s
        if since_s is None:
            self._since_s = since_s = time.monotonic()
        return time.monotonic() - since_s > self.most_s


class Retry:
    """The requests to one store: each is made again while the store does not answer. Thread-safe.

    Args:
        trouble_of: what one of the store's errors comes to; None: it is none of its errors.
        error: makes the exception of a request that is given up, of its text and the cause.
        place: what texts call the store, after the name of the request.
        most_s: for how many seconds a request is made again.

    Attributes:
        outage: of requests that are not made by `insist`, such as those of waits.
    """

    def __init__(
        self,
        trouble_of: Callable[[Exception], Trouble | None],
        error: Callable[[str, Cause], DayflyError],
        place: str,
        most_s: float = OUTAGE_S,
    ) -> None:
        self.outage = Outage(most_s)
        self._trouble_of = trouble_of
        self._error = error
        self._place = place

    def insist(
        self, what: object, act: Callable[[], Result], most_s: float | None = None
    ) -> Result:
        """Acts until the store answers.

        Args:
            what: names the request in errors.
            act: makes it; called again after an error that passes.
            most_s: in place of the store's own.

        Raises:
            DayflyError: the store refuses, or has not answered for `most_s`; see `trouble`.
        """
        outage = Outage(self.outage.most_s if most_s is None else most_s)
        for tries in itertools.count(1):
            try:
                result = act()
            except Exception as error:
                self.trouble(what, error, outage)
                pause(tries)
            else:
                self.outage.answered()
                return result
        raise AssertionError("unreachable")

    def trouble(self, what: object, error: Exception, outage: Outage) -> Trouble:
        """Returns the trouble if it may pass; else raises what `error` of the constructor makes.

        Errors that are not the store's are raised as they are. A store's own words may hold keys
        and signatures, so its error is not shown as the cause either.
        """
        trouble = None if isinstance(error, DayflyError) else self._trouble_of(error)
        if trouble is None:
            raise error
        if not trouble.passing:
            said = f": {trouble.text}"
        elif outage.too_long():
            said = f" has not answered for {outage.most_s:g} s: {trouble.text}"
        else:
            return trouble
        raise self._error(f"{what}{self._place}{said}", trouble.cause) from None
