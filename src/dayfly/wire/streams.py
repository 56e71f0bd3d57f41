"""Streams of operations in virtual time: what each rank runs, and its state. See `simulation`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from dayfly.elementwise import least, most
from dayfly.wire.processor import SharedProcessor
from dayfly.wire.schedule import CompiledSchedule, Lane, Name, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """One direction of a rank's link to the store.

    Args:
        occupied_s: seconds for which a message of so many bytes keeps the link busy.
        latency_s: seconds from the end of a message until it has its effect.
        piece_s: messages share the link in pieces of so many seconds; infinite: message by message.
        cpu_s: CPU time of a message. It does not make the message slower while there is enough CPU.
        cpu_s_per_byte: CPU time of each of its bytes, likewise.
    """

    occupied_s: Callable[[float], float]
    latency_s: float = 0.0
    piece_s: float = math.inf
    cpu_s: float = 0.0
    cpu_s_per_byte: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A schedule that a rank runs.

    Args:
        name: of its messages; streams of several ranks with one name talk to each other; None:
            none.
        member, members: which of them this one is.
        labels: what source and destination in its messages' names stand for, so that ranks that do
            the same, each with its own neighbours, have one plan; none: themselves, as EVERYONE
            does always.
        group: whether these are some of all ranks.
        itemsize: bytes of an element.
        travelling: bytes that travel for elements of a span, if not theirs, and whether of a sum.
        after: of which streams of the rank, by their numbers, which operation must be done first
            (None: all).
        pool: streams of one pool take turns, `at_once` at once.
        in_flight: of each lane but compute.
        alone: one operation at a time, in the order of the list.
        begin_s: seconds of CPU time before the first operation, once it is the stream's turn.
        message_s: the same of each message, beside what its direction says.
        works_s: the same of each COMPUTE, in the order of the plan; none: they take nothing.

    Raises:
        ValueError: there are more or fewer of them than the plan has.
    """

    plan: CompiledSchedule
    name: Hashable = None
    member: int = 0
    members: int = 1
    labels: tuple[int, ...] = ()
    group: bool = False
    itemsize: int = 4
    travelling: Callable[[Span, bool], int] | None = None
    after: tuple[tuple[int, int | None], ...] = ()
    pool: str | None = None
    at_once: int = 1
    in_flight: int = 1
    alone: bool = False
    begin_s: float = 0.0
    message_s: float = 0.0
    works_s: Sequence[float] = ()

    def __post_init__(self) -> None:
        if len(self.works_s) not in (0, len(self.plan.works)):
            raise ValueError(f"{len(self.works_s)} times for {len(self.plan.works)} passes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """What a rank runs, with what.

    Args:
        header_bytes: before each message.
        direct: messages go from rank to rank, so one for everyone leaves its sender once for each.
        held: a request is in flight until its latency has passed, and not only while it is carried.
        reduce_s_per_byte: CPU time to add a contribution.
        early: they are added as they come; else by the REDUCE.
        is_store: it is the store itself, as a parameter server is, so what it takes and gives out
            passes the store with the others' requests alone.

    Raises:
        ValueError: a stream waits for a later one.
    """

    streams: Sequence[Stream]
    up: Direction
    down: Direction
    processor: SharedProcessor = field(default_factory=SharedProcessor)
    header_bytes: int = 0
    direct: bool = False
    held: bool = False
    reduce_s_per_byte: float = 0.0
    early: bool = False
    is_store: bool = False

    def __post_init__(self) -> None:
        for number, stream in enumerate(self.streams):
            if any(not 0 <= other < number for other, _ in stream.after):
                raise ValueError(f"stream {number} waits for one that is not before it")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingThread:
    """One thread that serves the messages of all ranks, beside their lines.

    Args:
        cpu_s, cpu_s_per_byte: CPU time that it takes to take a message in, or to give it out.
    """

    cpu_s: float = 0.0
    cpu_s_per_byte: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """Link of a machine, which the functions on it share.

    Args:
        functions: ranks on one machine: the first so many on the first, and so on.
        bytes_per_s: what it carries each way.

    Raises:
        ValueError: a number that is not above 0.
    """

    functions: int
    bytes_per_s: float

    def __post_init__(self) -> None:
        if self.functions < 1 or self.bytes_per_s <= 0:
            raise ValueError(f"{self}: give 1 function or more, and more than 0 bytes a second")

    def share(self, at_once: float) -> float:
        """Returns bytes a second of each of so many functions that transfer at once; elementwise.

        Args:
            at_once: functions of all machines.
        """
        found: float = self.bytes_per_s / least(at_once, self.functions)
        return found

    def together(self, first: int, count: float) -> float:
        """Returns how many of the ranks first, first + 1, ... are on one host at most; elementwise.

        Args:
            first: a rank.
            count: ranks; where some do less than others, as many as do the same.
        """
        before = least(count, -first % self.functions)
        found: float = most(before, least(count - before, self.functions))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all ranks have together.

    Args:
        cores: of the machine, if they are on one, and the store with them.
        store: None: it serves everybody at once.
        store_bytes_per_s: what the store carries each way, for all together.
        host: what ranks on one machine share; None: each has all of its link.
    """

    cores: float = math.inf
    store: ServingThread | None = None
    store_bytes_per_s: float = math.inf
    host: HostLink | None = None


#: Nothing: each rank has a machine of its own, and no store is too slow for them.
ALONE = Shared()


@dataclass(frozen=True, slots=True)
class Moments:
    """Of each operation of a stream: when it began to be carried, when its lane was free, when its
    effect was there."""

    start_s: Sequence[float]
    free_s: Sequence[float]
    done_s: Sequence[float]


#: Numbers of the lanes, as `CompiledSchedule.numbers` has them.
UP, DOWN, COMPUTE = range(3)


class LaneRow:
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


#: What a message is known by: its stream's name, its phase, its source and its destination.
MessageId = tuple[Hashable, str, int, int]


class Live:
    """A stream that is run."""

    __slots__ = (
        "begun", "done", "free", "gates", "has", "lane", "left", "nbytes", "number", "opens",
        "ops", "parts", "rank", "rows", "start", "stream", "unmet", "works_s",
    )  # fmt: skip

    def __init__(self, rank: int, number: int, stream: Stream, has: Rank) -> None:
        plan, travelling, itemsize = stream.plan, stream.travelling, stream.itemsize
        self.rank = rank
        self.has = has
        #: Of each operation, what its elements take on the way, without the header.
        self.nbytes = (
            [length * itemsize for length in plan.lengths]
            if travelling is None
            else list(map(travelling, plan.spans, plan.totals))
        )
        self.number = number
        self.stream = stream
        self.lane = plan.numbers
        self.ops = plan.schedule.ops
        self.unmet = list(plan.waits_for)
        #: CPU seconds of operations that do work, by position.
        self.works_s = dict(zip(plan.works, stream.works_s, strict=False))
        self.start, self.free, self.done = ([math.nan] * len(self.ops) for _ in range(3))
        self.parts: dict[int, int] = {}  # of a download, what is not over
        self.left = len(self.ops)
        self.gates = len(stream.after)
        self.opens: dict[int | None, list[Live]] = {}
        self.begun = False
        if stream.alone:
            alone = LaneRow(range(len(self.ops)), 1)
            self.rows = (alone, alone, alone)
        else:
            self.rows = (
                LaneRow(plan.lanes[Lane.UPLINK], stream.in_flight),
                LaneRow(plan.lanes[Lane.DOWNLINK], stream.in_flight),
                LaneRow(plan.lanes[Lane.COMPUTE], 1),
            )

    def message(self, name: Name) -> MessageId:
        """Returns what a message is known by that has this name in the stream's plan."""
        ends = name.source, name.destination
        if labels := self.stream.labels:
            ends = _labelled(labels, name.source), _labelled(labels, name.destination)
        return self.stream.name, name.phase, *ends


def _labelled(labels: Sequence[int], end: int) -> int:
    return end if end < 0 else labels[end]


#: Of a message on a line: stream, position, seconds of a piece, and how many pieces.
Pieces = tuple[int, int, float, int]


class Line:
    """One direction of one rank's link in virtual time: who asked for it, and when.

    Attributes:
        busy: whether it carries a piece.
        carries: the message of that piece, with the number of its pieces left. While the messages
            under way take turns and nothing else happens, `go_on` goes through their pieces at
            once; a message that is asked for meanwhile brings the line `back_to` that moment.
        alarm: the latest time at which it was to be looked at, by number.
    """

    __slots__ = ("_before", "_last_s", "alarm", "asked", "busy", "carries", "way", "which")

    def __init__(self, which: int, way: Direction) -> None:
        self.which = which
        self.way = way
        self.busy = False
        self.alarm = 0
        self.carries: Pieces = (0, 0, 0.0, 0)
        # (when, stream, position, seconds of a piece, pieces, whether one of them was carried)
        self.asked: list[tuple[float, int, int, float, int, bool]] = []
        self._before = (0.0, self.carries, self.asked)  # when `go_on` began, and with what
        self._last_s = -math.inf  # when the last piece begins that it went through to

    def ask(self, now_s: float, message: Pieces, *, begun: bool = False) -> None:
        """For a turn.

        Args:
            begun: whether pieces of it were carried.
        """
        heapq.heappush(self.asked, (now_s, *message, begun))

    def take(self) -> bool:
        """Carry a piece of whoever asked first; returns whether it is its first."""
        _, number, position, each_s, pieces, begun = heapq.heappop(self.asked)
        self.carries = number, position, each_s, pieces - 1
        self.busy = True
        return not begun

    def go_on(self, now_s: float) -> float:
        """Carries pieces from now on, until a message ends or the next piece is another message's.

        Returns the moment, in seconds, at which the last of these pieces ends.
        """
        self._before = now_s, self.carries, self.asked.copy()
        return self._turns(now_s, math.inf)

    def is_ahead(self, now_s: float) -> bool:
        """Whether it went through to a piece that does not begin before this moment."""
        return self.busy and self._last_s >= now_s

    def back_to(self, now_s: float) -> float:
        """To the piece that is under way at this moment; returns when it ends."""
        begins_s, self.carries, self.asked = self._before
        ends_s = self._turns(begins_s, now_s)
        self._last_s = -math.inf
        return ends_s

    def _turns(self, begins_s: float, until_s: float) -> float:
        asked = self.asked
        number, position, each_s, left = self.carries
        self._last_s = -math.inf
        ends_s = begins_s + each_s
        while left and ends_s < until_s:
            again = ends_s, number, position, each_s, left, True
            if asked and asked[0] < again:
                if not asked[0][-1]:
                    break
                _, number, position, each_s, left, _ = heapq.heapreplace(asked, again)
            left -= 1
            self._last_s = ends_s
            ends_s += each_s
        self.carries = number, position, each_s, left
        return ends_s


def repeated(ranks: Sequence[Rank], count: int) -> Sequence[Rank]:
    """Returns ranks that take a step so many times, one after another.

    A stream that waits for nothing in its step waits for the last one of the step before. A store
    serves what comes, so its streams wait for nothing.

    Args:
        ranks: whose streams are one step, of which the last ends it.
        count: steps.
    """
    if count == 1:
        return ranks
    return [replace(rank, streams=_steps(rank, count)) for rank in ranks]


def _steps(rank: Rank, count: int) -> list[Stream]:
    each, found = len(rank.streams), []
    for step in range(count):
        first = step * each
        before = ((first - 1, None),) if step and not rank.is_store else ()
        for one in rank.streams:
            name = None if one.name is None else (step, one.name)
            after = tuple((first + other, position) for other, position in one.after)
            found.append(replace(one, name=name, after=after or before))
    return found
