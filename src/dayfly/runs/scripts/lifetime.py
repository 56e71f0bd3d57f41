"""What a script may ask about its life: how much is left of it, and whether to save now.

    rank 0    decides (`due`), and puts an announcement a second, about
    others    read it at the one call that needs it, and answer the same
    all       tell rank 0 once when their lives end, which may have begun earlier than its own

All of these messages lie with the coordinator, so they outlive who put them: a script may end, or
never ask, and nobody waits. Deadlines are told in wall-clock time, as they are read long after they
were told; the spare time covers what clocks differ by.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

from dayfly.closing import Closing
from dayfly.errors import WireError
from dayfly.runs.scripts.due import Announcement, Decisions
from dayfly.wire.channels.base import Channel
from dayfly.wire.execution import wait_patiently
from dayfly.wire.keys import COORDINATOR, Key

#: Announcements that are kept for ranks that are behind, at least: for a minute, about.
_KEPT = 64


def remaining_s() -> float:
    """Returns the seconds until the platform ends this function.

    Infinite outside of `dayfly run`, and where functions have no lifetime.

    Examples:
        >>> dayfly.remaining_s()
        inf
    """
    return _living[0].remaining_s() if _living else float("inf")


def checkpoint_due(*, every_s: float = 60.0) -> bool:
    """Returns whether the script should save its state now. False outside of `dayfly run`.

    Call it once a step in every rank, or in rank 0 alone. The n-th call answers the same in every
    rank, and most calls take microseconds: rank 0 decides, and tells the others about once a
    second. It is true `every_s` seconds after the save before, and once more shortly before the
    first of the functions comes to the end of its life, as late as the longest step and the longest
    save so far allow. After that save, go on: the platform ends the functions in their time, all
    start again, and the script goes on from what it saved. It is never true in a life's first call.

    A save may be cut off by a death at any moment, so write beside the last one, then rename.

    Args:
        every_s: seconds between two saves; rank 0's value counts.

    Raises:
        ValueError: `every_s` is negative.
        WaitTimeout: rank 0 calls less often.

    Examples:
        >>> def save(step):  # under DAYFLY_RUN_DIR, where the script looks when it starts
        ...     print("saved", step)
        >>> for step in range(3):
        ...     if dayfly.checkpoint_due():
        ...         save(step)
    """
    if not every_s >= 0:
        raise ValueError(f"checkpoint_due(every_s={every_s}): give 0 seconds or more")
    return _living[0].checkpoint_due(every_s) if _living else False


class Life(Closing):
    """One rank's life in one function. One thread asks; close it when the script has ended.

    remaining_s: until the platform ends the function. wait_timeout_s: longest wait for rank 0.
    clock, wall_clock: as `time.monotonic` and `time.time`.
    """

    def __init__(
        self,
        channel: Channel,
        rank: int,
        world_size: int,
        remaining_s: Callable[[], float],
        *,
        wait_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.remaining_s = remaining_s
        self._channel = channel
        self._rank = rank
        self._world_size = world_size
        self._wait_timeout_s = wait_timeout_s
        self._clock = clock
        self._wall_clock = wall_clock
        self._closed = False
        # In memory a message takes less than a thread would.
        self._beside = (
            None if channel.immediate else ThreadPoolExecutor(1, thread_name_prefix="dayfly-due")
        )
        # Of rank 0.
        self._decisions = Decisions()
        self._announced: list[Key] = []
        self._sending: list[Future[None]] = []
        self._untold: set[Key] = set()
        self._others_end_s = float("inf")
        # Of the others.
        self._call = -1
        self._next = 1
        self._coming: Future[Announcement] | None = None
        if remaining_s() < float("inf"):
            if rank == 0:
                self._untold = {_deadline(other) for other in range(1, world_size)}
            else:
                end_s = wall_clock() + remaining_s()
                channel.put_bytes(_deadline(rank), json.dumps(end_s).encode())

    def checkpoint_due(self, every_s: float) -> bool:
        """See the function of this name."""
        return self._decide(every_s) if self._rank == 0 else self._follow()

    def close(self) -> None:
        """Send what is to be sent, and end the thread. Raises WireError if it cannot be sent."""
        self._closed = True
        if self._beside is not None:
            self._beside.shutdown(wait=True)
        self._check_sent()

    def _decide(self, every_s: float) -> bool:
        decisions = self._decisions
        self._check_sent()
        now = decisions.begin(self._clock())
        for call in decisions.wanted(self._left_s):
            made = decisions.decide(call, self._left_s(), every_s)
            if self._world_size > 1:
                self._announce(call, made, ahead=call > now)
        return decisions.answer()

    def _left_s(self) -> float:
        """Until the first function is ended whose deadline is known; it is, once it has begun."""
        if self._untold:
            told = self._channel.stored(self._untold)
            for key in told:
                end_s = json.loads(self._channel.get_bytes(key, self._wait_timeout_s))
                self._others_end_s = min(self._others_end_s, end_s)
            self._channel.drop(told)
            self._untold -= told
        return min(self.remaining_s(), self._others_end_s - self._wall_clock())

    def _announce(self, call: int, made: Announcement, *, ahead: bool) -> None:
        key = _announcement(call)
        text = json.dumps({"due": made.due, "following": made.following}).encode()
        self._announced.append(key)
        old: list[Key] = []
        if len(self._announced) >= 2 * _KEPT:
            old, self._announced = self._announced[:_KEPT], self._announced[_KEPT:]

        def say() -> None:
            self._channel.put_bytes(key, text)
            self._channel.drop(old)

        if ahead and self._beside is not None:
            self._sending.append(self._beside.submit(say))
        else:
            say()

    def _check_sent(self) -> None:
        sent = [one for one in self._sending if self._closed or one.done()]
        self._sending = [one for one in self._sending if one not in sent]
        for one in sent:
            one.result()

    def _follow(self) -> bool:
        self._call += 1
        if self._call + 1 == self._next and self._beside is not None and self._call > 0:
            self._coming = self._beside.submit(self._read, self._next)
        if self._call < self._next:
            return False
        coming, self._coming = self._coming, None
        made = coming.result() if coming is not None else self._read(self._call)
        self._next = made.following
        if self._next == self._call + 1 and self._beside is not None:
            self._coming = self._beside.submit(self._read, self._next)
        return made.due

    def _read(self, call: int) -> Announcement:
        key = _announcement(call)
        text = wait_patiently(
            lambda some_s: self._channel.get_bytes(key, some_s),
            self._wait_timeout_s,
            self._check_open,
            f"call {call} of dayfly.checkpoint_due() in rank {self._rank}, to be called as often "
            "by rank 0",
        )
        return Announcement(**json.loads(text))

    def _check_open(self) -> None:
        if self._closed:
            raise WireError("the script has ended")


_living: list[Life] = []


@contextmanager
def living(life: Life) -> Iterator[None]:
    """Make it this process's, which scripts ask, and close it at the end.

    Raises ValueError if the process has one.
    """
    if _living:
        raise ValueError("this process has a life already")
    _living.append(life)
    try:
        yield
    except BaseException:
        with suppress(WireError):  # the first error is the one that counts
            life.close()
        raise
    finally:
        _living.clear()
    life.close()


def _deadline(rank: int) -> Key:
    return Key(0, "deadline", rank, COORDINATOR)


def _announcement(call: int) -> Key:
    return Key(call, "checkpoint-due", 0, COORDINATOR)
