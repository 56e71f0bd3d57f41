"""Closed forms of collectives against the same schedules in virtual time."""

from __future__ import annotations

import pytest

from dayfly.errors import RequestError
from dayfly.planning.ranks import Link as FunctionLink
from dayfly.planning.ranks import LinkDirection, left_of_bandwidth
from dayfly.planning.simulation.phases import Summing, length_s
from dayfly.wire.collectives import collective
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.streams import Direction
from dayfly.wire.virtual import Link, finish_s, simulate

UP, DOWN, LATENCY_S = 40e6, 70e6, 0.02


def line(bytes_per_s: float, store: float = float("inf")) -> LinkDirection:
    """Without headers, and with as many messages in flight as one likes: as virtual time has it."""
    way = Direction(
        occupied_s=lambda nbytes: (nbytes - HEADER_BYTES) / bytes_per_s, latency_s=LATENCY_S
    )
    return LinkDirection(direction=way, in_flight=10**9, store_bytes_per_s=store)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("name", "aggregators", "exact"),
    [
        ("scatter-reduce", None, True),
        ("all-reduce", None, True),
        ("k-reduce", 2, True),
        ("pipelined", None, True),
        ("overlapped", None, False),
        ("ring", None, False),
    ],
)
@pytest.mark.parametrize("rates", [(UP, UP), (UP, DOWN), (DOWN, UP)])
def test_lengths_are_those_of_virtual_time(
    name: str, aggregators: int | None, exact: bool, n: int, rates: tuple[float, float]
) -> None:
    length = 2**16 * n * 24
    up, down = rates
    chunk = length // n // 16
    how = collective(name, aggregators, n)
    schedules = [how.schedule(rank, n, length, chunk=chunk) for rank in range(n)]
    link = Link(up_bytes_per_s=up, down_bytes_per_s=down, latency_s=LATENCY_S, in_flight=64)
    there_s = finish_s(simulate(schedules, link))
    summing = Summing(
        collective=name,
        aggregators=aggregators,
        ranks=n,
        nbytes=4 * length,
        link=FunctionLink(line(up), line(down)),
        chunk_bytes=4 * chunk,
    )
    # Overlapped and ring are written down for equal rates: a sum that is late is left out.
    off = 0.001 if exact or up == down else 0.15
    assert length_s(summing.phases()) == pytest.approx(there_s, rel=off)


def test_a_store_that_is_shared_is_as_slow_as_the_bytes_of_all() -> None:
    slow = 100e6
    summing = Summing(
        collective="scatter-reduce",
        ranks=50,
        nbytes=100e6,
        link=FunctionLink(line(70e6, slow), line(70e6, slow)),
        groups=2,
    )
    # n s up, 2 (n - 1) s down, of two groups, and 49 / 50 of what is uploaded is not one's own.
    carried_s = 2 * (50 + 2 * 49) * 100e6 / slow
    whole_s = length_s(summing.phases())
    assert whole_s == pytest.approx(carried_s + 4 * LATENCY_S, rel=0.01)


def test_bandwidth_declines_between_the_points_that_are_given() -> None:
    decline = ((8.0, 1.0), (16.0, 0.6), (64.0, 0.2))
    found = [left_of_bandwidth(decline, n) for n in (1, 8, 12, 16, 40, 64, 1000)]
    assert found == pytest.approx([1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2])
    assert left_of_bandwidth((), 1000) == 1.0


def test_what_has_no_closed_form_is_refused_and_not_taken_for_another() -> None:
    link = FunctionLink(up=line(UP), down=line(DOWN))
    with pytest.raises(RequestError, match="--collective tree: dayfly has no closed form"):
        Summing(collective="tree", ranks=4, nbytes=8.0, link=link).phases()
