"""The lanes of an execution: which operation may start, and who does it.

    uplink     put   put  put ...     an operation starts once what it waits for is done, if it is
    downlink   fetch get  get ...     less than `in_flight` from the lane's first that is not done;
    compute    reduce  drop  ...      carriers, threads of a pool, do those of the two links, and
                                      the caller's thread those of the compute lane

Operations of a lane start in their order. Several requests are under way at once in each direction,
which fills a link with latency, and no more than that, which bounds what is held. A message that is
late holds up only what is beyond the window. A carrier is woken for an operation that may start,
and for nothing else: on a small function each needless awakening is felt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from dayfly.wire.schedule import CompiledSchedule, Lane


class LaneQueue:
    """The operations of a lane in their order, each to be taken once.

    Not for several threads at once.

    Args:
        left: how many others each waits for, by position in the schedule.
        width: how many may be under way, from the first that is not done.
    """

    def __init__(self, positions: Sequence[int], left: list[int], width: int) -> None:
        self._width = width
        self._positions = positions
        self._places = {at: place for place, at in enumerate(positions)}
        self._left = left
        self._finished = [False] * len(positions)
        self._first = 0
        self._next = 0
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether there is nothing left to take."""
        return self._ended or self._next >= len(self._positions)

    def take(self) -> int | None:
        """The next operation, if it may start."""
        if self.over or self._next >= self._first + self._width:
            return None
        at = self._positions[self._next]
        if self._left[at]:
            return None
        self._next += 1
        return at

    def finish(self, at: int) -> None:
        """An operation is done: others may be under way instead, if it was the first."""
        self._finished[self._places[at]] = True
        while self._first < len(self._finished) and self._finished[self._first]:
            self._first += 1

    def meet(self, at: int) -> None:
        """One of those that an operation waits for is done."""
        self._left[at] -= 1

    def end(self) -> None:
        """Nothing is to be taken any more."""
        self._ended = True


class Lanes:
    """Carries a schedule out once.

    Args:
        plan: the schedule.
        widths: operations of each lane under way at once.
        carriers: of the lanes that are links.
        perform: does an operation, given its position in the schedule; in any thread.
        look: called every `look_s` seconds in the caller's thread while that has nothing to do; may
            raise to end it all.
        wake: ends the waiting of operations that are under way, once it is in vain.
    """

    def __init__(
        self,
        plan: CompiledSchedule,
        widths: Mapping[Lane, int],
        carriers: Mapping[Lane, Executor],
        *,
        perform: Callable[[int], None],
        look: Callable[[], None],
        look_s: float,
        wake: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._ops = plan.schedule.ops
        self._pools = carriers
        self._perform = perform
        self._look = look
        self._look_s = look_s
        self._wake = wake
        #: The first error; the one that is raised.
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        #: The compute lane has something to do, or no carrier is at work.
        self._changed = threading.Condition(self._lock)
        self._carrying = 0
        left = list(plan.waits_for)
        self._queues = {
            lane: LaneQueue(positions, left, widths[lane]) for lane, positions in plan.lanes.items()
        }

    def run(self) -> None:
        """To the end; raises the first error, once no carrier is at work."""
        try:
            with self._lock:
                self._begin()
            while not self._over:
                with self._lock:
                    at = self._next()
                if at is None:
                    self._look()
                else:
                    self._perform(at)
                    self._finish(at)
        except BaseException as error:
            # A signal's, such as Ctrl-C: no carrier may touch the buffer once the caller has it.
            self._fail(error)
        while self._carrying:
            self._wake()  # those that began to wait just as it failed
            with self._lock:
                self._changed.wait_for(lambda: not self._carrying, self._look_s)
        if self.error is not None:
            raise self.error

    @property
    def _over(self) -> bool:
        """Whether nothing is under way, nor will be."""
        return not self._carrying and all(queue.over for queue in self._queues.values())

    def _next(self) -> int | None:
        """The compute lane's next operation; None if nothing may start for a while, or at all."""
        compute = self._queues[Lane.COMPUTE]
        until = time.monotonic() + self._look_s
        while (at := compute.take()) is None and not self._over:
            if not self._changed.wait(until - time.monotonic()):
                break
        return at

    def _begin(self) -> None:
        """Submits the operations that may start to the links' threads."""
        for lane, pool in self._pools.items():
            while (at := self._queues[lane].take()) is not None:
                pool.submit(self._carry, lane, at)
                self._carrying += 1

    def _carry(self, lane: Lane, at: int | None) -> None:
        """Do an operation of a link, and then those of its lane that may start by then."""
        try:
            while at is not None:
                self._perform(at)
                at = self._finish(at, lane)
        except BaseException as error:
            self._fail(error)
        with self._lock:
            self._carrying -= 1
            if not self._carrying:
                self._changed.notify()

    def _finish(self, at: int, lane: Lane | None = None) -> int | None:
        """An operation is done. Returns the next one of the lane whose carrier asks."""
        with self._lock:
            self._queues[self._ops[at].lane].finish(at)
            computes = False
            for later in self._plan.dependents[at]:
                self._queues[self._ops[later].lane].meet(later)
                computes = computes or self._ops[later].lane is Lane.COMPUTE
            mine = None if lane is None else self._queues[lane].take()
            self._begin()
            if computes:
                self._changed.notify()
            return mine

    def _fail(self, error: BaseException) -> None:
        """End all lanes."""
        with self._lock:
            self.error = self.error or error
            for queue in self._queues.values():
                queue.end()
            self._changed.notify()
        self._wake()
