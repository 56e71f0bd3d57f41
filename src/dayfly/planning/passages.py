"""Schedules of the passes of a cut model's ranks for virtual time, made once and without objects.

A choice among plans asks for thousands of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

from dayfly.wire.pipelines.columns import StepColumns
from dayfly.wire.pipelines.orders import BACKWARD
from dayfly.wire.pipelines.step import (
    Layout,
    PipelineStep,
    StageBoundary,
    StageRank,
)
from dayfly.wire.schedule import CompiledSchedule, Kind, Schedule, Work, lane_numbers

#: What the pieces of the last backward pass do, but for the last of them.
PIECE = "backward, in part"
#: Bytes of a micro-batch's activation and gradient.
Boundary = tuple[int, int]
#: A first stage, one between stages, and a last one.
FIRST, BETWEEN, LAST = range(3)
_OF_THREE = Layout(3, 1)


class PassagePlan(CompiledSchedule):
    """The schedule of a rank's passes, made ready without its operations, which few ask for.

    Attributes:
        each_work: of `works`.
    """

    def __init__(self, columns: StepColumns) -> None:
        self._columns = columns
        self.kinds = tuple(columns.kinds)
        self.numbers = lane_numbers(self.kinds)
        self.lengths = tuple(columns.lengths)
        self.largest = max(self.lengths, default=0)
        compute = Kind.COMPUTE
        self.works = tuple([at for at, kind in enumerate(self.kinds) if kind is compute])
        self.each_work = tuple(columns.works)
        self.after = tuple(columns.after)
        self.adds = (0,) * len(self.kinds)

    @cached_property
    def schedule(self) -> Schedule:  # type: ignore[override]
        """The operations, for who goes through them one by one."""
        return self._columns.schedule()

    @property
    def names(self) -> tuple[tuple[str, int, int] | None, ...]:
        """As of `CompiledSchedule`."""
        return tuple(self._columns.names)


@lru_cache(maxsize=2048)
def passage_plan(
    like: int,
    order: tuple[Work, ...],
    before: tuple[Boundary, ...],
    behind: tuple[Boundary, ...],
    chunk_bytes: int,
    early: int,
) -> tuple[PassagePlan, tuple[int, ...]]:
    """Returns the schedule of a rank's passes, and its operations that are early pieces.

    Ranks of many stages and replicas have one: its micro-batches are numbered from 0, and names of
    its messages are for `Stream.labels`, which `labels_of` makes.

    Args:
        like: FIRST, BETWEEN or LAST.
        order: of its passes.
        before, behind: of each micro-batch.
        chunk_bytes: what is worth a message.
        early: pieces of the last backward pass, each an operation of its own before it.
    """
    step = PipelineStep(
        layout=_OF_THREE,
        stage_rank=StageRank(like, 0),
        order=order,
        before=_boundaries(before),
        behind=_boundaries(behind),
        chunk_bytes=chunk_bytes,
    )
    columns, pieces = step.columns(), range(0)
    columns.names[:] = [
        None if name is None else _unlabelled(like, *name) for name in columns.names
    ]
    if early:
        last = [work for work in order if work.what == BACKWARD][-1]
        pieces = _in_pieces(columns, last, early)
    return PassagePlan(columns), tuple(pieces)


def labels_of(stage: int, micro_batches: Iterable[int]) -> tuple[int, ...]:
    """Returns the labels of a rank's stream: its two boundaries, and its micro-batches.

    Args:
        stage: of the rank.
        micro_batches: their numbers in a pipeline, by those of its `passage_plan`.
    """
    return (stage - 1, stage, *micro_batches)


@lru_cache(maxsize=4096)
def _unlabelled(like: int, phase: str, source: int, destination: int) -> tuple[str, int, int]:
    """Of a message: its name with positions in `labels_of` of its micro-batch and its boundary."""
    way, (number, chunk) = phase[0], phase[1:].split("-")
    return f"{way}-{chunk}", 2 + int(number), min(source, destination) - like + 1


def _boundaries(each: Sequence[Boundary]) -> dict[int, StageBoundary]:
    return {
        number: StageBoundary(activation_bytes=there, gradient_bytes=back)
        for number, (there, back) in enumerate(each)
    }


def _in_pieces(columns: StepColumns, work: Work, early: int) -> range:
    """Puts so many operations before a pass, which are pieces of it; returns their positions."""
    number = columns.works.index(work)
    computing = [at for at, kind in enumerate(columns.kinds) if kind is Kind.COMPUTE]
    at = computing[number]
    columns.works[number:number] = [Work(PIECE, piece) for piece in range(early)]
    columns.kinds[at:at] = [Kind.COMPUTE] * early
    columns.starts[at:at] = columns.lengths[at:at] = [0] * early
    columns.names[at:at] = [None] * early
    behind = [
        tuple([one + early if one >= at else one for one in after])
        for after in columns.after[at + 1 :]
    ]
    pieces = range(at, at + early)
    columns.after[at + 1 :] = [*((piece,) for piece in pieces), *behind]
    return pieces
