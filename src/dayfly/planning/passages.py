"""Schedules of the passes of a cut model's ranks for virtual time, made once and without objects.

A choice among plans asks for thousands of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

from dayfly.wire.pipelines.orders import BACKWARD, ORDERS, MakeOrder, forward_only, in_waves
from dayfly.wire.pipelines.step import (
    Layout,
    PipelineStep,
    StageBoundary,
    StageRank,
    StepRow,
    schedule_of,
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

    def __init__(self, rows: Sequence[StepRow]) -> None:
        self._rows = rows
        self.kinds = tuple([row.kind for row in rows])
        self.numbers = lane_numbers(self.kinds)
        self.lengths = tuple([row.length for row in rows])
        self.largest = max(self.lengths, default=0)
        compute = Kind.COMPUTE
        self.works = tuple([at for at, kind in enumerate(self.kinds) if kind is compute])
        self.each_work = tuple([row.work for row in rows if row.work is not None])
        self.after = tuple([row.after for row in rows])
        self.adds = (0,) * len(rows)

    @cached_property
    def schedule(self) -> Schedule:  # type: ignore[override]
        """The operations, for who goes through them one by one."""
        return schedule_of(self._rows)

    @cached_property
    def names(self) -> tuple[tuple[str, int, int] | None, ...]:
        """As of `CompiledSchedule`."""
        return tuple([row.name for row in self._rows])


@lru_cache(maxsize=2048)
def passage_plan(
    layout: Layout,
    own: tuple[int, int],
    order: str | None,
    waves: tuple[tuple[int, ...], ...],
    before: tuple[Boundary, ...],
    behind: tuple[Boundary, ...],
    chunk_bytes: int,
    early: int,
) -> tuple[PassagePlan, tuple[int, ...]]:
    """Returns the schedule of a rank's passes, and its operations that are early pieces.

    `early` pieces of the last backward pass stand before it, each an operation of its own.
    """
    make: MakeOrder = forward_only if order is None else ORDERS[order]
    step = PipelineStep(
        layout=layout,
        stage_rank=StageRank(*own),
        order=in_waves(make, own[0], layout.stages, waves),
        before=_boundaries(before),
        behind=_boundaries(behind),
        chunk_bytes=chunk_bytes,
    )
    rows = step.rows()
    if not early:
        return PassagePlan(rows), ()
    last = [number for wave in waves for number in wave][-1]
    return _in_pieces(rows, Work(BACKWARD, last), early)


def _boundaries(each: Sequence[Boundary]) -> dict[int, StageBoundary]:
    return {
        number: StageBoundary(activation_bytes=there, gradient_bytes=back, replica=replica)
        for number, there, back, replica in each
    }


def _in_pieces(
    rows: Sequence[StepRow], work: Work, early: int
) -> tuple[PassagePlan, tuple[int, ...]]:
    """The schedule with so many operations more before a pass: pieces of it."""
    at = next(number for number, row in enumerate(rows) if row.work == work)
    whole = rows[at]
    pieces = []
    for number in range(early):
        after = whole.after if not number else (at + number - 1,)
        pieces.append(whole._replace(work=Work(PIECE, number), after=after))
    rest = whole._replace(after=(at + early - 1,))
    moved = [
        row._replace(after=tuple([one + early if one >= at else one for one in row.after]))
        for row in rows[at + 1 :]
    ]
    plan = PassagePlan([*rows[:at], *pieces, rest, *moved])
    return plan, tuple(range(at, at + early))
