"""Stated costs: exact lengths of equal links, a store that is shared, and those that state none.

`CollectiveConformance` holds each to its schedule.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from dayfly.errors import RequestError
from dayfly.planning.decline import left_of_bandwidth
from dayfly.wire.channels import CHANNELS
from dayfly.wire.collectives import collective
from dayfly.wire.collectives.cost import AllReduce
from dayfly.wire.collectives.k_reduce import reduce_cost
from dayfly.wire.collectives.link import DirectionModel, LinkModel
from dayfly.wire.collectives.virtual_cost import cost_by_schedule, cost_of
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.streams import Direction, HostLink
from tests.collectives.timing import direction

UP, DOWN, LATENCY_S = 40e6, 70e6, 0.02


def line(bytes_per_s: float, **more: Any) -> DirectionModel:
    """Without headers."""
    return direction(bytes_per_s, LATENCY_S, **more)


@pytest.mark.parametrize("n", [2, 3, 8])
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
    up, down = (line(rate, chunk_bytes=4 * (length // n // 16)) for rate in rates)
    link = LinkModel(up=up, down=down)
    one, how = AllReduce(members=n, length=length, link=link), collective(name, aggregators, n)
    # Overlapped and ring are written down for equal rates: a sum that is late is left out.
    off = 0.001 if exact or rates[0] == rates[1] else 0.15
    there_s = cost_by_schedule(how, one).seconds
    assert cost_of(name, how, one).seconds == pytest.approx(there_s, rel=off)


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize(
    ("name", "aggregators", "off"),
    [
        ("scatter-reduce", None, 0.001),
        ("all-reduce", None, 0.001),
        ("k-reduce", 2, 0.001),
        ("pipelined", None, 0.001),
        ("overlapped", None, 0.3),  # latencies longer than a message come on top
    ],
)
def test_sums_may_be_larger_than_contributions(
    name: str, aggregators: int | None, off: float, n: int
) -> None:
    """As those of sparse contributions are, by their number at most."""
    length = 2**16 * n * 24
    equal = line(UP, chunk_bytes=4 * (length // n // 16))
    link = LinkModel(up=equal, down=equal)
    one = AllReduce(
        members=n, length=length, link=link, travelling_bytes=length // 8, sum_bytes=length // 2
    )
    how = collective(name, aggregators, n)
    stated, there = cost_of(name, how, one), cost_by_schedule(how, one)
    for what in ("puts", "gets", "bytes_up", "bytes_down"):
        assert getattr(stated, what) == getattr(there, what), what
    assert stated.seconds == pytest.approx(there.seconds, rel=off)


def test_a_store_that_is_shared_is_as_slow_as_the_bytes_of_all() -> None:
    slow, length = 100e6, 25_000_000
    link = LinkModel(up=line(70e6, store=slow), down=line(70e6, store=slow))
    one = AllReduce(members=50, length=length, link=link, groups=2)
    # n s up, 2 (n - 1) s down, of two groups, and 49 / 50 of what is uploaded is not one's own.
    carried_s = 2 * (50 + 2 * 49) * 4 * length / slow
    whole_s = cost_of("", collective("scatter-reduce", None, 50), one).seconds
    assert whole_s == pytest.approx(carried_s + 4 * LATENCY_S, rel=0.01)


def test_bandwidth_declines_between_the_points_that_are_given() -> None:
    decline = ((8.0, 1.0), (16.0, 0.6), (64.0, 0.2))
    found = [left_of_bandwidth(decline, n) for n in (1, 8, 12, 16, 40, 64, 1000)]
    assert found == pytest.approx([1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2])
    assert left_of_bandwidth((), 1000) == 1.0


def test_without_a_stated_cost_the_schedule_says_it_of_few_members() -> None:
    stated = collective("scatter-reduce", None, 4)
    silent = replace(stated, cost=None)
    link = LinkModel(up=line(UP), down=line(UP))
    few = AllReduce(members=4, length=4000, link=link)
    known, found = (cost_of("mine", how, few) for how in (stated, silent))
    assert found.seconds == pytest.approx(known.seconds)
    assert found.carried_s == pytest.approx(known.carried_s)
    assert (found.puts, found.gets, found.bytes_up) == (known.puts, known.gets, known.bytes_up)
    assert 0 < found.memory_bytes <= known.memory_bytes
    many = AllReduce(members=65, length=4000, link=link)
    with pytest.raises(RequestError, match="--collective mine: it states no cost, and 65 workers"):
        cost_of("mine", silent, many)


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize(("count", "pieces"), [(1, 1), (1, 13), (7, 2), (16, 1), (16, 13)])
@pytest.mark.parametrize("name", ["ring", "overlapped"])
def test_chunks_that_share_the_line_end_together(
    name: str, pieces: int, count: int, n: int
) -> None:
    """Of a chunk in several pieces, 16 under way: nothing can be sent on until nearly all came."""
    length, piece_s = 2**18 * n * count, (2**20 + HEADER_BYTES) / UP / (pieces - 1e-6)
    way = Direction(occupied_s=lambda nbytes: nbytes / UP, piece_s=piece_s)
    equal = DirectionModel(direction=way, in_flight=16, chunk_bytes=2**20)
    one = AllReduce(members=n, length=length, link=LinkModel(up=equal, down=equal))
    how = collective(name, None, n)
    stated, there = cost_of(name, how, one).seconds, cost_by_schedule(how, one).seconds
    assert stated == pytest.approx(there, rel=0.01 if pieces == 1 else 0.16)


def test_without_a_stated_cost_hosts_count_as_with_one() -> None:
    """Of hosts of two, members 1 and 2 have one each, and members 2 and 3 share one."""
    stated = collective("scatter-reduce", None, 2)
    shared = replace(line(UP), host=HostLink(functions=2, bytes_per_s=UP))
    link, took_s = LinkModel(up=shared, down=shared), []
    for first in (1, 2):
        one = AllReduce(members=2, length=400_000, link=link, first=first)
        known, found = (cost_of("mine", how, one) for how in (stated, replace(stated, cost=None)))
        assert found.seconds == pytest.approx(known.seconds)
        took_s.append(found.carried_s)
    assert took_s[1] == pytest.approx(2 * took_s[0])


@pytest.mark.parametrize("store", [math.inf, 150e6])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_many_costs_at_once_are_those_one_by_one(store: float, direct: bool, alone: bool) -> None:
    up, down = (replace(line(rate, store=store), in_flight=8) for rate in (UP, DOWN))
    dynamodb = CHANNELS["dynamodb"]
    link = LinkModel(
        up=up,
        down=down,
        direct=direct,
        alone=alone,
        begin_s=1e-3,
        message=dynamodb.cost,
    )
    pairs = [(n, k) for n in (2, 3, 7) for k in range(1, n + 1)]
    n, k = (np.array(one)[:, None] for one in zip(*pairs, strict=True))
    lengths = np.array([1, 1000, 4_000_001])
    every = reduce_cost(
        AllReduce(members=cast("int", n), length=cast("int", lengths), link=link, groups=2),
        aggregators=cast("int", k),
    )
    for what in ("seconds", "carried_s", "puts", "gets", "bytes_up", "bytes_down", "memory_bytes"):
        found = np.broadcast_to(getattr(every, what), (len(pairs), len(lengths)))
        expected = [
            [
                getattr(
                    reduce_cost(
                        AllReduce(members=n, length=length, link=link, groups=2), aggregators=k
                    ),
                    what,
                )
                for length in lengths.tolist()
            ]
            for n, k in pairs
        ]
        assert found.tolist() == expected, what
