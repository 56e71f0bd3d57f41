"""Virtual time: lanes, latency, and schedules that do not fit together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dayfly.wire.collectives.k_reduce import scatter_reduce
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
            Op(Kind.FETCH, TEN, A),
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


def test_a_message_that_is_not_there_lets_others_pass() -> None:
    """A comes at 3.5 s, B at 0.5 s, C at 1.5 s: in flight are A; A and B; all."""
    c = Name("part", 0, 3)
    sender = Schedule(
        (
            Op(Kind.PUT, Span(0, 0), B),
            Op(Kind.PUT, TEN, c),
            Op(Kind.PUT, Span(0, 20), A),
        )
    )
    reader = Schedule(tuple(Op(Kind.GET, TEN, name) for name in (A, B, c)))
    starts = {1: [3.5, 4.0, 4.5], 2: [3.5, 0.5, 4.0], 3: [3.5, 0.5, 1.5]}
    for in_flight, expected in starts.items():
        timed = simulate([sender, reader], replace(LINK, in_flight=in_flight), itemsize=1)
        assert [one.start_s for one in timed[1]] == expected


def test_what_waits_for_another_operation_holds_up_its_lane() -> None:
    """The first put waits until the get is done at 3.0 s, and the second starts after it."""
    ops = (
        Op(Kind.GET, TEN, B),
        Op(Kind.PUT, TEN, A, after=(0,)),
        Op(Kind.PUT, TEN, Name("part", 0, 3)),
    )
    other = Schedule((Op(Kind.PUT, Span(0, 15), B),))
    for in_flight in (1, 2):
        timed = simulate([Schedule(ops), other], replace(LINK, in_flight=in_flight), itemsize=1)
        assert [one.start_s for one in timed[0]] == [2.0, 3.0, 4.0]


def test_the_window_begins_with_the_first_that_is_not_carried() -> None:
    """A comes last, at 10.5 s. Of two in flight only B passes it; of three also C; D waits."""
    c, d = Name("part", 0, 3), Name("part", 0, 4)
    sender = Schedule(
        tuple(
            Op(Kind.PUT, Span(0, size), name) for size, name in ((0, B), (0, c), (0, d), (100, A))
        )
    )
    reader = Schedule(
        tuple(Op(Kind.GET, Span(0, 0 if one != A else 100), one) for one in (A, B, c, d))
    )
    for in_flight, expected in ((2, [10.5, 0.5, 15.5, 15.5]), (3, [10.5, 0.5, 0.5, 15.5])):
        timed = simulate([sender, reader], replace(LINK, in_flight=in_flight), itemsize=1)
        assert [one.start_s for one in timed[1]] == expected


def test_over_direct_links_a_message_to_everyone_leaves_once_for_each() -> None:
    """Rank 1 of 4 sends to 2, 3 and 0, a second each; B to one rank takes one."""
    total = Name("sum", 1)
    sender = Schedule((Op(Kind.PUT, TEN, total), Op(Kind.PUT, TEN, B)))
    reader = Schedule((Op(Kind.GET, Span(0, 10), total),))
    timed = simulate([reader, sender, reader, reader], replace(LINK, direct=True), itemsize=1)
    assert [(one.start_s, one.lane_free_s, one.done_s) for one in timed[1]] == [
        (0, 3, 3.5),
        (3, 4, 4.5),
    ]
    assert [timed[rank][0].start_s for rank in (2, 3, 0)] == [1.5, 2.5, 3.5]


def test_each_rank_may_have_a_link_of_its_own() -> None:
    schedules = [Schedule((Op(Kind.PUT, TEN, name),)) for name in (A, B)]
    timed = simulate(schedules, [LINK, replace(LINK, up_bytes_per_s=5)], itemsize=1)
    assert [times[0].done_s for times in timed] == [1.5, 2.5]


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
    with pytest.raises(ValueError, match=r"rank 0 waits for ever: .*FETCH.*phase='part', source=2"):
        simulate(schedules, LINK)
