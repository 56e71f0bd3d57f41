"""Groups of ranks in one world: collectives among a stage's replicas, beside those of another."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.conformance import SOON_S
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.group import GroupChannel
from dayfly.wire.channels.kinds import Direct
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.engine import Engine
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.message import Header
from dayfly.wire.pipelines.step import Layout
from tests.channels.kit import plan, site

LAYOUT, LENGTH = Layout(2, 3), 10
ONE = Header("grad-sum", torch.uint8, (1,))


@pytest.fixture(params=["file", "tcp"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Channel]]:
    """The world's channel, an end each rank."""
    ranks = range(LAYOUT.world_size)
    with ExitStack() as stack:
        if request.param == "file":
            names = Namespace("run", 0)
            stack.enter_context(
                FileChannel.make(
                    tmp_path, names, senders=len(ranks), budget_bytes=2**24, ahead_bytes=2**18
                )
            )
            yield [stack.enter_context(FileChannel(tmp_path, names)) for _ in ranks]
        else:
            kind, where = Direct(), site(tmp_path, "tcp://")
            made = stack.enter_context(kind.create(where, plan(len(ranks))))
            yield [stack.enter_context(kind.open(where, rank)) for rank in ranks]
            made.destroy()


def replicas_channel(ends: list[Channel], rank: int) -> GroupChannel:
    """Rank's, among those that compute the same stage."""
    own = LAYOUT.stage_rank(rank)
    ranks = LAYOUT.stage_ranks(own.stage)
    return GroupChannel(ends[rank], f"s{own.stage}", ranks, own.replica, whole_world=False)


@pytest.mark.parametrize("name", [name for name, one in COLLECTIVES.items() if not one.server])
def test_replicas_of_each_stage_sum_among_themselves(ends: list[Channel], name: str) -> None:
    """At the same time, in the same step, under the same name."""

    def work(rank: int) -> torch.Tensor:
        buffer = torch.arange(LENGTH) + float(100**rank)
        with Engine(
            replicas_channel(ends, rank),
            COLLECTIVES[name],
            LAYOUT.stage_rank(rank).replica,
            LAYOUT.replicas,
            timeout_s=SOON_S,
        ) as engine:
            engine.all_reduce(buffer, 0, "grad")
        return buffer

    with ThreadPoolExecutor(LAYOUT.world_size) as pool:
        sums = list(pool.map(work, range(LAYOUT.world_size)))
    for rank, found in enumerate(sums):
        own = LAYOUT.stage_ranks(LAYOUT.stage_rank(rank).stage)
        parts = [torch.arange(LENGTH) + float(100**each) for each in own]
        torch.testing.assert_close(found, torch.stack(parts).sum(0))
        assert torch.equal(found, sums[own[0]])


def test_a_message_for_all_members_reaches_no_other_stage(ends: list[Channel]) -> None:
    key = Key(0, "grad-sum", 1, EVERYONE)
    groups = [replicas_channel(ends, rank) for rank in range(LAYOUT.world_size)]
    groups[4].put(key, ONE, memoryview(b"x"))
    for reader in (3, 5):
        into = torch.zeros(1, dtype=torch.uint8)
        groups[reader].get(key, into, SOON_S)
        assert into.item() == ord("x")
    with pytest.raises(WaitTimeout):
        groups[0].get(key, into, 0.0)


def test_errors_name_operations_as_the_group_does(ends: list[Channel]) -> None:
    key = Key(0, "grad-sum", 1, 0)
    sender, reader = (replicas_channel(ends, rank) for rank in (4, 3))
    sender.put(key, ONE, memoryview(b"x"))
    with pytest.raises(WireError, match=r"expected grad-sum uint8\[2\], found grad-sum uint8"):
        reader.get(key, torch.zeros(2, dtype=torch.uint8), SOON_S)


def test_what_waits_is_the_members_own(ends: list[Channel]) -> None:
    sender, reader = (replicas_channel(ends, rank) for rank in (4, 3))
    other = partial(Key, 0, "grad-sum", 4)
    ends[4].put(other(3), ONE, memoryview(b"y"))
    key = Key(0, "grad-sum", 1, 0)
    sender.put(key, ONE, memoryview(b"x"))
    assert reader.waiting(0) == [key]
    assert set(ends[3].waiting(3)) == {other(3), Key(0, "s1-grad-sum", 4, 3)}
    reader.drop([key])
    assert reader.waiting(0) == []
