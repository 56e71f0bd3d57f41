"""What all streams of messages of one member share: the channel, threads, forms, how to wait.

A message travels in chunks:

    length 21, chunk 4    |0         |1   |2   |3   |4   |      the first has the remainder, too: 5

The reader says which form it expects, and may be wrong. The first chunk then tells, before anything
of it is read: its length says how large the others are, and the ones around that length in its
shape how many there are. So no two lengths begin alike.

    the others' length is `chunk` times a power of two, and the first has less than twice of it
    the shape of the first of two chunks is (1, 5), of three (5, 1), of four (1, 1, 5), ...
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import lru_cache

import torch

from dayfly.closing import Closing
from dayfly.errors import WaitTimeout, WireError
from dayfly.threads import guarded, show
from dayfly.wire.buffers import BufferPool
from dayfly.wire.channels.base import Messages
from dayfly.wire.channels.polled import Drops
from dayfly.wire.execution import LOOK_UP_S
from dayfly.wire.keys import Key
from dayfly.wire.schedule import MOST_CHUNKS, Span

#: Threads that are kept for the next work; any more end when theirs is done.
_MOST_IDLE = 8


class ThreadPool(Closing):
    """As many threads as there is work under way, whatever it waits for: none waits for a thread.

    Args:
        name: what the threads are called. They end with the process, if they are not closed before.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._threads: set[threading.Thread] = set()
        self._leaving: set[threading.Thread] = set()  # without work; they may not have ended yet
        self._work: deque[Callable[[], None]] = deque()
        self._idle = 0
        self._closed = False

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Begin some work. Returns what tells its end, and its error."""
        future: Future[None] = Future()

        def run() -> None:
            try:
                work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            if len(self._work) < self._idle:
                self._work.append(run)
                self._changed.notify()
                return future
            thread = threading.Thread(target=self._live, args=(run,), name=self._name, daemon=True)
            self._leaving = {one for one in self._leaving if one.is_alive()}
            # Under the lock: one that cannot be started is never among those that are joined, and
            # one that was is there before it ends.
            thread.start()
            self._threads.add(thread)
        return future

    def settled(self, timeout_s: float) -> bool:
        """Whether all work is done, or is within this time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._work and len(self._threads) == self._idle, timeout_s
            )

    def close(self) -> None:
        """Wait for all work, and end the threads. Not from one of them."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = [*self._threads, *self._leaving]
        for thread in threads:
            thread.join()

    def _live(self, work: Callable[[], None] | None) -> None:
        while work is not None:
            work()
            work = self._next()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            if self._idle < _MOST_IDLE:
                self._idle += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._work or self._closed)
                self._idle -= 1
            if self._work:
                return self._work.popleft()
            self._threads.discard(threading.current_thread())
            self._leaving.add(threading.current_thread())
            self._changed.notify_all()
            return None


#: Where the length stands among the ones, by the number of chunks, from 1; see above.
_PLACES = tuple((ones - after, after) for ones in range(8) for after in range(ones + 1))
#: Fewest elements of one of several chunks: a length of one is not told from the ones.
_LEAST_CHUNK = 2


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a message: which elements, and the shape that its header has."""

    span: Span
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferForm:
    """Element type and number of elements."""

    dtype: torch.dtype
    length: int

    @classmethod
    def of(cls, flat_P: torch.Tensor) -> BufferForm:
        """Of a flat tensor (P,)."""
        return cls(flat_P.dtype, len(flat_P))

    def parts(self, chunk_bytes: int | None) -> tuple[Chunk, ...]:
        """Returns the chunks, MOST_CHUNKS at most, of `chunk_bytes` at least (None: one chunk)."""
        whole = Span(0, self.length)
        if chunk_bytes is None or not self.length:
            return (Chunk(whole, (self.length,)),)
        return _parts(self.length, max(_LEAST_CHUNK, chunk_bytes // self.dtype.itemsize))

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}[{self.length}]"


@lru_cache(maxsize=256)
def _parts(length: int, chunk: int) -> tuple[Chunk, ...]:
    while length // chunk > MOST_CHUNKS:
        chunk *= 2
    count = max(1, length // chunk)
    first = length - (count - 1) * chunk
    before, after = _PLACES[count - 1]
    shape = (*(1,) * before, first, *(1,) * after)
    others = range(first, length, chunk)
    return (
        Chunk(Span(0, first), shape),
        *(Chunk(Span(start, start + chunk), (chunk,)) for start in others),
    )


#: Called once with what went wrong, or None.
Done = Callable[[BaseException | None], None]


class P2PContext(Closing):
    """What sending and receiving have in common.

    Args:
        channel: the group's.
        check: called while a message is waited for; may raise.
        timeout_s: longest wait.
    """

    def __init__(
        self, channel: Messages, rank: int, *, timeout_s: float, check: Callable[[], None]
    ) -> None:
        self.channel = channel
        self.rank = rank
        self.timeout_s = timeout_s
        self.buffers = BufferPool()
        self.threads = ThreadPool("dayfly-p2p")
        self._untold: dict[object, Callable[[BaseException], None]] = {}
        self._failure: BaseException | None = None
        #: Chunks of one message, and messages to one reader, that are under way at once.
        self.at_once = 1 if channel.immediate else max(2, channel.abilities.in_flight)
        #: Whether messages that nobody asked for yet are read ahead: what is in memory is near.
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
        """Returns a message's `done` that is called once: when the message is over, or by `fail`.

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
        """Begin some work in a thread; an exception of it fails all messages of this member."""
        self.threads.submit(guarded(work, self.fail))

    def fail(self, error: BaseException) -> None:
        """Tell the error to all messages that are under way, and refuse those that come."""
        self._failure = error
        for told in list(self._untold.values()):
            tell(told, error)

    def pause(self, pause_s: float) -> None:
        """Sleep, unless it is closed."""
        self._closed.wait(pause_s)
        self.check()

    def parts(self, form: BufferForm) -> tuple[Chunk, ...]:
        """Returns the chunks of a message."""
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

        threads = [self.threads.submit(some) for _ in range(min(self.at_once, len(places)) - 1)]
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
        while not self.threads.settled(LOOK_UP_S):
            self.channel.wake()
        self.threads.close()
        self._drops.close()


def tell(done: Callable[..., None], *what: object) -> None:
    """Calls the `done` of a message. An exception of it is shown as those of threads are.

    It must not raise; the messages that come after this one go on nevertheless.
    """
    try:
        done(*what)
    except Exception as error:
        show(error)


def p2p_key(number: int, tag: int, c: int, source: int, destination: int) -> Key:
    """Returns the key of chunk `c` of a message."""
    return Key(number, f"t{tag}-chunk-{c}", source, destination)


def shaped(flat_P: torch.Tensor, part: Chunk) -> torch.Tensor:
    """Returns the elements of a chunk, in its shape."""
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
