"""When to ask a store again, where a get cannot wait at the store and each question is a request.

    asked for    predicted   backoff, growing and jittered
    |            |  |  |    |      |
    +------------?--?--?----?------!  the message is there
    0            p

The first try is at the predicted time: how long after asking such a message was still not there
at earlier steps. A message that is known to be there is asked for at once. Clocks are in seconds.

Messages of one sender arrive about in the order in which they are waited for. So `Turns` lets the
first few be asked for often, and those behind them rarely.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dayfly.wire.keys import Key
from dayfly.wire.outages import Backoff

#: Waits and keys that are remembered; those that nobody came back for are forgotten beyond.
_REMEMBERED = 4096
#: Seconds between two listings of a mailbox: a listing may cost as much as a put.
LIST_EVERY_S = 0.5
#: Least time between two tries for a message of which those before it are not there, in seconds.
_BEHIND_S = 2.0
#: Steps that a prediction rests on.
_STEPS = 8


class Arrivals:
    """How long after asking messages of one kind came, at the last steps.

    The prediction is the shortest of them: to come late costs time, to come early one request.

    Args:
        most_s: a bound, as a peer may become faster.
    """

    def __init__(self, *, most_s: float = 10.0) -> None:
        self._most_s = most_s
        self._after_s: deque[float] = deque(maxlen=_STEPS)

    @property
    def predicted_s(self) -> float:
        """When to try first, in seconds after asking; 0 while nothing is known."""
        return min(*self._after_s, self._most_s) if self._after_s else 0.0

    def note(self, tried_s: float, missed_s: float | None) -> None:
        """A message came.

        It may have been there for long if the first try found it: half of that is as good a guess
        as any, and a few of them lead back to trying at once.

        Args:
            tried_s: when it was tried first.
            missed_s: last, in vain, if ever.
        """
        self._after_s.append(tried_s / 2 if missed_s is None else missed_s)


@dataclass(slots=True)
class Wait:
    """The wait for one message, which may go on over several calls.

    Args:
        began_s, next_s: by the clock; the next try is due at `next_s`.
        tried_s, missed_s: after it began: the first try, and the last one in vain.
    """

    began_s: float
    next_s: float
    misses: int = 0
    tried_s: float | None = None
    missed_s: float | None = None

    @property
    def behind_s(self) -> float:
        """When the next try is due while others of its sender are waited for first."""
        return max(self.next_s, self.began_s + (self.missed_s or 0.0) + _BEHIND_S)


class ChannelWaits:
    """All waits of one channel. May be used from several threads; clock and chance as given."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._backoff = Backoff()
        self._clock = clock
        self.chance = chance
        self._lock = threading.Lock()
        self._arrivals: dict[tuple[str, int], Arrivals] = {}
        self._waits: OrderedDict[Key, Wait] = OrderedDict()
        self._there: OrderedDict[Key, None] = OrderedDict()

    def wait(self, key: Key) -> Wait:
        """The wait for a key: the one that goes on, or one that begins now."""
        with self._lock:
            wait = self._waits.get(key)
            if wait is None:
                now_s = self._clock()
                ahead_s = 0.0 if key in self._there else self._of(key).predicted_s
                wait = self._waits[key] = Wait(now_s, now_s + ahead_s)
                _forget(self._waits)
            return wait

    def trying(self, wait: Wait) -> None:
        """It is about to be asked for."""
        if wait.tried_s is None:
            wait.tried_s = self._clock() - wait.began_s

    def missed(self, wait: Wait) -> None:
        """It was not there, or the store did not say: the next try is after a pause."""
        now_s = self._clock()
        wait.misses += 1
        wait.missed_s = now_s - wait.began_s
        wait.next_s = now_s + self._backoff.pause_s(wait.misses, self.chance())

    def came(self, key: Key, wait: Wait) -> None:
        """It was there. What is known to be there is no news, and predicts nothing."""
        with self._lock:
            if self._waits.pop(key, None) is not None and key not in self._there:
                self._of(key).note(wait.tried_s or 0.0, wait.missed_s)
            self._known(key)

    def known(self, key: Key) -> None:
        """The key is there, as a put or a look told: whoever asks for it asks at once."""
        with self._lock:
            self._known(key)

    def _known(self, key: Key) -> None:
        self._there[key] = None
        _forget(self._there)
        wait = self._waits.get(key)
        if wait is not None:
            wait.next_s = min(wait.next_s, self._clock())

    def _of(self, key: Key) -> Arrivals:
        return self._arrivals.setdefault((key.operation, key.source), Arrivals())


def _forget(kept: OrderedDict[Key, Wait] | OrderedDict[Key, None]) -> None:
    while len(kept) > _REMEMBERED:
        kept.popitem(last=False)


#: So many of a sender's messages are asked for as often as patience has it.
_FIRST = 4


class Turns:
    """All waits of one channel, by the sender; for several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[int, list[Turn]] = defaultdict(list)

    @contextmanager
    def line_up(self, source: int) -> Iterator[Turn]:
        """Wait for a message of a sender, behind those that were waited for before."""
        with self._changed:
            line = self._lines[source]
            turn = Turn(self._changed, line)
            line.append(turn)
        try:
            yield turn
        finally:
            with self._changed:
                line.remove(turn)
                self._changed.notify_all()

    def wake(self) -> None:
        """End all sleep that goes on now."""
        with self._changed:
            for line in self._lines.values():
                for turn in line:
                    turn.woken = True
            self._changed.notify_all()


class Turn:
    """One wait's place in the line of its sender.

    Attributes:
        woken: its sleep was ended from outside.
    """

    def __init__(self, changed: threading.Condition, line: list[Turn]) -> None:
        self._changed = changed
        self._line = line
        self.woken = False

    @property
    def first(self) -> bool:
        """Whether it is among the first of its line."""
        return self in self._line[:_FIRST]

    def sleep_until(self, then_s: float, *, behind: bool = False) -> None:
        """Until a moment (`time.monotonic()`), or until it is woken.

        Args:
            behind: whether it was not among the first when the moment was chosen: then it sleeps no
                longer than until it is, which it may be by now.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self.woken or (behind and self.first),
                max(0.0, then_s - time.monotonic()),
            )
