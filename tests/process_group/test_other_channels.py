"""The same over other channels than memory: some programs of every kind.

What torch builds of collectives and messages runs over one that keeps, and one that does not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
from benchmarks.parts.redis_server import RedisServer

from dayfly.runs.scripts.standalone import CHANNEL
from tests.process_group.equal import assert_equal
from tests.process_group.workloads import workloads
from tests.process_group.world import World

pytestmark = pytest.mark.long

SOME = {
    "asynchronous": ["different_ones_at_once"],
    "collectives": ["all_to_all_single", "broadcast", "coalesced"],
    "groups": ["overlapping"],
    "messages": ["from_anybody", "large_messages", "many_in_flight"],
}
BUILT = {"ddp": ["small_buckets"], "pipelines": ["interleaved"], "sharded": ["clipped"]}


@contextmanager
def _redis() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@contextmanager
def _directory() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dayfly-test-") as root:
        yield f"dir://{root}"


#: Each another kind: waits at a store, asks one, sums at a server, has no store.
CHANNELS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "redis": _redis,
    "directory": _directory,
    "ps": lambda: nullcontext("ps://"),
    "tcp": lambda: nullcontext("tcp://"),
}


@pytest.mark.parametrize(
    ("channel", "programs"),
    [
        ("redis", SOME | BUILT),
        ("tcp", SOME),
        *(pytest.param(one, SOME, marks=pytest.mark.slow) for one in ("directory", "ps")),
        *(pytest.param(one, BUILT, marks=pytest.mark.slow) for one in ("directory", "ps", "tcp")),
    ],
)
def test_same_as_over_gloo(world: World, channel: str, programs: dict[str, list[str]]) -> None:
    with CHANNELS[channel]() as url:
        environment = {CHANNEL: url}
        used = set()
        for module, names in programs.items():
            for workload in workloads(module):
                if workload.name in names:
                    assert_equal(world, workload, workload.sizes[0], environment)
                    used.add(workload.sizes[0])
        for world_size in used:
            world.end(world_size, environment)
        assert world.crashes() == []
