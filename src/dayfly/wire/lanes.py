"""A schedule made ready to be run: whose turn it is in each lane."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from dayfly.wire.schedule import Kind, Lane, Schedule

#: Collectives that an engine runs at once, at most, where they take the time of a link.
MOST_AT_ONCE = 4
#: A lane is full with so many times what it would hold in small chunks: of large messages fewer are
#: under way, as each takes memory.
_FULL_CHUNKS = 8


def width(in_flight: int, chunk_bytes: int, largest_bytes: int) -> int:
    """Operations of a lane under way at once: fewer if they are so large that few fill it.

    in_flight, chunk_bytes: the channel's abilities. largest_bytes: of a message of the schedule.
    """
    enough = _FULL_CHUNKS * in_flight * chunk_bytes // max(1, largest_bytes)
    return min(in_flight, max(2, enough))


class Plan:
    """A schedule made ready: which operations are a lane's, and who waits for whom."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        order = {lane: number for number, lane in enumerate(Lane)}
        #: Of each operation, its lane's number in `Lane`.
        self.numbers = tuple(order[op.lane] for op in schedule)
        self.lanes = {
            lane: tuple(at for at, its in enumerate(self.numbers) if its == number)
            for lane, number in order.items()
        }
        self.waits_for = tuple(len(op.after) for op in schedule)
        self.sums = {
            name: at
            for at, op in enumerate(schedule)
            if op.kind is Kind.REDUCE
            for name in op.terms
            if name is not None
        }
        dependents: list[list[int]] = [[] for _ in schedule]
        for at, op in enumerate(schedule):
            for earlier in op.after:
                dependents[earlier].append(at)
        self.dependents = tuple(map(tuple, dependents))


class Row:
    """The operations of a lane in their order, each to be taken by one thread.

    left: how many others each waits for, by position in the schedule. width: how many may be under
    way, from the first that is not done. lock: the execution's; held by the caller but for `take`.
    """

    def __init__(
        self, positions: Sequence[int], left: list[int], width: int, lock: threading.Lock
    ) -> None:
        self.width = min(width, len(positions))
        self._positions = positions
        self._places = {at: place for place, at in enumerate(positions)}
        self._left = left
        self._finished = [False] * len(positions)
        self._first = 0
        self._next = 0
        self._ended = False
        self._changed = threading.Condition(lock)

    @property
    def over(self) -> bool:
        """Whether there is nothing left to take."""
        return self._ended or self._next >= len(self._positions)

    def take(self, timeout_s: float | None) -> int | None:
        """The next operation, once it may start; None if there is none left, or none in time."""
        with self._changed:
            self._changed.wait_for(lambda: self.over or self._may_start(), timeout_s)
            if self.over or not self._may_start():
                return None
            self._next += 1
            self._tell()
            return self._positions[self._next - 1]

    def finish(self, at: int) -> None:
        """An operation is done: others may be under way instead, if it was the first."""
        self._finished[self._places[at]] = True
        while self._first < len(self._finished) and self._finished[self._first]:
            self._first += 1
        self._tell()

    def meet(self, at: int) -> None:
        """One of those that an operation waits for is done."""
        self._left[at] -= 1
        self._tell()

    def end(self) -> None:
        """Nothing is to be taken any more."""
        self._ended = True
        self._changed.notify_all()

    def _may_start(self) -> bool:
        return (
            self._next < min(self._first + self.width, len(self._positions))
            and not self._left[self._positions[self._next]]
        )

    def _tell(self) -> None:
        if self.over:
            self._changed.notify_all()
        elif self._may_start():
            self._changed.notify()
