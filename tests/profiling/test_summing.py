"""Sums of two functions, by which a profile tells what a message takes."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dayfly.runs.profiling.summing import FEW, ITEM_BYTES, long_length, timed_sums
from dayfly.runs.task import Task
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.schedule import MOST_AT_ONCE, MOST_CHUNKS
from dayfly.wire.shaped import shaped_channel
from dayfly.wire.shaping import Rates, ShapedLink

CHUNK, TIMES = 2**16, 3
#: Without limits a channel is immediate; with these it is as over a link.
LIMITS = ShapedLink(Rates(up_bytes_per_s=1e9, down_bytes_per_s=1e9))


def task(rank: int, collective: str = "ring") -> Task:
    """What sums read of one."""
    what = {"rank": rank, "collective": collective, "aggregators": None, "wait_timeout_s": 20.0}
    return cast("Task", SimpleNamespace(**what))


def both(directory: Path, way: ShapedLink | None, length: int, at_once: int) -> Mapping[str, Any]:
    """Rank 0's measurements, of two in threads of their own, and what is left in the channel."""
    name = Namespace("sums", 0)
    passes: list[int] = []

    def one(rank: int) -> Mapping[str, Any]:
        with shaped_channel(FileChannel(directory, name), way) as channel:
            run = partial(passes.append, rank)
            return timed_sums(task(rank), channel, run, length, TIMES, at_once)

    with (
        FileChannel.make(
            directory, name, senders=2, budget_bytes=2**26, ahead_bytes=2**18
        ) as channel,
        ThreadPoolExecutor(2) as pool,
    ):
        found = list(pool.map(one, range(2)))
        assert sorted(passes) == [0] * (1 + TIMES) + [1] * (1 + TIMES)
        return {**found[0], "left_bytes": channel.size_bytes()}


@pytest.mark.parametrize(("way", "sums"), [(None, 1), (LIMITS, MOST_AT_ONCE)])
def test_long_sums_are_as_many_at_once_as_a_run_has(
    tmp_path: Path, way: ShapedLink | None, sums: int
) -> None:
    length = 4 * MOST_AT_ONCE * CHUNK // ITEM_BYTES
    found = both(tmp_path, way, length, sums)
    assert found["sums"] == sums
    assert len(found["wall_s"]) == len(found["cpu_s"]) == TIMES
    assert min(found["cpu_s"]) > 0
    # In a ring of two a member puts half of each sum, then its result for the other half's reader.
    assert found["put_bytes"] == found["got_bytes"] == ITEM_BYTES * length
    assert found["puts"] == found["gets"] == 4 * MOST_AT_ONCE
    # The last two times at most; what was summed before is dropped.
    assert found["left_bytes"] < 4.1 * ITEM_BYTES * length


def test_a_short_sum_is_alone(tmp_path: Path) -> None:
    found = both(tmp_path, LIMITS, FEW, 1)
    assert (found["sums"], found["puts"], found["put_bytes"]) == (1, 2, ITEM_BYTES * FEW)


def test_long_sums_have_many_messages_within_what_may_be_sent() -> None:
    assert long_length(task(0), CHUNK, 2**30, 1) == 2 * MOST_CHUNKS * CHUNK // ITEM_BYTES
    assert long_length(task(0), CHUNK, 1.5 * 2**20, 4) == 2**20 // ITEM_BYTES
    assert long_length(task(0), CHUNK, 2 * CHUNK, 1) == 0
    # One sum of it has many messages, and each of four no more than a short one.
    assert long_length(task(0), CHUNK, 8 * CHUNK, 1) == 8 * CHUNK // ITEM_BYTES
    assert long_length(task(0), CHUNK, 8 * CHUNK, 4) == 0
    assert long_length(task(0, "scatter-reduce"), CHUNK, 2**30, 4) == 0
