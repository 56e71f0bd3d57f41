"""A schedule is data: who sends which bytes to whom, in which order.

A collective is a pure function from (rank, world size, length) to a `Schedule`. The engine runs it
on real bytes, `virtual.simulate` runs the same list in virtual time.

Every operation occupies a lane: PUT the uplink, GET and HOLD the downlink, all others compute.
A lane starts its operations in the order of the list, each when all of its `after` are done, and
several requests at once where its channel takes them well (`Abilities.in_flight`). One whose
message is not there yet lets those pass that were started after it, so they may be done in another
order: what an operation needs stands in its `after`. An operation at a time, in the order of the
list, comes to an end, too, if every rank does so, as over a channel in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from dayfly.wire.keys import EVERYONE


class Kind(Enum):
    """What an operation does."""

    PUT = "put"  # upload the buffer's span as the message `name`
    GET = "get"  # download the message `name` into the buffer's span
    HOLD = "hold"  # download the message `name` beside the buffer, for a REDUCE
    REDUCE = "reduce"  # sum `terms` in their order into the buffer's span; None: the span itself
    DROP = "drop"  # remove the messages `terms`, which nobody needs any more
    COMPUTE = "compute"  # do `work`, which is not the wire's, with what is in the buffer


class Lane(Enum):
    """What an operation occupies."""

    UPLINK = "uplink"
    DOWNLINK = "downlink"
    COMPUTE = "compute"


_LANES = {Kind.PUT: Lane.UPLINK, Kind.GET: Lane.DOWNLINK, Kind.HOLD: Lane.DOWNLINK}


@dataclass(frozen=True, slots=True)
class Span:
    """Elements `start` (included) to `stop` (excluded) of the flat buffer."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Name:
    """A message's part of the key: the phase of the collective, and the two parties."""

    phase: str
    source: int
    destination: int = EVERYONE


@dataclass(frozen=True, slots=True)
class Work:
    """What a COMPUTE does, such as the forward pass of a micro-batch; counted from 0."""

    what: str
    micro_batch: int


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.

    after: positions in the schedule of the operations that it waits for. feeds: of a PUT of a
    contribution, the message with the sum that it goes into, if that is kept.
    """

    kind: Kind
    span: Span
    name: Name | None = None
    terms: tuple[Name | None, ...] = ()
    after: tuple[int, ...] = ()
    feeds: Name | None = None
    work: Work | None = None

    @property
    def lane(self) -> Lane:
        """What the operation occupies."""
        return _LANES.get(self.kind, Lane.COMPUTE)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one rank does. An operation only waits for operations that stand before it."""

    ops: tuple[Op, ...]

    def __post_init__(self) -> None:
        for position, op in enumerate(self.ops):
            if any(not 0 <= earlier < position for earlier in op.after):
                raise ValueError(f"operation {position} waits for one that is not before it: {op}")

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def reads_buffer(self) -> bool:
        """Whether the rank's own contribution is needed; if not, it need not be computed."""
        filled: list[Span] = []
        for op in self.ops:
            if op.kind is Kind.GET or op.kind is Kind.REDUCE:
                if op.kind is Kind.REDUCE and None in op.terms:
                    return True
                filled.append(op.span)
            elif op.kind is Kind.PUT and len(op.span) and op.span not in filled:
                return True
        return False


class Draft:
    """A schedule that is being written down."""

    def __init__(self) -> None:
        self._ops: list[Op] = []

    def add(self, op: Op) -> int:
        """Append an operation; returns its position, for the `after` of others."""
        self._ops.append(op)
        return len(self._ops) - 1

    def schedule(self) -> Schedule:
        """What was written down."""
        return Schedule(tuple(self._ops))


def split(length: int, parts: int) -> tuple[Span, ...]:
    """`length` elements in `parts` spans whose sizes differ by one at most, the larger first."""
    size, larger = divmod(length, parts)
    starts = [part * size + min(part, larger) for part in range(parts + 1)]
    return tuple(Span(start, stop) for start, stop in pairwise(starts))


#: Most chunks, unless an algorithm has its own: more gain nothing, and are requests.
MOST_CHUNKS = 32


def chunks(span: Span, chunk: int, most: int = MOST_CHUNKS) -> tuple[Span, ...]:
    """A span in chunks of `chunk` elements or more, at most `most`, one at least."""
    parts = max(1, min(most, len(span) // max(1, chunk)))
    return tuple(
        Span(span.start + one.start, span.start + one.stop) for one in split(len(span), parts)
    )


def check_rank(rank: int, world_size: int) -> None:
    """Raise ValueError unless `rank` is one of 0 to world_size - 1."""
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size}")


def alone(length: int) -> Schedule:
    """The all-reduce of one rank: its own term is the sum, and nothing is sent."""
    return Schedule((Op(Kind.REDUCE, Span(0, length), terms=(None,)),))
