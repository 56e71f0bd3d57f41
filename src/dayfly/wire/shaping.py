"""A function's links to the store at given rates: delays each transfer as long as it would take.

Each direction is a line that carries bytes one after another at its rate. A transfer is timed from
its start: time for which the line was idle is not credited.

    one transfer         | bytes at the rate | latency |          the call returns here
                                             ^ the line is free for the next

Each call pays its latency; requests that are under way at once, as the engine has them, pay it
beside each other, as in `virtual.simulate`. If a call takes longer than it should (copying, a late
wake-up), the excess is taken off the thread's next call.

A message is stored when its latency has passed, so readers see it no earlier than in virtual time,
and a put that has returned is safe. A get waits for its message, then pays its own bytes and
latency: a put and a get cost b/up + latency + b/down + latency.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dayfly.dataclass_json import Positive

#: Lines are shared in pieces of so many seconds, so that a small message is not stuck behind a
#: large one.
PIECE_S = 0.01
#: Requests at once to what is in memory that fill a line: each waits for its latency.
IN_FLIGHT = 8
#: A call within this time of the thread's last makes up for what that one was late.
_SOON_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a line is to carry, in bytes a second each way; None: as fast as it goes.

    Args:
        latency_s: seconds that are added to each request to the store.
    """

    up_bytes_per_s: Positive | None = None
    down_bytes_per_s: Positive | None = None
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        for rate in (self.up_bytes_per_s, self.down_bytes_per_s):
            if rate is not None and not rate > 0:
                raise ValueError(f"a rate of {rate} bytes a second: must be above 0")
        if not 0 <= self.latency_s < float("inf"):
            raise ValueError(f"a latency of {self.latency_s} s: must be 0 or more")

    @property
    def limited(self) -> bool:
        """Whether anything is limited at all."""
        return self != Rates()


class _Row(threading.local):
    """A thread's last transfer: when the line was free after it, and when its call returned."""

    free_s = 0.0
    returned_s = float("-inf")


class LinkDirection:
    """One direction. All threads of a function share it.

    Args:
        rate_bytes_per_s: None: no time for bytes, the latency alone.
        clock, sleep: for tests.
    """

    def __init__(
        self,
        rate_bytes_per_s: float | None,
        latency_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate = rate_bytes_per_s
        self._latency_s = latency_s
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_s = float("-inf")
        self._row = _Row()

    def ask(self) -> float:
        """When a transfer that this thread asks for now starts, if the line is free."""
        now, row = self._clock(), self._row
        late_s = row.returned_s - row.free_s - self._latency_s
        return now - late_s if now - row.returned_s < _SOON_S else now

    def carry(self, nbytes: int, start_s: float, ahead_s: float = 0.0) -> float:
        """Wait while the bytes go through, from `start_s`, and for the latency.

        Returns `ahead_s` early, for a caller that needs so long to store them; it calls `done`
        when it has. Returns when the line is free.
        """
        whole_s = 0.0 if self._rate is None else nbytes / self._rate
        pieces = math.ceil(whole_s / PIECE_S)
        at = start_s
        for _ in range(pieces):
            self._wait_until(at - ahead_s)
            with self._lock:
                at = self._free_s = max(at, self._free_s) + whole_s / pieces
        self._wait_until(at + self._latency_s - ahead_s)
        return at

    def done(self, free_s: float) -> None:
        """The transfer that `carry` returned for is over; waits if that is early."""
        self._wait_until(free_s + self._latency_s)
        self._row.free_s = free_s
        self._row.returned_s = self._clock()

    def _wait_until(self, then_s: float) -> None:
        while (left_s := then_s - self._clock()) > 0:
            self._sleep(left_s)


class ShapedLink:
    """A function's way to the store and back; its channel and its store share them."""

    def __init__(self, rates: Rates) -> None:
        self.up = LinkDirection(rates.up_bytes_per_s, rates.latency_s)
        self.down = LinkDirection(rates.down_bytes_per_s, rates.latency_s)
        self._latency_s = rates.latency_s

    def ask_only(self) -> None:
        """Wait for the answer to a request that carries no bytes to speak of."""
        time.sleep(self._latency_s)
