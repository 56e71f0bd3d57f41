"""A schedule is data: who sends which bytes to whom, in which order.

A collective is a pure function from (rank, world size, length) to a `Schedule`. The engine runs it
on real bytes, `virtual.simulate` runs the same list in virtual time.

Every operation occupies a lane: PUT the uplink, GET and FETCH the downlink, all others compute.
A lane starts its operations in the order of the list, each when all of its `after` are done, and
several requests at once where the channel handles them well (`Abilities.in_flight`). An operation
whose message has not arrived lets later ones pass, so they may finish in another order: what an
operation needs stands in its `after`. One operation at a time, in the order of the list, comes to
an end, too, if every rank does so, as over a channel in memory.

`CompiledSchedule` and `LaneQueue` are what engine and simulation run. `bucket_ends` and
`bucket_spans` cut a flat buffer that goes out while it is still being filled:

    sizes   |1|1|5|30|2|2|      at most 4 in the first bucket, 8 in the others
    buckets |1|1|5|30|2|2|      a size is never cut
            '---'-'--'---'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from itertools import pairwise

from dayfly.elementwise import least, most
from dayfly.wire.keys import EVERYONE
from dayfly.wire.leaves import Node


class Kind(Enum):
    """What an operation does."""

    PUT = "put"  # upload the buffer's span as the message `name`
    GET = "get"  # download the message `name` into the buffer's span
    FETCH = "fetch"  # download the message `name` beside the buffer, for a REDUCE
    REDUCE = "reduce"  # sum `terms` in their order into the buffer's span; None: the span itself
    DROP = "drop"  # remove the messages `terms`, which nobody needs any more
    COMPUTE = "compute"  # do `work`, which is not the wire's, with what is in the buffer


class Lane(Enum):
    """What an operation occupies."""

    UPLINK = "uplink"
    DOWNLINK = "downlink"
    COMPUTE = "compute"


_LANES = {Kind.PUT: Lane.UPLINK, Kind.GET: Lane.DOWNLINK, Kind.FETCH: Lane.DOWNLINK}


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

    Args:
        after: positions in the schedule of the operations that it waits for.
        feeds: of a PUT of a contribution, the message with the sum that it goes into, if that is
            kept.
        nodes: of a REDUCE along the tree over leaves, the node that each term is (see
            `wire.leaves`); none: terms are added one after another.
        own: of such a REDUCE, where in the buffer the own terms are, in their order.
    """

    kind: Kind
    span: Span
    name: Name | None = None
    terms: tuple[Name | None, ...] = ()
    after: tuple[int, ...] = ()
    feeds: Name | None = None
    work: Work | None = None
    nodes: tuple[Node, ...] = ()
    own: tuple[Span, ...] = ()

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
            if op.after and not (min(op.after) >= 0 and max(op.after) < position):
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


def chunk_count(length: int, chunk: int, limit: int = MOST_CHUNKS) -> int:
    """Returns how many `chunks` so many elements have; elementwise."""
    found: int = most(1, least(limit, length // max(1, chunk)))
    return found


@lru_cache(maxsize=1024)
def chunks(span: Span, chunk: int, limit: int = MOST_CHUNKS) -> tuple[Span, ...]:
    """A span in chunks of `chunk` elements or more, at most `limit`, one at least."""
    parts = chunk_count(len(span), chunk, limit)
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


#: Collectives that an engine runs at once, at most, where they take the time of a link.
MOST_AT_ONCE = 4
#: A lane is full with so many times what it would hold in small chunks: of large messages fewer are
#: under way, as each takes memory.
_FULL_CHUNKS = 8


def worth_at_once(*, immediate: bool) -> int:
    """Returns how many collectives are worth running at once: over a link they fill each other's
    gaps.

    Args:
        immediate: whether messages take no time of a link.
    """
    return 1 if immediate else MOST_AT_ONCE


def width(in_flight: int, chunk_bytes: int, largest_bytes: int) -> int:
    """Operations of a lane under way at once: fewer if they are so large that few fill it.

    Args:
        in_flight, chunk_bytes: the channel's abilities.
        largest_bytes: of a message of the schedule.
    """
    enough = _FULL_CHUNKS * in_flight * chunk_bytes // most(1, largest_bytes)
    found: int = least(in_flight, most(2, enough))
    return found


def lane_numbers(kinds: Sequence[Kind]) -> tuple[int, ...]:
    """Returns the number in `Lane` of what each operation occupies; as of `Op.lane`, and sooner."""
    put, get, fetch = Kind.PUT, Kind.GET, Kind.FETCH
    return tuple([0 if one is put else 1 if one is get or one is fetch else 2 for one in kinds])


class CompiledSchedule:
    """A schedule made ready: which operations are a lane's, and who waits for whom."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        ops = schedule.ops
        #: Of each operation, what it does.
        self.kinds = tuple([op.kind for op in ops])
        #: Of each operation, its lane's number in `Lane`.
        self.numbers = lane_numbers(self.kinds)
        #: Of each operation, the elements of its span.
        self.lengths = tuple([op.span.stop - op.span.start for op in ops])
        #: Elements of the largest message.
        self.largest = max(
            (n for n, op in zip(self.lengths, ops, strict=True) if op.name is not None),
            default=0,
        )
        #: Operations that do work: COMPUTE.
        self.works = tuple([at for at, op in enumerate(ops) if op.work is not None])
        #: Of each operation, those that it waits for.
        self.after = tuple([op.after for op in ops])

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Of each operation, its elements."""
        return tuple([op.span for op in self.schedule])

    @cached_property
    def names(self) -> tuple[tuple[str, int, int] | None, ...]:
        """Of each operation, its message's phase, source and destination; None: it has none."""
        names = [op.name for op in self.schedule]
        return tuple(
            [None if one is None else (one.phase, one.source, one.destination) for one in names]
        )

    @cached_property
    def totals(self) -> tuple[bool, ...]:
        """Of each operation, whether its message is a sum, for everyone."""
        return tuple([name is not None and name[2] == EVERYONE for name in self.names])

    @cached_property
    def adds(self) -> tuple[int, ...]:
        """Of each operation, contributions that it adds up as a REDUCE, less one."""
        reduce = Kind.REDUCE
        return tuple([len(op.terms) - 1 if op.kind is reduce else 0 for op in self.schedule])

    @cached_property
    def lanes(self) -> Mapping[Lane, tuple[int, ...]]:
        """The operations of each lane, in their order."""
        queues: list[list[int]] = [[] for _ in Lane]
        for at, number in enumerate(self.numbers):
            queues[number].append(at)
        return {lane: tuple(queue) for lane, queue in zip(Lane, queues, strict=True)}

    @cached_property
    def waits_for(self) -> tuple[int, ...]:
        """Of each operation, how many it waits for."""
        return tuple(map(len, self.after))

    @cached_property
    def sums(self) -> Mapping[Name, int]:
        """The REDUCE that each contribution goes into."""
        return {
            name: at
            for at, op in enumerate(self.schedule)
            if op.kind is Kind.REDUCE
            for name in op.terms
            if name is not None
        }

    @cached_property
    def dependents(self) -> tuple[tuple[int, ...], ...]:
        """Of each operation, those that wait for it."""
        dependents: list[list[int]] = [[] for _ in self.after]
        for at, after in enumerate(self.after):
            for earlier in after:
                dependents[earlier].append(at)
        return tuple(map(tuple, dependents))


#: Sizes of buckets, in bytes, as in torch's DDP: the first small, so that it can go out early.
FIRST_BUCKET_BYTES = 2**20
BUCKET_BYTES = 25 * 2**20


def bucket_ends(sizes: Sequence[int], first: int, most: int) -> list[int]:
    """Returns where to cut a row of sizes: after how many of them each bucket ends.

    Each bucket has at least one size.

    Args:
        sizes: to be cut.
        first: largest sum of the first bucket, if it has several sizes.
        most: the same of all other buckets.
    """
    ends: list[int] = []
    room = 0
    for number, size in enumerate(sizes):
        if number and size > room:
            ends.append(number)
            room = most
        elif not number:
            room = first
        room -= size
    return [*ends, len(sizes)]


def bucket_spans(
    sizes: Sequence[int], ends: Sequence[int], length: int, *, apart: bool
) -> tuple[list[int], tuple[Span, ...]]:
    """Where the buckets lie in a flat buffer.

    Args:
        sizes: elements of each parameter, in the order in which they become ready.
        ends: how many of them are in each bucket and those before it.
        length: elements of the whole buffer.
        apart: whether what follows the parameters is a span of its own, or part of the last one.

    Returns:
        The number of each parameter's bucket; the span of each bucket.
    """
    spans: list[Span] = []
    bucket_of: list[int] = []
    start = 0
    for end in ends:
        stop = sum(sizes[:end])
        bucket_of += [len(spans)] * (end - len(bucket_of))
        spans.append(Span(start, stop))
        start = stop
    spans.append(Span(start, length) if apart else Span(spans.pop().start, length))
    return bucket_of, tuple(spans)
