"""What really goes through a channel is what the closed forms say, with a header a message."""

from __future__ import annotations

import pytest
import torch

from dayfly.wire.collectives.conformance_world import world
from dayfly.wire.collectives.k_reduce import k_reduce_bytes, k_reduce_requests
from dayfly.wire.collectives.overlapped import overlapped_bytes, overlapped_requests
from dayfly.wire.collectives.push_pull import push_pull_bytes, push_pull_requests
from dayfly.wire.collectives.ring import ring_bytes, ring_requests
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import Span, chunks, split
from tests.collectives.algorithms import ALGORITHMS, Algorithm
from tests.collectives.timing import without_looks

CHUNK = 10


def forms(algorithm: Algorithm, size: int, length: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Puts and gets of all ranks, and payload bytes up and down, by the closed forms."""
    s = 4 * length
    count = len(chunks(split(length, size)[0], CHUNK))
    match algorithm.name:
        case "overlapped":
            return overlapped_requests(size, length, CHUNK), overlapped_bytes(s, size)
        case "ring":
            return ring_requests(size, count), ring_bytes(s, size)
        case "push-pull":
            messages = len(chunks(Span(0, length), CHUNK))
            return push_pull_requests(size, messages), push_pull_bytes(s, size)
        case "all-reduce":
            return k_reduce_requests(size, 1), k_reduce_bytes(s, size)
        case "scatter-reduce" | "pipelined":
            return k_reduce_requests(size, size), k_reduce_bytes(s, size)
        case "k-reduce":
            aggregators = min(size, algorithm.aggregators or size)
            return k_reduce_requests(size, aggregators), k_reduce_bytes(s, size)
    raise AssertionError(f"{algorithm} has no closed forms here")


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
@pytest.mark.parametrize(("size", "length"), [(1, 60), (2, 60), (3, 120), (4, 480), (5, 0)])
def test_traffic_is_the_closed_form(
    algorithm: Algorithm, size: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all ranks; lengths that are cut evenly."""
    without_looks(monkeypatch)
    with world(algorithm.of(size), size, CHUNK) as here:
        here.all_reduce([torch.ones(length)] * size)
        counted = [channel.traffic.counters() for channel in here.channels]
    moved = {name: sum(one[name] for one in counted) for name in counted[0]}
    (puts, gets), (up, down) = forms(algorithm, size, length)
    assert (moved["puts"], moved["gets"]) == (puts, gets)
    assert moved["requests"] == puts + gets
    assert moved["bytes_up"] == up + puts * HEADER_BYTES
    assert moved["bytes_down"] == down + gets * HEADER_BYTES


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("aggregators", [1, 2])
def test_fasdls_counts(size: int, aggregators: int) -> None:
    """K W puts, 2K(W-1) gets and S(3W-2) bytes: section V-B, as printed."""
    assert k_reduce_requests(size, aggregators) == (
        aggregators * size,
        2 * aggregators * (size - 1),
    )
    assert sum(k_reduce_bytes(1000, size)) == 1000 * (3 * size - 2)
