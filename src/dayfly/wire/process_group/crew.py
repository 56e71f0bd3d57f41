"""Threads for work that may wait for long: there is always one free, and none is left behind."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from dayfly.closing import Closing
from dayfly.threads import Failed, guarded

#: Threads that are kept for the next work; any more end when theirs is done.
_MOST_IDLE = 8


class Crew(Closing):
    """As many threads as there is work under way, whatever it waits for: none waits for a thread.

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

    def spawn(self, work: Callable[[], None], failed: Failed) -> None:
        """Begin some work at whose end nobody looks. failed: as in `threads.guarded`."""
        self.submit(guarded(work, failed))

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
