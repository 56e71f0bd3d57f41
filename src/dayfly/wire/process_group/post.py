"""What all streams of letters of one member work with: the channel, threads, and how to wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import wait

import torch

from dayfly.closing import Closing
from dayfly.errors import WaitTimeout, WireError
from dayfly.threads import guarded, show
from dayfly.wire.buffers import Buffers
from dayfly.wire.channels.base import Messages
from dayfly.wire.channels.drops import Drops
from dayfly.wire.execution import LOOK_UP_S
from dayfly.wire.keys import Key
from dayfly.wire.process_group.crew import Crew
from dayfly.wire.process_group.forms import Form, Part

#: Called once with what went wrong, or None.
Done = Callable[[BaseException | None], None]


class Post(Closing):
    """check: called while a letter is waited for; may raise. timeout_s: how long that may take."""

    def __init__(
        self, channel: Messages, rank: int, *, timeout_s: float, check: Callable[[], None]
    ) -> None:
        self.channel = channel
        self.rank = rank
        self.timeout_s = timeout_s
        self.buffers = Buffers()
        self.crew = Crew("dayfly-letters")
        self._untold: dict[object, Callable[[BaseException], None]] = {}
        self._failure: BaseException | None = None
        #: Messages of one letter, and letters to one reader, that are under way at once.
        self.at_once = 1 if channel.immediate else max(2, channel.abilities.in_flight)
        #: Whether letters that nobody asked for yet are read ahead: what is in memory is near.
        self.reads_ahead = not channel.immediate
        self._chunk_bytes = None if channel.immediate else channel.abilities.chunk_bytes
        self._check = check
        self._closed = threading.Event()
        self._drops = Drops(channel.drop)

    def check(self) -> None:
        """Raise if waiting is of no use any more."""
        if self._closed.is_set():
            raise WireError("the group was closed meanwhile")
        if self._failure is not None:
            raise WireError(f"given up, as a thread failed: {self._failure!r}") from self._failure
        self._check()

    def once(self, done: Callable[..., None], *more: object) -> Callable[..., None]:
        """Returns a letter's `done` that is called once: when the letter is over, or by `fail`.

        Args:
            done: called with an error or None, and more.
            more: what follows the error that `fail` tells.
        """
        token = object()

        def told(*what: object) -> None:
            if self._untold.pop(token, None) is not None:
                done(*what)

        self._untold[token] = lambda error: told(error, *more)
        return told

    def spawn(self, work: Callable[[], None]) -> None:
        """Begin some work in a thread; an exception of it fails all letters of this member."""
        self.crew.submit(guarded(work, self.fail))

    def fail(self, error: BaseException) -> None:
        """Tell the error to all letters that are under way, and refuse those that come."""
        self._failure = error
        for told in list(self._untold.values()):
            tell(told, error)

    def pause(self, pause_s: float) -> None:
        """Sleep, unless it is closed."""
        self._closed.wait(pause_s)
        self.check()

    def parts(self, form: Form) -> tuple[Part, ...]:
        """The messages of a letter."""
        return form.parts(self._chunk_bytes)

    def side_by_side(self, work: Callable[[int], None], places: Sequence[int]) -> None:
        """Do something with each of the places, several at once, begun in their order.

        Raises the first error, once nothing is under way any more.
        """
        left, lock = deque(places), threading.Lock()

        def some() -> None:
            while True:
                with lock:
                    if not left:
                        return
                    place = left.popleft()
                try:
                    work(place)
                except BaseException:
                    with lock:
                        left.clear()
                    raise

        threads = [self.crew.submit(some) for _ in range(min(self.at_once, len(places)) - 1)]
        try:
            some()
        finally:
            wait(threads)
        for thread in threads:
            thread.result()

    def drop(self, keys: Sequence[Key]) -> None:
        """Remove what its only reader has read: in memory at once, else beside the work."""
        if self.channel.immediate:
            self.channel.drop(keys)
        else:
            self._drops.add(keys)

    def close(self) -> None:
        """End all that waits, with an error, and all threads."""
        self._closed.set()
        while not self.crew.settled(LOOK_UP_S):
            self.channel.wake()
        self.crew.close()
        self._drops.close()


def tell(done: Callable[..., None], *what: object) -> None:
    """Call a letter's `done`. What it raises is shown as a thread's errors are, and harms no other.

    It must not raise; the letters that come after this one go on nevertheless.
    """
    try:
        done(*what)
    except Exception as error:
        show(error)


def letter_key(number: int, tag: int, c: int, source: int, destination: int) -> Key:
    """Of message `c` of a letter."""
    return Key(number, f"t{tag}-chunk-{c}", source, destination)


def shaped(flat_P: torch.Tensor, part: Part) -> torch.Tensor:
    """The elements of a message, in its shape."""
    return flat_P[part.span.start : part.span.stop].view(part.shape)


def left_s(until_s: float) -> float:
    """Seconds until a moment, 0 if it has passed."""
    return max(0.0, until_s - time.monotonic())


def named(what: str, error: BaseException) -> BaseException:
    """The same error, with what it happened to, if it is one of the wire's."""
    if not isinstance(error, WireError):
        return error
    kind = WaitTimeout if isinstance(error, WaitTimeout) else WireError
    told = kind(f"{what}: {error}")
    told.__cause__ = error
    return told
