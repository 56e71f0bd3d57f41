"""One step of one rank of a pipeline: what comes in, what it computes, and what goes out.

    Layout(stages=3, replicas=2)      stage 0   stage 1   stage 2
    replica 0                         rank 0 -> rank 2 -> rank 4
    replica 1                         rank 1 -> rank 3 -> rank 5

A row is a pipeline: activations go along it, and gradients come back. A column holds the same
parameters, and sums their gradients. Where stages have different numbers of replicas, each
micro-batch has a row of its own (see `routes`):

    Layout(stages=3, replicas=(3, 2, 1))      stage 0: ranks 0 1 2   stage 1: 3 4   stage 2: 5

The middle one of three stages, fill-drain, two micro-batches of two chunks each; f0-1 is chunk 1 of
micro-batch 0's activation, b0-1 of its gradient, 0 the forward and 0' the backward pass:

    downlink   |f0-0|f0-1|f1-0|f1-1|              |b0-0|b0-1|b1-0|b1-1|
    compute              |   0     |   1     |              |   0'    |   1'    |
    uplink                         |f0-0|f0-1|f1-0|f1-1|              |b0-0|b0-1|b1-0|b1-1|

The list has it pass by pass: the chunks of the input, the pass, the chunks of the output. So it
comes to an end one operation at a time if the passes of all stages fit, and so do lanes that each
keep its order, as whatever an operation waits for stands before it. Lanes overlap: while a pass is
computed, the inputs of the next `ahead` come in, and the outputs of as many before it go out; more
would only take memory.

Where a put waits for room, as over a direct channel, room for as many of the largest messages as
are in flight is enough for nobody to wait for ever.

What a rank has put stays in the channel, as a rank that starts again reads its inputs once more.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from dayfly.wire.pipelines.columns import StepColumns, pieces_of
from dayfly.wire.pipelines.orders import BACKWARD, FORWARD
from dayfly.wire.schedule import Kind, Name, Schedule, Work, check_rank
from dayfly.wire.shaping import Rates


@dataclass(frozen=True, slots=True)
class StageRank:
    """Which stage of the model a rank computes, and which replica of it; counted from 0."""

    stage: int
    replica: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Stages and their replicas. Ranks count through a stage's replicas first.

    Args:
        replicas: of each stage, or one number for all.

    Raises:
        ValueError: a stage without a replica, or numbers of another count of stages.
    """

    stages: int
    replicas: int | tuple[int, ...]
    #: Of each stage: its first rank; then that of the stage there is not.
    _firsts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _each: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        each = self.replicas
        if isinstance(each, int):
            each = (each,) * self.stages
        if self.stages < 1 or len(each) != self.stages or min(each) < 1:
            raise ValueError(f"{self}: a pipeline has a stage and a replica at least")
        object.__setattr__(self, "_firsts", tuple(accumulate(each, initial=0)))
        object.__setattr__(self, "_each", tuple(each))

    @property
    def each(self) -> tuple[int, ...]:
        """Replicas of each stage."""
        return self._each

    @property
    def even(self) -> bool:
        """Whether all stages have as many replicas."""
        return isinstance(self.replicas, int) or len(set(self.replicas)) == 1

    @property
    def in_words(self) -> str:
        """`2` replicas, of all stages, or `4+2+1` of stages that differ."""
        return "+".join(map(str, self.each[:1] if self.even else self.each))

    @property
    def world_size(self) -> int:
        """Ranks of all stages."""
        return self._firsts[-1]

    def replicas_of(self, stage: int) -> int:
        """Replicas of a stage."""
        return self._each[stage]

    def stage_rank(self, rank: int) -> StageRank:
        """What a rank computes. Raises ValueError if there is no such rank."""
        check_rank(rank, self.world_size)
        stage = bisect_right(self._firsts, rank) - 1
        return StageRank(stage, rank - self._firsts[stage])

    def rank(self, stage: int, replica: int) -> int:
        """Who computes a stage's replica. Raises ValueError if there is none."""
        if not (0 <= stage < self.stages and 0 <= replica < self.replicas_of(stage)):
            raise ValueError(f"replica {replica} of stage {stage}: there is none in {self}")
        return self._firsts[stage] + replica

    def stage_ranks(self, stage: int) -> range:
        """The ranks of a stage, in the order of their replicas; ValueError if there is none."""
        first = self.rank(stage, 0)
        return range(first, first + self.replicas_of(stage))


#: Layouts that were made already, as they are asked for often.
layout_of = lru_cache(maxsize=256)(Layout)


#: Chunks gain nothing where a transfer takes no time of a link.
_WHOLE_BYTES = 2**62


def worthwhile_bytes(ways: Iterable[Rates | None], in_flight: int) -> int:
    """Bytes of a message that keep all of these ways busy with so many requests under way.

    A way of w bytes a second carries w times its latency until the first request is through: so
    much must be under way at least, and twice that lets requests follow each other.
    """
    carried = [
        max(way.up_bytes_per_s or 0.0, way.down_bytes_per_s or 0.0) * way.latency_s
        for way in ways
        if way is not None
    ]
    return math.ceil(2 * max(carried, default=0.0) / in_flight)


def message_bytes(chunk_bytes: int, worthwhile: int, *, immediate: bool) -> int:
    """Least bytes of a chunk of what passes a boundary, the same at every rank.

    Args:
        chunk_bytes, immediate: the channel's.
        worthwhile: from `worthwhile_bytes`.
    """
    return _WHOLE_BYTES if immediate else max(chunk_bytes, worthwhile)


#: Parts of a micro-batch in `Slots`.
_PARTS = 4
_FIRST_PART = {FORWARD: 0, BACKWARD: 2}
_LETTER = {FORWARD: "f", BACKWARD: "b"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBoundary:
    """What one micro-batch sends over the boundary between two stages; of 0 bytes nothing is sent.

    Args:
        activation_bytes: to the stage behind.
        gradient_bytes: back; 0 where nothing needs a gradient.
        replica: of the stage on the other side, that has the micro-batch; None: the same as here.
    """

    activation_bytes: int = 0
    gradient_bytes: int = 0
    replica: int | None = None


def input_part(work: Work) -> int:
    """The part of `Slots` with what comes in for a pass: 4m forward, 4m + 2 backward."""
    return _PARTS * work.micro_batch + _FIRST_PART[work.what]


def output_part(work: Work) -> int:
    """The part of `Slots` with what a pass sends: 4m + 1 forward, 4m + 3 backward."""
    return input_part(work) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """What one rank does in a step, and the messages that it reads and puts.

    A backward pass is in the schedule even if no gradient comes in for it or goes out; whoever
    computes may have nothing to do there.

    Args:
        order: the passes, each once, in the order in which they are computed (see `orders`);
            gradients are sent only for backward passes that are in it.
        before, behind: the boundaries to the stage before and to that behind, by micro-batch, as
            the neighbours have them, too; none at the ends of the pipeline.
        chunk_bytes: what is worth a message, the same at every rank.

    Raises:
        ValueError: boundaries that do not fit.
    """

    layout: Layout
    stage_rank: StageRank
    order: tuple[Work, ...]
    before: Mapping[int, StageBoundary] = field(default_factory=dict)
    behind: Mapping[int, StageBoundary] = field(default_factory=dict)
    chunk_bytes: int

    def __post_init__(self) -> None:
        self.layout.rank(self.stage_rank.stage, self.stage_rank.replica)
        if len(set(self.order)) < len(self.order):
            raise ValueError(f"a pass is there twice: {self.order}")
        numbers = {work.micro_batch for work in self.order}
        last = self.layout.stages - 1
        for what, boundaries, end in (("before", self.before, 0), ("behind", self.behind, last)):
            at_end = self.stage_rank.stage == end
            if at_end and boundaries:
                raise ValueError(f"stage {end} of {last + 1} has no boundary {what} it")
            if missing := set() if at_end else numbers - boundaries.keys():
                raise ValueError(
                    f"stage {self.stage_rank.stage}: no boundary {what} it for micro-batch "
                    f"{min(missing)}"
                )

    def schedule(self, stored: Set[Name] = frozenset(), *, ahead: int = 2) -> Schedule:
        """The operations, on `Slots(self.sizes(), schedule)`.

        Args:
            stored: messages of `puts` that are in the channel already, as of a rank that starts
                again; they are not put again.
            ahead: inputs that may come in, and outputs that may wait to be sent, beside those of
                the pass that is computed; 0: nothing overlaps.
        """
        return self.columns(stored, ahead=ahead).schedule()

    def columns(self, stored: Set[Name] = frozenset(), *, ahead: int = 2) -> StepColumns:
        """Returns the same operations as `schedule`, as columns, for the same arguments."""
        if ahead < 0:
            raise ValueError(f"{ahead} inputs ahead: 0 at least")
        found = StepColumns()
        own, parts, start = self._rank, self._parts(), 0
        starts: dict[int, int] = {}  # of each part of `Slots`, in their order
        for part in sorted(parts):
            starts[part] = start
            start += parts[part][0]
        computed: list[int] = []
        sent: list[range] = []
        for number, work in enumerate(self.order):
            earlier = number - 1 - ahead
            room = (computed[earlier],) if earlier >= 0 else ()
            phase, part = _phase(work), input_part(work)
            size, other = parts[part]
            pieces = pieces_of(phase, size, self.chunk_bytes)
            came = found.transfers(Kind.GET, (starts[part], other, own), pieces, room)
            computed.append(found.compute(work, (*came, *(sent[earlier] if room else ()))))
            size, other = parts[part + 1]
            pieces = pieces_of(phase, size, self.chunk_bytes)
            ends = own, other
            if stored:
                there = [one.phase for one in stored if (one.source, one.destination) == ends]
                pieces = pieces.without(frozenset(there))
            message = starts[part + 1], *ends
            sent.append(found.transfers(Kind.PUT, message, pieces, (computed[-1],)))
        return found

    def _parts(self) -> dict[int, tuple[int, int]]:
        """Of each part of `Slots` that is used: its bytes, and the rank on the other side."""
        found = {}
        for work in self.order:
            part, is_forward = input_part(work), work.what == FORWARD
            before, behind = _of(self.before, work), _of(self.behind, work)
            if is_forward:
                sizes = before.activation_bytes, behind.activation_bytes
            else:
                sizes = behind.gradient_bytes, before.gradient_bytes
            ends = (-1, before), (1, behind)
            for at, size, (step, other) in zip(
                (part, part + 1), sizes, ends if is_forward else ends[::-1], strict=True
            ):
                found[at] = size, self._neighbour(step, other) if size else 0
        return found

    def sizes(self) -> tuple[int, ...]:
        """Bytes of the parts of `Slots`, four a micro-batch number; see `input_part`.

        Those of numbers that are not in the order are empty.
        """
        sizes = [0] * (_PARTS * max((work.micro_batch + 1 for work in self.order), default=0))
        for part, (size, _) in self._parts().items():
            sizes[part] = size
        return tuple(sizes)

    def gets(self) -> tuple[Name, ...]:
        """All messages that this rank reads, and nobody else: for one DROP once it needs them no
        more, not even to start again."""
        return self._named(Kind.GET)

    def puts(self) -> tuple[Name, ...]:
        """All messages that this rank puts, also those that are stored already."""
        return self._named(Kind.PUT)

    def _named(self, kind: Kind) -> tuple[Name, ...]:
        found = self.columns()
        each = zip(found.kinds, found.names, strict=True)
        return tuple(Name(*name) for one, name in each if one is kind and name is not None)

    @property
    def _rank(self) -> int:
        return self.layout.rank(self.stage_rank.stage, self.stage_rank.replica)

    def _neighbour(self, step: int, boundary: StageBoundary) -> int:
        """The rank so many stages on that has a boundary's micro-batch, too."""
        own, replica = self.stage_rank, boundary.replica
        return self.layout.rank(own.stage + step, own.replica if replica is None else replica)


_NOTHING = StageBoundary()


def _of(boundaries: Mapping[int, StageBoundary], work: Work) -> StageBoundary:
    return boundaries.get(work.micro_batch, _NOTHING)


def _phase(work: Work) -> str:
    return f"{_LETTER[work.what]}{work.micro_batch}"
