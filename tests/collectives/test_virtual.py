"""Virtual time: lanes, latency, and schedules that do not fit together."""

from __future__ import annotations

import pytest

from dayfly.wire.collectives.scatter_reduce import scatter_reduce
from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span
from dayfly.wire.virtual import Link, finish_s, simulate

LINK = Link(up_bytes_per_s=10, down_bytes_per_s=20, latency_s=0.5, reduce_bytes_per_s=100)
TEN, A, B = Span(0, 10), Name("part", 0, 1), Name("part", 0, 2)


def spans_s(schedules: list[Schedule], itemsize: int = 1) -> list[list[tuple[float, ...]]]:
    """Start, end of occupation and completion of every operation, by rank."""
    timed = simulate(schedules, LINK, itemsize=itemsize)
    return [[(op.start_s, op.lane_free_s, op.done_s) for op in rank] for rank in timed]


def test_a_lane_is_busy_without_the_latency() -> None:
    """The second transfer starts when the first left the lane, not when it arrived."""
    ops = (Op(Kind.PUT, TEN, A), Op(Kind.PUT, TEN, B))
    assert spans_s([Schedule(ops)]) == [[(0, 1, 1.5), (1, 2, 2.5)]]
    assert spans_s([Schedule(ops)], itemsize=4) == [[(0, 4, 4.5), (4, 8, 8.5)]]


def test_an_operation_waits_for_its_message_and_for_others_effects() -> None:
    """Rank 1 gets A when it arrived (1.5 s), reduces it with its own, and then puts."""
    sender = Schedule((Op(Kind.PUT, TEN, A),))
    reader = Schedule(
        (
            Op(Kind.HOLD, TEN, A),
            Op(Kind.REDUCE, TEN, terms=(A, None), after=(0,)),
            Op(Kind.PUT, TEN, Name("sum", 1), after=(1,)),
            Op(Kind.DROP, Span(0, 0), terms=(A,), after=(2,)),
        )
    )
    times = [(1.5, 2.0, 2.5), (2.5, 2.6, 2.6), (2.6, 3.6, 4.1), (4.1, 4.1, 4.1)]
    assert spans_s([sender, reader])[1] == [pytest.approx(time) for time in times]
    assert finish_s(simulate([sender, reader], LINK, itemsize=1)) == pytest.approx(4.1)


def test_lanes_work_side_by_side() -> None:
    up, down = Op(Kind.PUT, TEN, A), Op(Kind.GET, TEN, B)
    other = Schedule((Op(Kind.PUT, Span(0, 0), B),))
    assert spans_s([Schedule((up, down)), other])[0] == [(0, 1, 1.5), (0.5, 1.0, 1.5)]


def test_nothing_takes_no_time() -> None:
    assert finish_s(simulate([], LINK)) == 0
    assert finish_s(simulate([Schedule(())], LINK)) == 0


def test_a_message_that_nobody_puts_is_named() -> None:
    with pytest.raises(ValueError, match=r"rank 0 waits for ever: .*GET.*source=0, destination=1"):
        simulate([Schedule((Op(Kind.GET, TEN, A),))], LINK)


def test_two_that_wait_for_each_other_are_named() -> None:
    one = Schedule((Op(Kind.GET, TEN, A), Op(Kind.PUT, TEN, B, after=(0,))))
    other = Schedule((Op(Kind.GET, TEN, B), Op(Kind.PUT, TEN, A, after=(0,))))
    with pytest.raises(ValueError, match=r"rank 0 waits for ever: .*GET.*source=0, destination=1"):
        simulate([one, other], LINK)


def test_a_rank_that_is_missing_is_named_by_what_it_owed() -> None:
    schedules = [scatter_reduce(rank, 3, 9) for rank in (0, 1)]
    with pytest.raises(ValueError, match=r"rank 0 waits for ever: .*HOLD.*phase='part', source=2"):
        simulate(schedules, LINK)
