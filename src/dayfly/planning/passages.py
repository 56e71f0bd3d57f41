"""Schedules of the passes of a cut model's ranks for virtual time, made once and without objects.

A choice among plans asks for thousands of them.
"""

from __future__ import annotations

from collections.abc import Sequence
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
#: A micro-batch's number, bytes of its activation and gradient, and the replica on the other side.
Boundary = tuple[int, int, int, int | None]


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
    def names(self) -> tuple[tuple[str, int, int] | None, ...]:  # type: ignore[override]
        """As of `CompiledSchedule`."""
        return tuple(self._columns.names)


@lru_cache(maxsize=2048)
def passage_plan(
    layout: Layout,
    own: StageRank,
    order: tuple[Work, ...],
    before: tuple[Boundary, ...],
    behind: tuple[Boundary, ...],
    chunk_bytes: int,
    early: int,
) -> tuple[PassagePlan, tuple[int, ...]]:
    """Returns the schedule of a rank's passes, and its operations that are early pieces.

    `early` pieces of the last backward pass stand before it, each an operation of its own.
    """
    step = PipelineStep(
        layout=layout,
        stage_rank=own,
        order=order,
        before=_boundaries(before),
        behind=_boundaries(behind),
        chunk_bytes=chunk_bytes,
    )
    columns, pieces = step.columns(), range(0)
    if early:
        last = [work for work in order if work.what == BACKWARD][-1]
        pieces = _in_pieces(columns, last, early)
    return PassagePlan(columns), tuple(pieces)


def _boundaries(each: Sequence[Boundary]) -> dict[int, StageBoundary]:
    return {
        number: StageBoundary(activation_bytes=there, gradient_bytes=back, replica=replica)
        for number, there, back, replica in each
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
