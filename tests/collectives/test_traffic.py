"""What really goes through a channel is what its collective states, with a header a message."""

from __future__ import annotations

import pytest
import torch

from dayfly.wire.collectives.conformance_world import world
from dayfly.wire.collectives.cost import AllReduce
from dayfly.wire.collectives.k_reduce import k_reduce_bytes, k_reduce_requests
from dayfly.wire.collectives.link import LinkModel
from dayfly.wire.collectives.virtual_cost import cost_of
from tests.collectives.algorithms import ALGORITHMS, Algorithm
from tests.collectives.timing import direction, without_looks

CHUNK = 10


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
@pytest.mark.parametrize(("size", "length"), [(1, 60), (2, 60), (4, 480), (5, 0)])
def test_traffic_is_what_is_stated(
    algorithm: Algorithm, size: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all ranks; lengths that are cut evenly."""
    without_looks(monkeypatch)
    with world(algorithm.of(size), size, CHUNK) as here:
        here.all_reduce([torch.ones(length)] * size)
        counted = [channel.traffic.counters() for channel in here.channels]
    moved = {name: sum(one[name] for one in counted) for name in counted[0]}
    link = LinkModel(up=direction(chunk_bytes=4 * CHUNK), down=direction())
    one = AllReduce(members=size, length=length, link=link)
    cost = cost_of(algorithm.name, algorithm.of(size), one)
    for what in ("puts", "gets", "bytes_up", "bytes_down"):
        assert moved[what] == getattr(cost, what), what
    assert moved["requests"] == cost.puts + cost.gets


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("aggregators", [1, 2])
def test_fasdls_counts(size: int, aggregators: int) -> None:
    """K W puts, 2K(W-1) gets and S(3W-2) bytes: section V-B, as printed."""
    assert k_reduce_requests(size, aggregators) == (
        aggregators * size,
        2 * aggregators * (size - 1),
    )
    assert sum(k_reduce_bytes(1000, size)) == 1000 * (3 * size - 2)
