"""A group's own names in the world's channel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dayfly.errors import WireError
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.group import MembersChannel, group_name
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.message import Header, as_bytes

ONE = Header("all-reduce-part", torch.uint8, (1,))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Channel]:
    with FileChannel.make(
        tmp_path, Namespace("run", 0), senders=6, budget_bytes=2**22, ahead_bytes=2**16
    ) as channel:
        yield channel


def view(world: Channel, ranks: list[int], timeout_s: float = 60.0) -> MembersChannel:
    name = group_name("0", ranks, 1)
    return MembersChannel(
        world, name, ranks, 0, whole_world=False, timeout_s=timeout_s, check=lambda: None
    )


def test_a_name_is_the_members_and_the_incarnations() -> None:
    names = {
        group_name("0", [0, 1], 1),
        group_name("0", [0, 1], 2),
        group_name("1", [0, 1], 1),
        group_name("0", [0, 2], 1),
    }
    assert len(names) == 4
    assert group_name("0", [0, 1], 1) == group_name("0", (0, 1), 1)
    assert all(len(name) == 9 and name.startswith("g") for name in names)


def test_ranks_are_the_members_here_and_the_worlds_there(world: Channel) -> None:
    group = view(world, [2, 5])
    key = Key(7, "all-reduce-part", 1, 0)
    assert group.put(key, ONE, memoryview(b"x"))
    there = Key(7, f"{group_name('0', [2, 5], 1)}-all-reduce-part", 5, 2)
    assert world.stored([there])
    assert group.stored([key]) == {key}
    into = torch.zeros(1, dtype=torch.uint8)
    group.get(key, into, 0.0)
    assert into.item() == ord("x")
    group.drop([key])
    assert not world.stored([there])


def test_groups_of_the_same_ranks_do_not_meet(world: Channel) -> None:
    key = Key(0, "all-reduce-part", 0, EVERYONE)
    view(world, [0, 1]).put(key, ONE, memoryview(b"x"))
    assert not view(world, [1, 0]).stored([key])


def test_what_waits_is_the_groups_own(world: Channel) -> None:
    group, other = view(world, [2, 5]), view(world, [2, 5, 1])
    to_me, to_all = Key(1, "all-reduce-part", 1, 0), Key(2, "broadcast-chunk-0", 1, EVERYONE)
    for key in (to_me, to_all):
        header = Header(key.operation, torch.uint8, (1,))
        group.put(key, header, memoryview(b"x"))
        other.put(key, header, memoryview(b"y"))
    assert group.waiting(0) == [to_me]
    assert group.waiting(EVERYONE) == [to_all]


def filled(world: Channel, group: MembersChannel) -> list[Key]:
    """As many messages as there is room for."""
    value = torch.zeros(2**16, dtype=torch.uint8)
    keys = []
    while True:
        key = Key(len(keys), "all-reduce-part", 0, 1)
        try:
            group.put(key, Header(key.operation, value.dtype, tuple(value.shape)), as_bytes(value))
        except WireError:
            return keys
        keys.append(key)


def test_no_room_for_too_long_is_an_error(world: Channel) -> None:
    group = view(world, [0, 1], timeout_s=0.0)
    keys = filled(world, group)
    value = torch.zeros(2**16, dtype=torch.uint8)
    key = Key(len(keys), "all-reduce-part", 0, 1)
    header = Header(key.operation, value.dtype, tuple(value.shape))
    with pytest.raises(WireError, match=f"part of step {len(keys)} from 0 to 1: no room came"):
        group.put(key, header, as_bytes(value))


def test_a_put_waits_for_room(world: Channel) -> None:
    keys = filled(world, view(world, [0, 1], timeout_s=0.0))
    asked = threading.Event()
    group = MembersChannel(
        world,
        group_name("0", [0, 1], 1),
        [0, 1],
        0,
        whole_world=False,
        timeout_s=60.0,
        check=asked.set,
    )
    value = torch.zeros(2**16, dtype=torch.uint8)
    key = Key(len(keys), "all-reduce-part", 0, 1)
    header = Header(key.operation, value.dtype, tuple(value.shape))
    put = threading.Thread(target=lambda: group.put(key, header, as_bytes(value)))
    put.start()
    assert asked.wait(60)
    group.drop(keys)
    put.join(60)
    assert group.stored([key])


def test_workers_that_reach_each_other_send_each_member_its_own(world: Channel) -> None:
    """For nobody knows when ranks outside the group would have read one for everyone."""
    world.abilities = Abilities(direct=True)
    name = group_name("0", [2, 5, 1], 1)
    sender, reader = (
        MembersChannel(world, name, [2, 5, 1], member, whole_world=False) for member in (1, 2)
    )
    key = Key(3, "all-gather-block-0", 1, EVERYONE)
    header = Header(key.operation, torch.uint8, (1,))
    assert sender.put(key, header, memoryview(b"x"))
    there = [Key(3, f"{name}-all-gather-block-0", 5, rank) for rank in (1, 2)]
    assert world.stored(there) == set(there)
    assert sender.copies(key) == 2
    into = torch.zeros(1, dtype=torch.uint8)
    reader.get(key, into, 0.0)
    assert into.item() == ord("x")
    assert sender.stored([key]) == {key}
    sender.drop([key])
    assert not world.stored(there)
