"""FuncPipe's pipelined scatter-reduce: its schedules drawn and asserted, and its time."""

from __future__ import annotations

import pytest
from benchmarks.parts.papers.formulas.collectives import pipelined_s

from dayfly.wire.collectives.pipelined import pipelined
from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span
from tests.collectives.timing import LATENCY_S, RATE, link, seconds

PUT, GET, FETCH, REDUCE, DROP = Kind.PUT, Kind.GET, Kind.FETCH, Kind.REDUCE, Kind.DROP


def part(source: int, destination: int) -> Name:
    """The contribution of `source` to the split that `destination` is in charge of."""
    return Name("part", source, destination)


def total(owner: int) -> Name:
    """The finished sum of the split that `owner` is in charge of, for everyone."""
    return Name("sum", owner)


def schedules(size: int, length: int) -> list[Schedule]:
    """Every rank's."""
    return [pipelined(rank, size, length) for rank in range(size)]


def test_rank_1_of_4() -> None:
    """8 elements are cut in |0 1|2 3|4 5|6 7|; rank 1 is in charge of the second.

    step         1           2           3           4
    uplink    0 part>2    1 part>3    3 part>0                 7 sum 1
    downlink              2 part<0    4 part<3    5 part<2                9 sum 0 10 sum 2 11 sum 3
    compute                                                 6 reduce      8 drop
    """
    assert pipelined(1, 4, 8).ops == (
        Op(PUT, Span(4, 6), part(1, 2), feeds=total(2)),
        Op(PUT, Span(6, 8), part(1, 3), after=(0,), feeds=total(3)),
        Op(FETCH, Span(2, 4), part(0, 1), after=(0,)),
        Op(PUT, Span(0, 2), part(1, 0), after=(1, 2), feeds=total(0)),
        Op(FETCH, Span(2, 4), part(3, 1), after=(1, 2)),
        Op(FETCH, Span(2, 4), part(2, 1), after=(3, 4)),
        Op(
            REDUCE,
            Span(2, 4),
            terms=(part(0, 1), None, part(2, 1), part(3, 1)),
            after=(2, 4, 5),
        ),
        Op(PUT, Span(2, 4), total(1), after=(6,)),
        Op(DROP, Span(0, 0), terms=(part(0, 1), part(2, 1), part(3, 1)), after=(7,)),
        Op(GET, Span(0, 2), total(0), after=(7,)),
        Op(GET, Span(4, 6), total(2), after=(7,)),
        Op(GET, Span(6, 8), total(3), after=(7,)),
    )


def test_rank_0_of_3_catches_up() -> None:
    """With its own sum stored, and rank 1's: it contributes to split 2 alone.

    uplink    0 part>2
    downlink            1 sum 0  3 sum 1  4 sum 2
    compute                      2 drop
    """
    assert pipelined(0, 3, 6, {total(0), total(1)}).ops == (
        Op(PUT, Span(4, 6), part(0, 2), feeds=total(2)),
        Op(GET, Span(0, 2), total(0), after=(0,)),
        Op(DROP, Span(0, 0), terms=(part(1, 0), part(2, 0)), after=(1,)),
        Op(GET, Span(2, 4), total(1), after=(1,)),
        Op(GET, Span(4, 6), total(2), after=(1,)),
    )


def test_what_a_step_downloads_was_uploaded_in_the_step_before() -> None:
    """Step k of rank i: splits i+k up, and down what rank i-(k-1) sent in its step k-1."""
    size = 5
    for rank in range(size):
        ops = pipelined(rank, size, 50).ops
        up = [op.name for op in ops if op.kind is PUT][: size - 1]
        down = [op.name for op in ops if op.kind is FETCH]
        assert up == [part(rank, (rank + k) % size) for k in range(1, size)]
        assert down == [part((rank - k) % size, rank) for k in range(1, size)]


@pytest.mark.parametrize("latency_s", [0.0, LATENCY_S])
@pytest.mark.parametrize("in_flight", [1, 4])
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_virtual_time_is_funcpipes_equation_2(size: int, in_flight: int, latency_s: float) -> None:
    over = link(latency_s=latency_s, in_flight=in_flight)
    expected_s = pipelined_s(96_000, size, RATE, latency_s)
    assert seconds(schedules(size, 24_000), over) == pytest.approx(expected_s, rel=1e-12)


def test_the_papers_example_takes_8_seconds() -> None:
    """FuncPipe section 3.3: 280 MB over 8 workers of 70 MB/s."""
    assert pipelined_s(280e6, 8, 70e6, 0.0) == pytest.approx(8.0)
    assert seconds(schedules(8, 70_000_000), link(70e6, 0.0)) == pytest.approx(8.0)
