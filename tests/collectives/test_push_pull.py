"""Push and pull: its schedules drawn and asserted, the server's too, and its time."""

from __future__ import annotations

import pytest
from benchmarks.parts.papers.formulas.collectives import push_pull_s

from dayfly.wire.collectives.push_pull import PUSH_PULL, push_pull, serve
from dayfly.wire.keys import EVERYONE, SERVER
from dayfly.wire.schedule import Kind, Name, Op, Span
from dayfly.wire.virtual import Link, finish_s, simulate
from tests.collectives.timing import LATENCY_S, RATE, link, stated

PUT, GET, FETCH, REDUCE, DROP = Kind.PUT, Kind.GET, Kind.FETCH, Kind.REDUCE, Kind.DROP


def test_a_worker() -> None:
    """5 elements in chunks |0 1 2|3 4|.

    uplink    0 part 0   1 part 1
    downlink             2 sum 0   3 sum 1
    """
    assert push_pull(1, 3, 5, chunk=2).ops == (
        Op(PUT, Span(0, 3), Name("part-0", 1, SERVER)),
        Op(PUT, Span(3, 5), Name("part-1", 1, SERVER)),
        Op(GET, Span(0, 3), Name("sum-0", SERVER, EVERYONE), after=(0,)),
        Op(GET, Span(3, 5), Name("sum-1", SERVER, EVERYONE), after=(1,)),
    )


def test_the_server() -> None:
    """It adds in rank order.

    downlink  0 part<0  1 part<1
    compute                      2 reduce         4 drop
    uplink                                 3 sum
    """
    parts = (Name("part-0", 0, SERVER), Name("part-0", 1, SERVER))
    assert serve(2, 5, chunk=5).ops == (
        Op(FETCH, Span(0, 5), parts[0]),
        Op(FETCH, Span(0, 5), parts[1]),
        Op(REDUCE, Span(0, 5), terms=parts, after=(0, 1)),
        Op(PUT, Span(0, 5), Name("sum-0", SERVER), after=(2,)),
        Op(DROP, Span(0, 0), terms=parts, after=(3,)),
    )


def test_it_needs_a_server_and_keeps_nothing() -> None:
    assert PUSH_PULL.server
    assert PUSH_PULL.sums(4, 100, 1) == ()


@pytest.mark.parametrize("latency_s", [0.0, LATENCY_S])
@pytest.mark.parametrize("server", [float("inf"), 80 * RATE, 4 * RATE, RATE, RATE / 2])
@pytest.mark.parametrize(("size", "count"), [(2, 8), (3, 1), (8, 3)])
def test_virtual_time(size: int, count: int, server: float, latency_s: float) -> None:
    """The server's sums leave it once for every worker."""
    length = 24_000
    chunk = length // count
    schedules = [push_pull(rank, size, length, chunk=chunk) for rank in range(size)]
    ends = [link(latency_s=latency_s)] * size
    its = Link(up_bytes_per_s=server, down_bytes_per_s=server, latency_s=0.0, direct=True)
    took_s = finish_s(simulate([*schedules, serve(size, length, chunk=chunk)], [*ends, its]))
    expected_s = push_pull_s(4 * length, size, 4 * chunk, RATE, latency_s, server)
    assert took_s == pytest.approx(expected_s, rel=1e-12)
    cost = stated(
        "push-pull", size, length, latency_s=latency_s, store=server, chunk_bytes=4 * chunk
    )
    assert cost.seconds == pytest.approx(expected_s, rel=1e-12)
