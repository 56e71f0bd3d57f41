"""The ring: its schedules drawn and asserted, its order, its neighbours and its time."""

from __future__ import annotations

import pytest

from dayfly.wire.collectives.ring import RING, ring, ring_s
from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span
from tests.collectives.timing import LATENCY_S, RATE, link, seconds, stated

PUT, GET, FETCH, REDUCE, DROP = Kind.PUT, Kind.GET, Kind.FETCH, Kind.REDUCE, Kind.DROP


def schedules(size: int, length: int, chunk: int) -> list[Schedule]:
    """Every rank's."""
    return [ring(rank, size, length, chunk=chunk) for rank in range(size)]


def test_rank_0_of_3() -> None:
    """6 elements are cut in |0 1|2 3|4 5|, a chunk each. Split 1 starts here: its second-last.

    uplink    0 part 2                       4 part 1
    downlink            1 part 1                        5 part 0
    compute                       2 + own 1  3 drop               6 + own 0  7 drop

    uplink    8 sum 0                      11 sum 2
    downlink            9 sum 2                       12 sum 1
    compute                      10 drop                         13 drop
    """
    part = {split: Name(f"part-{split}-0", 2, 0) for split in range(3)}
    total = {split: Name(f"sum-{split}-0", 2, 0) for split in range(3)}
    assert ring(0, 3, 6, chunk=2).ops == (
        Op(PUT, Span(4, 6), Name("part-2-0", 0, 1)),
        Op(FETCH, Span(2, 4), part[1]),
        Op(REDUCE, Span(2, 4), terms=(part[1], None), after=(1,)),
        Op(DROP, Span(0, 0), terms=(part[1],), after=(2,)),
        Op(PUT, Span(2, 4), Name("part-1-0", 0, 1), after=(2,)),
        Op(FETCH, Span(0, 2), part[0]),
        Op(REDUCE, Span(0, 2), terms=(part[0], None), after=(5,)),
        Op(DROP, Span(0, 0), terms=(part[0],), after=(6,)),
        Op(PUT, Span(0, 2), Name("sum-0-0", 0, 1), after=(6,)),
        Op(GET, Span(4, 6), total[2], after=(0,)),
        Op(DROP, Span(0, 0), terms=(total[2],), after=(9,)),
        Op(PUT, Span(4, 6), Name("sum-2-0", 0, 1), after=(9,)),
        Op(GET, Span(2, 4), total[1], after=(4,)),
        Op(DROP, Span(0, 0), terms=(total[1],), after=(12,)),
    )


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_messages_go_to_the_next_rank_only_who_drops_them(chunk: int) -> None:
    for rank, schedule in enumerate(schedules(4, 21, chunk)):
        onward = {(op.name.source, op.name.destination) for op in schedule if op.kind is PUT}
        read = [op.name for op in schedule if op.kind in (GET, FETCH)]
        dropped = [name for op in schedule if op.kind is DROP for name in op.terms]
        assert onward == {(rank, (rank + 1) % 4)}
        assert {name.source for name in read} == {(rank - 1) % 4}
        assert dropped == read


def test_nothing_is_kept() -> None:
    assert RING.sums(4, 100, 1) == ()


@pytest.mark.parametrize("latency_s", [0.0, LATENCY_S])
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_without_chunks_virtual_time_is_hydrozoas_form(size: int, latency_s: float) -> None:
    """Corrected, with alpha = 1/D and beta = 2 latencies: up, and then down."""
    took_s = seconds(schedules(size, 24_000, 24_000), link(latency_s=latency_s))
    expected_s = ring_s(96_000, size, RATE, 1 / RATE, 2 * latency_s)
    assert took_s == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize("latency_s", [0.0, 0.001, LATENCY_S])
@pytest.mark.parametrize("count", [1, 2, 10])
@pytest.mark.parametrize("size", [2, 8])
def test_virtual_time_with_chunks(size: int, count: int, latency_s: float) -> None:
    chunk = 240_000 // size // count
    took_s = seconds(schedules(size, 240_000, chunk), link(latency_s=latency_s))
    expected = stated("ring", size, 240_000, latency_s=latency_s, chunk_bytes=4 * chunk)
    assert took_s == pytest.approx(expected.seconds, rel=1e-12)


def test_chunks_hide_the_latencies() -> None:
    """Then it is Hydrozoa's with neither alpha nor beta, and a chunk and two latencies."""
    s, n, chunk = 8e6, 4, 80_000
    form_s = ring_s(s, n, 10e6, 0.0, 0.0) + chunk / 10e6 + 2 * 0.02
    cost = stated("ring", n, 2_000_000, rate=10e6, latency_s=0.02, chunk_bytes=chunk)
    assert cost.seconds == pytest.approx(form_s)
