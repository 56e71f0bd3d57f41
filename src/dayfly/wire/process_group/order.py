"""The collectives of a group, begun in the order in which they were asked for.

All members ask for the same collectives in the same order; number k runs in lane k modulo the
number of lanes, one at a time in each. So whoever has begun k is done with all before it in its
lane, and whoever completes k, in which all members meet, knows that of every member: what it has
stored for all to read in those before can go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from dayfly.threads import Failed, guarded, start_thread

#: A collective to be run, given its number.
Job = Callable[[int], None]


class Order:
    """Threads of lanes, each started when it is first needed.

    failed: told what a job raises, which is to catch all that it expects; the lane goes on.
    """

    def __init__(self, lanes: int, name: str, failed: Failed) -> None:
        self._failed = failed
        self.lanes = lanes
        self._name = name
        self._queues: list[SimpleQueue[tuple[Job, int] | None]] = []
        self._threads: list[threading.Thread] = []
        self._number = 0
        self._closed = False
        self._lock = threading.Lock()

    @property
    def number(self) -> int:
        """Of the next collective."""
        return self._number

    def add(self, job: Job, *after: Job) -> None:
        """Run it in its turn, then those `after` it in the same lane, with the same number.

        Raises RuntimeError if it is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the group {self._name} was destroyed")
            number, self._number = self._number, self._number + 1
            lane = number % self.lanes
            if lane == len(self._queues):
                self._start_lane(lane)
            for one in (job, *after):
                self._queues[lane].put((one, number))

    def close(self, timeout_s: float | None = None) -> bool:
        """Run what was added, and end the threads; whether they ended in time.

        May be called again.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            if not self._closed:
                self._closed = True
                for queue in self._queues:
                    queue.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _start_lane(self, lane: int) -> None:
        queue: SimpleQueue[tuple[Job, int] | None] = SimpleQueue()
        # A daemon: a script that ends without destroying its groups must not hang.
        thread = start_thread(
            lambda: self._run(queue), name=f"dayfly-{self._name}-{lane}", failed=self._failed
        )
        self._threads.append(thread)
        self._queues.append(queue)

    def _run(self, queue: SimpleQueue[tuple[Job, int] | None]) -> None:
        while (item := queue.get()) is not None:
            job, number = item
            guarded(partial(job, number), self._failed)()
