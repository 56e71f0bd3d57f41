"""What a script may ask about its life: how much is left of it, and whether to save now.

    rank 0    decides, and puts an announcement about once a second
    others    read it at the one call that needs it, and answer the same
    others    tell rank 0 once how much is left of their lives, which may have begun before its own

All of these messages lie with the coordinator, so they outlive their senders: a script may end, or
never ask, and it never waits.

No clock of one machine is read on another. What a rank tells is a duration, from when it tells it;
and it tells it after it has read that rank 0 began, so rank 0 knows by its own clock that this was

    rank 0      began ........ looked ........ looked: told, 500 s left
    rank 3           ......................|told
                              >|----------------- at least 500 s ------>|

not before it began, nor before it last looked in vain. The deadline that follows is early by no
more than the time between two looks, which are about `EVERY_S` apart, and is never late.

`Decisions` are rank 0's, for one numbered call after another. They are pure.

    call        0      1      2 ...  40     41 ...  80     81 ...
    rank 0      decide        "41: no, next 81"     "81: yes, next 95"
    others      no     read 1 no     no     read 41  no    read 81

An announcement has the answer of its call and the number of the next announced call; calls in
between answer no without a message. Calls are announced about once in `EVERY_S`, and more often
only near the end of a life. Where steps are short, an announcement is made one call ahead, so that
it is there when it is read.

Symbols: s the longest step of this life, c the longest save with its step, L the seconds that are
left until the first worker is ended. A save is due `every_s` after the one before, and when L falls
below the time that is kept free for the end:

    2 s + 2 c + SPARE_S      another step that takes twice the longest, and such a save
                             but no more than half a life, as in `life.lifetimes`
    s + c + SPARE_S          at least: after another step there must be time to save
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from dayfly.closing import Closing
from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.execution import LOOK_UP_S, wait_patiently
from dayfly.wire.keys import COORDINATOR, Key

#: Seconds between two announcements, about.
EVERY_S = 1.0
#: Seconds at the end of a life that do not depend on the script.
SPARE_S = 1.0
#: A life that has not seen a save yet takes one for as long as this share of it, or a step.
_UNSEEN_SHARE = 0.05
#: No more than this share of a life is kept free for its end, as long as a step and a save fit.
_MOST_SHARE = 0.5
#: The part of the time that is left for steps until the next announcement, so that it comes in time
#: even if steps take this many times as long from now on.
_SLOWER = 4
#: A call is announced ahead if the time that is left for steps is so many times the longest one.
_AHEAD_STEPS = 16
#: Steps from which the next ones are foretold.
_STEPS = 64


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a call answers, and the number of the next call that is announced."""

    due: bool
    following: int


class Decisions:
    """Rank 0's, in one life. For each call: `begin`, `decide` what is `wanted`, and `answer`.

    All times are in seconds, by one clock.
    """

    def __init__(self) -> None:
        self._call = -1
        self._began_s = self._called_s = self._saved_s = 0.0
        self._whole_s: float | None = None
        self._first_step_s = 0.0
        self._longest_step_s = 0.0
        self._longest_save_s = 0.0
        self._steps: deque[float] = deque(maxlen=_STEPS)
        self._said = False
        # Whether this life had its last save, as far as is known.
        self._ending = False
        self._made: dict[int, Announcement] = {}
        # The first call that is not decided; before it, and after the one before, answers are no.
        self._next = 1

    def begin(self, now_s: float) -> int:
        """A call begins; returns its number, from 0."""
        self._call += 1
        took_s = now_s - self._called_s
        if self._call == 0:
            self._began_s = self._saved_s = now_s
        elif self._said:
            self._longest_save_s = max(self._longest_save_s, took_s)
        else:
            self._steps.append(took_s)
            if self._call == 1:
                self._first_step_s = took_s  # often far longer than all others
            else:
                self._longest_step_s = max(self._longest_step_s, took_s)
        self._called_s = now_s
        return self._call

    def wanted(self, left_s: Callable[[], float]) -> Iterator[int]:
        """Numbers of the calls to decide now, one after another: this one, and the next ahead."""
        if self._next == self._call:
            yield self._call
        if self._next == self._call + 1 and self._call > 0:
            slack_s = left_s() - self._kept_s()
            if slack_s > _AHEAD_STEPS * (self._longest_step_s or self._first_step_s):
                yield self._call + 1

    def decide(self, call: int, left_s: float, every_s: float) -> Announcement:
        """The announcement of a call that is wanted; left_s: of the life that ends first."""
        if self._whole_s is None:
            self._whole_s = left_s + self._called_s - self._began_s
        step_s = self._usual_step_s()
        ahead_s = (call - self._call) * step_s
        slack_s = left_s - ahead_s - self._kept_s()
        since_s = self._called_s + ahead_s - self._saved_s
        ended, self._ending = self._ending, slack_s < 0
        due = not ended if self._ending else since_s >= every_s
        gap_s = EVERY_S
        if due:
            self._saved_s, since_s = self._called_s + ahead_s, 0.0
        if not self._ending:
            gap_s = min(gap_s, every_s - since_s, slack_s / _SLOWER)
        # Never further than calls have come so far: the first few may be faster than all others.
        reach = int(min(gap_s / step_s, call)) if step_s else 1
        self._next = call + max(1, reach)
        self._made[call] = made = Announcement(due, self._next)
        return made

    def answer(self) -> bool:
        """What the call that began answers."""
        made = self._made.pop(self._call, None)
        self._said = made is not None and made.due
        return self._said

    def _usual_step_s(self) -> float:
        """The mean of the last steps but the longest of them, for which time is kept as it is."""
        if len(self._steps) < 2:
            return sum(self._steps)
        return (sum(self._steps) - max(self._steps)) / (len(self._steps) - 1)

    def _kept_s(self) -> float:
        """What is kept free for the end."""
        whole_s = float("inf") if self._whole_s is None else self._whole_s
        step_s = self._longest_step_s or self._first_step_s
        save_s = self._longest_save_s
        if not save_s:
            save_s = max(step_s, _UNSEEN_SHARE * whole_s if whole_s < float("inf") else 0.0)
        twice_s = min(2 * step_s + 2 * save_s + SPARE_S, _MOST_SHARE * whole_s)
        return max(twice_s, step_s + save_s + SPARE_S)


#: Announcements that are kept for ranks that are behind, at least: for a minute, about.
_KEPT = 64


def remaining_s() -> float:
    """Returns the seconds until the platform ends this function.

    Infinite outside of `dayfly run`, and where functions have no lifetime.

    Examples:
        >>> dayfly.remaining_s()
        inf
    """
    return _installed[0].remaining_s() if _installed else float("inf")


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
    return _installed[0].checkpoint_due(every_s) if _installed else False


class ScriptLifetime(Closing):
    """One rank's life in one function. One thread asks; close it when the script has ended.

    Args:
        channel: of the run; open for as long.
        rank: of this function.
        world_size: number of ranks.
        remaining_s: returns the seconds until the platform ends the function.
        wait_timeout_s: longest wait for rank 0 in a call.
        clock: as `time.monotonic`, of this machine alone.
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
    ) -> None:
        self.remaining_s = remaining_s
        self._channel = channel
        self._rank = rank
        self._world_size = world_size
        self._wait_timeout_s = wait_timeout_s
        self._clock = clock
        self._closed = False
        # It has no thread before it has work.
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="dayfly-due")
        # In memory a message takes less than a thread would.
        self._ahead = not channel.immediate
        # Of rank 0.
        self._decisions = Decisions()
        self._announced: list[Key] = []
        self._sending: list[Future[None]] = []
        self._untold: set[Key] = set()
        self._others_end_s = float("inf")
        self._looked_s = 0.0
        # Of the others.
        self._call = -1
        self._next = 1
        self._coming: Future[Announcement] | None = None
        if remaining_s() < float("inf"):
            if rank == 0:
                self._untold = {_left(other) for other in range(1, world_size)}
                self._looked_s = clock()
                if world_size > 1:
                    channel.put_bytes(_BEGAN, b"")
            else:
                self._sending.append(self._beside.submit(self._tell))

    def checkpoint_due(self, every_s: float) -> bool:
        """See the function of this name."""
        return self._decide(every_s) if self._rank == 0 else self._follow()

    def close(self) -> None:
        """Send what is to be sent, and end the thread. Raises WireError if it cannot be sent."""
        self._closed = True
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
        now_s = self._clock()
        if self._untold:
            told = self._channel.stored(self._untold)
            for key in told:
                left_s = json.loads(self._channel.get_bytes(key, self._wait_timeout_s))
                self._others_end_s = min(self._others_end_s, self._looked_s + left_s)
            self._channel.drop(told)
            self._untold -= told
            self._looked_s = now_s
        return min(self.remaining_s(), self._others_end_s - now_s)

    def _tell(self) -> None:
        """Tells rank 0 how much is left, once it has begun; not if the script ends before."""
        while not self._closed:
            with suppress(WaitTimeout):
                self._channel.get_bytes(_BEGAN, LOOK_UP_S)
                left_s = json.dumps(self.remaining_s()).encode()
                self._channel.put_bytes(_left(self._rank), left_s)
                return

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

        if ahead and self._ahead:
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
        if self._call + 1 == self._next and self._ahead and self._call > 0:
            self._coming = self._beside.submit(self._read, self._next)
        if self._call < self._next:
            return False
        coming, self._coming = self._coming, None
        made = coming.result() if coming is not None else self._read(self._call)
        self._next = made.following
        if self._next == self._call + 1 and self._ahead:
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


_installed: list[ScriptLifetime] = []


@contextmanager
def installed(lifetime: ScriptLifetime) -> Iterator[None]:
    """Makes it the one that scripts of this process ask, and closes it at the end.

    Raises ValueError if the process has one.
    """
    if _installed:
        raise ValueError("this process has a lifetime already")
    _installed.append(lifetime)
    try:
        yield
    except BaseException:
        with suppress(WireError):  # the first error is the one that counts
            lifetime.close()
        raise
    finally:
        _installed.clear()
    lifetime.close()


_BEGAN = Key(0, "began", 0, COORDINATOR)


def _left(rank: int) -> Key:
    return Key(0, "left", rank, COORDINATOR)


def _announcement(call: int) -> Key:
    return Key(call, "checkpoint-due", 0, COORDINATOR)
