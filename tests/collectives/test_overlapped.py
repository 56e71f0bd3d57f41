"""Overlapped: its schedules drawn and asserted, its lanes, and its time."""

from __future__ import annotations

import pytest
from benchmarks.parts.papers.formulas.collectives import pipelined_s, scatter_reduce_s

from dayfly.wire.collectives.overlapped import (
    bound_s,
    lag,
    overlapped,
    sums,
)
from dayfly.wire.schedule import Kind, Lane, Name, Op, Schedule, Span
from dayfly.wire.virtual import Link, simulate
from tests.collectives.timing import RATE, link, seconds, stated

PUT, GET, FETCH, REDUCE, DROP = Kind.PUT, Kind.GET, Kind.FETCH, Kind.REDUCE, Kind.DROP


def part(chunk: int, source: int, destination: int) -> Name:
    """The contribution of `source` to a chunk that `destination` is in charge of."""
    return Name(f"part-{chunk}", source, destination)


def total(chunk: int, owner: int) -> Name:
    """The finished sum of a chunk that `owner` is in charge of, for everyone."""
    return Name(f"sum-{chunk}", owner)


def schedules(size: int, length: int, chunk: int) -> list[Schedule]:
    """Every rank's."""
    return [overlapped(rank, size, length, chunk=chunk) for rank in range(size)]


def test_rank_0_of_3_with_a_chunk_a_split() -> None:
    """3 elements are cut in |0|1|2|; it sends to 1 first, and reads from 2 first.

    uplink    0 part>1  1 part>2                            5 sum 0
    downlink            2 part<2  3 part<1                  6 sum 2   7 sum 1
    compute                                4 reduce 0+1+2              8 drop
    """
    assert overlapped(0, 3, 3).ops == (
        Op(PUT, Span(1, 2), part(0, 0, 1), feeds=total(0, 1)),
        Op(PUT, Span(2, 3), part(0, 0, 2), feeds=total(0, 2)),
        Op(FETCH, Span(0, 1), part(0, 2, 0)),
        Op(FETCH, Span(0, 1), part(0, 1, 0)),
        Op(REDUCE, Span(0, 1), terms=(None, part(0, 1, 0), part(0, 2, 0)), after=(2, 3)),
        Op(PUT, Span(0, 1), total(0, 0), after=(4,)),
        Op(GET, Span(2, 3), total(0, 2), after=(1,)),
        Op(GET, Span(1, 2), total(0, 1), after=(0,)),
        Op(DROP, Span(0, 0), terms=(part(0, 2, 0), part(0, 1, 0)), after=(5,)),
    )


def test_rank_1_of_2_with_unequal_chunks() -> None:
    """5 elements are cut in |0 1 2|3 4|, chunks of two or more in |0 1 2| and |3 4|.

    uplink    0 part>0                          3 sum 1
    downlink            1 part<0                         4 sum 0
    compute                       2 reduce 0+1           5 drop
    """
    assert overlapped(1, 2, 5, chunk=2).ops == (
        Op(PUT, Span(0, 3), part(0, 1, 0), feeds=total(0, 0)),
        Op(FETCH, Span(3, 5), part(0, 0, 1)),
        Op(REDUCE, Span(3, 5), terms=(part(0, 0, 1), None), after=(1,)),
        Op(PUT, Span(3, 5), total(0, 1), after=(2,)),
        Op(GET, Span(0, 3), total(0, 0), after=(0,)),
        Op(DROP, Span(0, 0), terms=(part(0, 0, 1),), after=(3,)),
    )


def test_rank_0_of_2_catches_up_with_its_first_sum_and_the_others_second() -> None:
    """4 elements are cut in |0 1|2 3|, with two chunks each.

    uplink    0 part 0>1                               4 sum 1
    downlink  1 sum 0 of 0   2 part 1<1                5 sum 0 of 1   7 sum 1 of 1
    compute                              3 reduce 0+1                 6 drop 8 drop
    """
    assert overlapped(0, 2, 4, {total(0, 0), total(1, 1)}).ops == (
        Op(PUT, Span(2, 3), part(0, 0, 1), feeds=total(0, 1)),
        Op(GET, Span(0, 1), total(0, 0)),
        Op(FETCH, Span(1, 2), part(1, 1, 0)),
        Op(REDUCE, Span(1, 2), terms=(None, part(1, 1, 0)), after=(2,)),
        Op(GET, Span(2, 3), total(0, 1), after=(0,)),
        Op(DROP, Span(0, 0), terms=(part(0, 1, 0),), after=(1,)),
        Op(PUT, Span(1, 2), total(1, 0), after=(3,)),
        Op(GET, Span(3, 4), total(1, 1)),
        Op(DROP, Span(0, 0), terms=(part(1, 1, 0),), after=(6,)),
    )


def test_the_lanes_of_rank_0_of_2_with_sixteen_chunks() -> None:
    """Sums come eight chunks later; contributions are dropped in four goes.

    uplink      0  1  ...  7   sum 0  8  sum 1  9 ... sum 7  15  sum 8 ... sum 15
    downlink    0  1  ...  7   sum 0  8  sum 1  9 ... sum 7  15  sum 8 ... sum 15
    """
    ops = overlapped(0, 2, 32).ops
    own_ahead = [f"part-{c}" for c in range(8)]
    in_turns = [name for c in range(8) for name in (f"sum-{c}", f"part-{c + 8}")]
    at_the_end = [f"sum-{c}" for c in range(8, 16)]
    for lane in (Lane.UPLINK, Lane.DOWNLINK):
        phases = [op.name.phase for op in ops if op.lane is lane]
        assert phases == own_ahead + in_turns + at_the_end
    drops = [[name.phase for name in op.terms] for op in ops if op.kind is DROP]
    assert drops == [[f"part-{c}" for c in range(at, at + 4)] for at in (0, 4, 8, 12)]


def test_all_chunks_of_a_buffer_are_sums() -> None:
    """7 elements are cut in |0 1 2|3 4|5 6|: 3, 2 and 2 chunks."""
    owners = [0, 0, 0, 1, 1, 2, 2]
    assert sums(3, 7, 1) == tuple(
        total(c, owner) for c, owner in zip([0, 1, 2, 0, 1, 0, 1], owners, strict=True)
    )
    assert sums(1, 7, 1) == ()


@pytest.mark.parametrize(
    ("size", "nbytes", "rate", "most"),
    [(4, 8e6, 10e6, 1.045), (8, 8e6, 10e6, 1.04), (4, 64e6, 70e6, 1.05)],
)
@pytest.mark.parametrize("in_flight", [1, 8])
def test_it_comes_close_to_the_bound(
    size: int, nbytes: float, rate: float, most: float, in_flight: int
) -> None:
    """With 20 ms; LambdaML's and FuncPipe's do not."""
    length = int(nbytes) // 4
    over = Link(up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=0.02, in_flight=in_flight)
    took_s = seconds(schedules(size, length, 2**14), over)
    best_s = bound_s(nbytes, size, rate)
    assert best_s < took_s <= most * best_s
    assert scatter_reduce_s(nbytes, size, rate, 0.02) > 1.6 * best_s
    assert pipelined_s(nbytes, size, rate, 0.02) > 1.25 * best_s


@pytest.mark.parametrize("latency_s", [0.0, 0.004])
@pytest.mark.parametrize("count", [1, 5, 8, 12, 16])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_virtual_time_is_the_closed_form(size: int, count: int, latency_s: float) -> None:
    """Where its conditions hold; where they do not, it is never less than that."""
    length = 480 * size * count
    q = 4 * 480 / RATE
    took_s = seconds(schedules(size, length, 480), link(latency_s=latency_s))
    expected_s = stated(
        "overlapped", size, length, latency_s=latency_s, chunk_bytes=4 * 480
    ).seconds
    hidden = (lag(count) - 1) * (size - 1) * q >= q + 2 * latency_s
    if hidden or lag(count) == count:
        assert took_s == pytest.approx(expected_s, rel=1e-9)
    else:
        assert took_s >= expected_s * (1 - 1e-9)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_downlink_is_never_idle(size: int) -> None:
    """From the first contribution to the last sum."""
    over = link(10e6, 0.01)
    for times in simulate(schedules(size, 1_000_000, 2_000), over):
        down = [timed for timed in times if timed.op.lane is Lane.DOWNLINK]
        busy_s = sum(timed.lane_free_s - timed.start_s for timed in down)
        span_s = down[-1].lane_free_s - down[0].start_s
        assert busy_s == pytest.approx(span_s, rel=1e-9)


def test_a_slower_uplink_is_busy_throughout() -> None:
    """It carries s, at least s/w: sums leave while contributions do, not after them."""
    over = Link(up_bytes_per_s=5e6, down_bytes_per_s=10e6, latency_s=0.02, in_flight=8)
    assert seconds(schedules(4, 2_000_000, 2**14), over) <= 1.105 * 8e6 / 5e6


def test_over_direct_links_it_is_as_fast() -> None:
    """A sum leaves its owner once for each of the others: the uplink carries 2(n-1)/n s, too."""
    for size in (2, 4, 8):
        made = schedules(size, 2_000_000, 2**14)
        direct = seconds(made, link(10e6, 0.02, direct=True, in_flight=8))
        assert direct == pytest.approx(seconds(made, link(10e6, 0.02)), rel=1e-9)
