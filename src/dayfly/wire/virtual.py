"""The same schedules in virtual time: what a collective takes, without sending a byte.

A lane carries its operations one after another. A transfer of b bytes over a lane of w bytes a
second occupies the lane for b/w and is complete a latency later, while the next one already
transfers (requests are pipelined), so a phase of several transfers pays the latency once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.wire.schedule import Kind, Lane, Name, Op, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A worker's way to the store; rates in bytes a second, each way. Reducing at `reduce`."""

    up_bytes_per_s: float
    down_bytes_per_s: float
    latency_s: float
    reduce_bytes_per_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class Timed:
    """When an operation occupied its lane from and to, and when its effect was there."""

    op: Op
    start_s: float
    lane_free_s: float
    done_s: float


def simulate(
    schedules: Sequence[Schedule], link: Link, *, itemsize: int = 4
) -> tuple[tuple[Timed, ...], ...]:
    """Run one schedule a rank; returns each rank's operations with their times.

    Raises ValueError naming an operation that waits for ever, if the schedules do not fit.
    """
    timed: list[dict[int, Timed]] = [{} for _ in schedules]
    lanes = [
        {lane: [p for p, op in enumerate(schedule) if op.lane is lane] for lane in Lane}
        for schedule in schedules
    ]
    free = [dict.fromkeys(Lane, 0.0) for _ in schedules]
    there: dict[Name, float] = {}
    moved = True
    while moved:
        moved = False
        for rank, schedule in enumerate(schedules):
            for lane, queue in lanes[rank].items():
                while queue:
                    op = schedule.ops[queue[0]]
                    ready = _ready_s(op, timed[rank], there)
                    if ready is None:
                        break
                    start = max(ready, free[rank][lane])
                    end = start + _occupied_s(op, link, itemsize)
                    done = end if lane is Lane.COMPUTE else end + link.latency_s
                    timed[rank][queue.pop(0)] = Timed(op, start, end, done)
                    free[rank][lane] = end
                    if op.kind is Kind.PUT and op.name is not None:
                        there.setdefault(op.name, done)
                    moved = True
    for rank, schedule in enumerate(schedules):
        # All before the earliest that is left are done: it is what waits for a message.
        left = [queue[0] for queue in lanes[rank].values() if queue]
        if left:
            raise ValueError(f"rank {rank} waits for ever: {schedule.ops[min(left)]}")
    return tuple(tuple(by[position] for position in sorted(by)) for by in timed)


def finish_s(times: Sequence[Sequence[Timed]]) -> float:
    """When the last operation of the last rank was done."""
    return max((timed.done_s for rank in times for timed in rank), default=0.0)


def _ready_s(op: Op, timed: dict[int, Timed], there: dict[Name, float]) -> float | None:
    """When what the operation waits for is done; None if that is not known yet."""
    if any(earlier not in timed for earlier in op.after):
        return None
    ready = max((timed[earlier].done_s for earlier in op.after), default=0.0)
    if op.kind is Kind.GET or op.kind is Kind.HOLD:
        assert op.name is not None
        if op.name not in there:
            return None
        ready = max(ready, there[op.name])
    return ready


def _occupied_s(op: Op, link: Link, itemsize: int) -> float:
    size = len(op.span) * itemsize
    match op.kind:
        case Kind.PUT:
            return size / link.up_bytes_per_s
        case Kind.GET | Kind.HOLD:
            return size / link.down_bytes_per_s
        case Kind.REDUCE:
            return size * (len(op.terms) - 1) / link.reduce_bytes_per_s
        case Kind.DROP:
            return 0.0
