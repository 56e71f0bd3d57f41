"""Scatter-reduce itself: its schedules drawn and asserted, its traffic and its time.

In the drawings one line is one lane; an operation stands right of all that it waits for.
"""

from __future__ import annotations

import pytest
import torch
from benchmarks.parts.papers.formulas.collectives import scatter_reduce_s

from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.collectives.conformance_world import world
from dayfly.wire.collectives.k_reduce import scatter_reduce
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.outages import Traffic
from dayfly.wire.schedule import Kind, Name, Op, Span, split
from dayfly.wire.virtual import Link, finish_s, simulate
from tests.collectives.timing import without_looks

PUT, GET, FETCH, REDUCE, DROP = Kind.PUT, Kind.GET, Kind.FETCH, Kind.REDUCE, Kind.DROP


def part(source: int, destination: int) -> Name:
    """The contribution of `source` to the split that `destination` is in charge of."""
    return Name("part", source, destination)


def total(owner: int) -> Name:
    """The finished sum of the split that `owner` is in charge of, for everyone."""
    return Name("sum", owner)


def test_rank_0_of_3() -> None:
    """8 elements are cut in |0 1 2|3 4 5|6 7|; rank 0 is in charge of the first.

    uplink    0 part>1  1 part>2                                         5 sum 0
    downlink                      2 part<1  3 part<2                              7 sum 1  8 sum 2
    compute                                           4 reduce 0+1+2              6 drop
    """
    assert scatter_reduce(0, 3, 8).ops == (
        Op(PUT, Span(3, 6), part(0, 1), feeds=total(1)),
        Op(PUT, Span(6, 8), part(0, 2), feeds=total(2)),
        Op(FETCH, Span(0, 3), part(1, 0), after=(1,)),
        Op(FETCH, Span(0, 3), part(2, 0), after=(1,)),
        Op(REDUCE, Span(0, 3), terms=(None, part(1, 0), part(2, 0)), after=(2, 3)),
        Op(PUT, Span(0, 3), total(0), after=(4,)),
        Op(DROP, Span(0, 0), terms=(part(1, 0), part(2, 0)), after=(5,)),
        Op(GET, Span(3, 6), total(1), after=(0, 5)),
        Op(GET, Span(6, 8), total(2), after=(1, 5)),
    )


def test_rank_1_of_2() -> None:
    """5 elements are cut in |0 1 2|3 4|; the own term (None) stands second: rank order.

    uplink    0 part>0                          3 sum 1
    downlink            1 part<0                         5 sum 0
    compute                       2 reduce 0+1           4 drop
    """
    assert scatter_reduce(1, 2, 5).ops == (
        Op(PUT, Span(0, 3), part(1, 0), feeds=total(0)),
        Op(FETCH, Span(3, 5), part(0, 1), after=(0,)),
        Op(REDUCE, Span(3, 5), terms=(part(0, 1), None), after=(1,)),
        Op(PUT, Span(3, 5), total(1), after=(2,)),
        Op(DROP, Span(0, 0), terms=(part(0, 1),), after=(3,)),
        Op(GET, Span(0, 3), total(0), after=(0, 3)),
    )


def test_rank_0_of_3_catches_up_with_its_own_sum_stored() -> None:
    """It died after its sum was stored: that is read, and only others still need its parts.

    uplink    0 part>1  1 part>2
    downlink                      2 sum 0  4 sum 1  5 sum 2
    compute                                3 drop
    """
    assert scatter_reduce(0, 3, 8, {total(0)}).ops == (
        Op(PUT, Span(3, 6), part(0, 1), feeds=total(1)),
        Op(PUT, Span(6, 8), part(0, 2), feeds=total(2)),
        Op(GET, Span(0, 3), total(0), after=(1,)),
        Op(DROP, Span(0, 0), terms=(part(1, 0), part(2, 0)), after=(2,)),
        Op(GET, Span(3, 6), total(1), after=(0, 2)),
        Op(GET, Span(6, 8), total(2), after=(1, 2)),
    )


def test_rank_0_of_3_catches_up_with_anothers_sum_stored() -> None:
    """Sum 1 is finished: rank 1 needs nothing of rank 0, which does the rest as ever.

    uplink    0 part>2                                           4 sum 0
    downlink            1 part<1  2 part<2                                6 sum 1  7 sum 2
    compute                                 3 reduce 0+1+2                5 drop
    """
    assert scatter_reduce(0, 3, 8, {total(1)}).ops == (
        Op(PUT, Span(6, 8), part(0, 2), feeds=total(2)),
        Op(FETCH, Span(0, 3), part(1, 0), after=(0,)),
        Op(FETCH, Span(0, 3), part(2, 0), after=(0,)),
        Op(REDUCE, Span(0, 3), terms=(None, part(1, 0), part(2, 0)), after=(1, 2)),
        Op(PUT, Span(0, 3), total(0), after=(3,)),
        Op(DROP, Span(0, 0), terms=(part(1, 0), part(2, 0)), after=(4,)),
        Op(GET, Span(3, 6), total(1), after=(4,)),
        Op(GET, Span(6, 8), total(2), after=(0, 4)),
    )


def test_one_rank_sends_nothing() -> None:
    """Its own term alone is the sum; the schedule still says that it reads the buffer."""
    assert scatter_reduce(0, 1, 8).ops == (Op(REDUCE, Span(0, 8), terms=(None,)),)


@pytest.mark.parametrize("length", [0, 3, 24, 1001])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_traffic_is_the_closed_form(
    size: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s bytes over n ranks; rank r is in charge of s_r of them, about s/n.

    up    n-1 parts, s - s_r together; and its sum, s_r:            s in n puts
    down  n-1 parts of s_r each; and the others' sums, s - s_r:     s + (n-2) s_r in 2(n-1) gets
    So down is 2(n-1)/n s when n divides; each transfer also carries a header.
    """
    without_looks(monkeypatch)
    n, spans = size, split(length, size)
    with world(COLLECTIVES["scatter-reduce"], size) as here:
        here.all_reduce([torch.ones(length)] * size)
        traffic: list[Traffic] = [channel.traffic for channel in here.channels]
    for rank, counted in enumerate(traffic):
        s, s_r = (4 * length, 4 * len(spans[rank])) if n > 1 else (0, 0)
        puts, gets = (n, 2 * (n - 1)) if n > 1 else (0, 0)
        assert counted.bytes_up == s + puts * HEADER_BYTES
        assert counted.bytes_down == s + (n - 2) * s_r + gets * HEADER_BYTES
        assert counted.requests == puts + gets
        if length % n == 0:
            assert counted.bytes_down == 2 * (n - 1) * s // n + gets * HEADER_BYTES


def seconds(size: int, length: int, link: Link) -> float:
    """Virtual seconds of all ranks' schedules, from four-byte elements."""
    return finish_s(simulate([scatter_reduce(rank, size, length) for rank in range(size)], link))


@pytest.mark.parametrize("latency_s", [0.0, 0.04])
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_virtual_time_is_funcpipes_equation_1(size: int, latency_s: float) -> None:
    length, rate = 24 * 1000, 3.5e6
    link = Link(up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=latency_s)
    expected = scatter_reduce_s(4 * length, size, rate, latency_s)
    assert seconds(size, length, link) == pytest.approx(expected, rel=1e-12)


def test_the_papers_example_takes_11_seconds() -> None:
    """FuncPipe section 3.3: 280 MB over 8 workers of 70 MB/s take 11.0 s (plain scatter-reduce)."""
    assert scatter_reduce_s(280e6, 8, 70e6, 0.0) == pytest.approx(11.0)
    link = Link(up_bytes_per_s=70e6, down_bytes_per_s=70e6, latency_s=0.0)
    assert seconds(8, 70_000_000, link) == pytest.approx(11.0)
