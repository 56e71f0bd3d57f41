"""What a simulation keeps of streams and lines while they are under way. See `simulation`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dayfly.wire.schedule import Lane, Op
from dayfly.wire.streams import Direction, Stream

#: Numbers of the lanes, as `Plan.numbers` has them.
UP, DOWN, COMPUTE = range(3)


class Row:
    """One lane of one stream: operations by position, from the first that is not over."""

    __slots__ = ("first", "over", "queue", "started", "width")

    def __init__(self, queue: Sequence[int], width: int) -> None:
        self.queue = queue
        self.width = width
        self.started = 0
        self.first = 0
        self.over: set[int] = set()

    def finish(self, position: int) -> None:
        """An operation is over: others may be under way instead, if it was the first."""
        over, queue = self.over, self.queue
        over.add(position)
        while self.first < len(queue) and queue[self.first] in over:
            over.remove(queue[self.first])
            self.first += 1


class Live:
    """A stream that is run."""

    __slots__ = (
        "begun", "done", "each_s", "free", "gates", "lane", "left", "number", "opens", "ops",
        "parts", "rank", "rows", "start", "stream", "unmet",
    )  # fmt: skip

    def __init__(self, rank: int, number: int, stream: Stream) -> None:
        plan = stream.plan
        self.rank = rank
        self.number = number
        self.stream = stream
        self.lane = plan.numbers
        self.ops = plan.schedule.ops
        self.unmet = list(plan.waits_for)
        self.start, self.free, self.done = ([math.nan] * len(self.ops) for _ in range(3))
        self.parts: dict[int, int] = {}  # of a download, what is not over
        self.each_s: dict[int, float] = {}  # of what goes in pieces, seconds of one
        self.left = len(self.ops)
        self.gates = len(stream.after)
        self.opens: dict[int | None, list[Live]] = {}
        self.begun = False
        if stream.alone:
            alone = Row(range(len(self.ops)), 1)
            self.rows = (alone, alone, alone)
        else:
            self.rows = (
                Row(plan.lanes[Lane.UPLINK], stream.in_flight),
                Row(plan.lanes[Lane.DOWNLINK], stream.in_flight),
                Row(plan.lanes[Lane.COMPUTE], 1),
            )

    def nbytes(self, op: Op) -> int:
        """What an operation's elements take on the way, without the header."""
        length = op.span.stop - op.span.start
        travelling = self.stream.travelling
        return length * self.stream.itemsize if travelling is None else travelling(length)


class Line:
    """One direction of one rank: who asked for it, and when; what is left of each."""

    __slots__ = ("asked", "busy", "rank", "way", "which")

    def __init__(self, rank: int, which: int, way: Direction) -> None:
        self.rank = rank
        self.which = which
        self.way = way
        self.busy = False
        # (when, stream, position, seconds of a piece, pieces)
        self.asked: list[tuple[float, int, int, float, int]] = []
