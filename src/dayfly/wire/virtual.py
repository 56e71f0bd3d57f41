"""The same schedules in virtual time: what a collective takes, without sending a byte.

A lane carries its operations one after another. A transfer of b bytes over a lane of w bytes a
second occupies the lane for b/w and is complete a latency later, while the next one already
transfers (requests are pipelined), so a phase of several transfers pays the latency once.

A lane starts its operations in their order, as the engine does: each when what it waits for is
done, and when it is less than `in_flight` from the first that is not carried. Of those that were
started, one is carried at a time, whichever could be first: what waits for its message lets those
pass that were started after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dayfly.wire.schedule import CompiledSchedule, Op, Schedule, Work
from dayfly.wire.simulation import run
from dayfly.wire.streams import Direction, Rank, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A worker's way to the store; rates in bytes a second, each way. Reducing at `reduce`.

    Args:
        in_flight: how far a lane may be ahead of the first operation that is not carried; latency
            is pipelined anyway.
        direct: messages go from worker to worker, so one for everyone leaves its sender once for
            each other rank, in the order rank+1, rank+2, ... (who is no rank begins at 0).
    """

    up_bytes_per_s: float
    down_bytes_per_s: float
    latency_s: float
    reduce_bytes_per_s: float = float("inf")
    in_flight: int = 1
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Timed:
    """When an operation occupied its lane from and to, and when its effect was there."""

    op: Op
    start_s: float
    lane_free_s: float
    done_s: float


def simulate(
    schedules: Sequence[Schedule],
    link: Link | Sequence[Link],
    *,
    itemsize: int = 4,
    work_s: Callable[[int, Work], float] | None = None,
) -> tuple[tuple[Timed, ...], ...]:
    """Run one schedule a rank; returns each rank's operations with their times.

    Raises ValueError naming an operation that waits for ever, if the schedules do not fit.

    Args:
        link: every rank's, or one a rank. A schedule beyond the ranks is the server's, as its
            messages have it.
        work_s: seconds that a rank takes for the work of a COMPUTE; None: nothing.
    """
    links = [link] * len(schedules) if isinstance(link, Link) else list(link)
    ranks = [
        Rank(
            streams=[
                Stream(
                    plan=CompiledSchedule(schedule),
                    member=number,
                    members=len(schedules),
                    itemsize=itemsize,
                    in_flight=its.in_flight,
                    works_s=_works_s(schedule, number, work_s),
                )
            ],
            up=_way(its, its.up_bytes_per_s),
            down=_way(its, its.down_bytes_per_s),
            direct=its.direct,
            reduce_s_per_byte=1 / its.reduce_bytes_per_s,
        )
        for number, (schedule, its) in enumerate(zip(schedules, links, strict=True))
    ]
    return tuple(
        tuple(map(Timed, schedule, times.start_s, times.free_s, times.done_s))
        for schedule, (times,) in zip(schedules, run(ranks), strict=True)
    )


def _works_s(
    schedule: Schedule, rank: int, work_s: Callable[[int, Work], float] | None
) -> list[float]:
    if work_s is None:
        return []
    return [work_s(rank, op.work) for op in schedule if op.work is not None]


def finish_s(times: Sequence[Sequence[Timed]]) -> float:
    """When the last operation of the last rank was done."""
    return max((timed.done_s for rank in times for timed in rank), default=0.0)


def _way(link: Link, bytes_per_s: float) -> Direction:
    return Direction(occupied_s=lambda nbytes: nbytes / bytes_per_s, latency_s=link.latency_s)
