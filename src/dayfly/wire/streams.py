"""What runs in virtual time: each rank's streams, its lines and its processor. See `simulation`."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from dayfly.wire.lanes import Plan
from dayfly.wire.processor import Processor
from dayfly.wire.schedule import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """One direction of a rank's way to the store.

    occupied_s: seconds that a message of so many bytes keeps the line busy. latency_s: until its
    effect. piece_s: lines are shared in pieces of so many seconds; infinite: message by message.
    cpu_s, cpu_s_per_byte: CPU time of a message; it does not make the message slower while there is
    enough of it.
    """

    occupied_s: Callable[[float], float]
    latency_s: float = 0.0
    piece_s: float = math.inf
    cpu_s: float = 0.0
    cpu_s_per_byte: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A schedule that a rank runs.

    name: of its messages; streams of several ranks with one name talk to each other; None: none.
    member, members: which of them this one is. group: whether these are some of all ranks.
    itemsize: bytes of an element. travelling: bytes that travel for so many elements, if not
    theirs. after: of which streams of the rank, by their numbers, which operation must be done
    first (None: all). pool: streams of one pool take turns, `at_once` at once. in_flight: of each
    lane but compute. alone: one operation at a time, in the order of the list. begin_s: seconds of
    CPU time before the first operation, once it is the stream's turn. message_s: the same of each
    message, beside what its direction says. work_s: the same of a COMPUTE; None: nothing.
    """

    plan: Plan
    name: Hashable = None
    member: int = 0
    members: int = 1
    group: bool = False
    itemsize: int = 4
    travelling: Callable[[int], int] | None = None
    after: tuple[tuple[int, int | None], ...] = ()
    pool: str | None = None
    at_once: int = 1
    in_flight: int = 1
    alone: bool = False
    begin_s: float = 0.0
    message_s: float = 0.0
    work_s: Callable[[Work], float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """What a rank runs, with what.

    header_bytes: before each message. direct: messages go from rank to rank, so one for everyone
    leaves its sender once for each. held: a request is in flight until its latency has passed, and
    not only while it is carried. reduce_s_per_byte: CPU time to add a contribution. early: they are
    added as they come; else by the REDUCE. Raises ValueError if a stream waits for a later one.
    """

    streams: Sequence[Stream]
    up: Direction
    down: Direction
    processor: Processor = field(default_factory=Processor)
    header_bytes: int = 0
    direct: bool = False
    held: bool = False
    reduce_s_per_byte: float = 0.0
    early: bool = False

    def __post_init__(self) -> None:
        for number, stream in enumerate(self.streams):
            if any(not 0 <= other < number for other, _ in stream.after):
                raise ValueError(f"stream {number} waits for one that is not before it")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingThread:
    """One thread that serves the messages of all ranks, beside their lines.

    cpu_s, cpu_s_per_byte: CPU time that it takes to take a message in, or to give it out.
    """

    cpu_s: float = 0.0
    cpu_s_per_byte: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all ranks have together.

    cores: of the machine, if they are on one, and the store with them. store: None: it serves
    everybody at once.
    """

    cores: float = math.inf
    store: ServingThread | None = None


#: Nothing: each rank has a machine of its own, and no store is too slow for them.
ALONE = Shared()


@dataclass(frozen=True, slots=True)
class Moments:
    """Of each operation of a stream: when it began to be carried, when its lane was free, when its
    effect was there."""

    start_s: Sequence[float]
    free_s: Sequence[float]
    done_s: Sequence[float]
