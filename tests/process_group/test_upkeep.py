"""What a group leaves in the channel, and in the process: as much as its last operations need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from dayfly.errors import WireError
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.group import MembersChannel, left_key
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.process_group import collectives, member
from dayfly.wire.process_group.group import DayflyGroup
from dayfly.wire.process_group.member import Member

from .members_here import LONG_S, each, members

pytestmark = pytest.mark.long


class Distant(FileChannel):
    """As if a link were between: several lanes."""

    immediate = False
    abilities = Abilities(in_flight=3)


@pytest.fixture(params=[FileChannel, Distant], ids=["immediate", "distant"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Channel]:
    with request.param.make(
        tmp_path, Namespace("run", 0), senders=3, budget_bytes=2**27, ahead_bytes=2**18
    ) as made:
        yield made


def broadcast(group: DayflyGroup, tensor: torch.Tensor) -> None:
    options = dist.BroadcastOptions()
    options.rootRank = 0
    group.broadcast([tensor], options).wait()


@pytest.mark.parametrize("operation", ["all-reduce", "few", "all-gather", "barrier"])
def test_what_all_have_read_is_dropped(channel: Channel, operation: str) -> None:
    def run(group: DayflyGroup) -> None:
        for _ in range(40):
            match operation:
                case "all-reduce":
                    group.allreduce([torch.ones(3000)]).wait()
                case "few":
                    few = torch.full((2000,), float(group.rank()))
                    group.allreduce([few]).wait()
                    assert few.eq(3).all()
                case "all-gather":
                    group.all_gather_single(torch.empty(9000), torch.ones(3000)).wait()
                case _:
                    group.barrier().wait()

    with members(channel, 3) as groups:
        each(groups, run)
        # Four lanes, each with its last operation: at most 12 kB of each of three members' own.
        assert channel.size_bytes() < 4 * 3 * 14_000


def test_broadcasts_alone_do_not_fill_the_channel(channel: Channel) -> None:
    """All of them together are more than it can hold."""
    with members(channel, 2) as groups:
        each(groups, lambda group: [broadcast(group, torch.ones(2**16)) for _ in range(300)])


def test_broadcasts_between_scatters_do_not_pile_up(channel: Channel) -> None:
    """Members meet in neither."""

    def run(group: DayflyGroup) -> None:
        options = dist.ScatterOptions()
        options.rootRank = 0
        for _ in range(300):
            broadcast(group, torch.ones(256))
            given = [[torch.ones(1)] * 2] if group.rank() == 0 else []
            group.scatter([torch.empty(1)], given, options).wait()

    with members(channel, 2) as groups:
        each(groups, run)
        assert channel.size_bytes() < 4 * 33 * 1200  # lanes, broadcasts of each that may stay


def test_a_slow_reader_of_a_broadcast_is_not_out_of_step(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives, "_SUSPECT_AFTER_S", 0.0)
    monkeypatch.setattr(member, "_BROADCASTS", 1)
    looked, waiting = threading.Event(), MembersChannel.waiting

    def look(self: MembersChannel, destination: int) -> Sequence[Key]:
        found = waiting(self, destination)
        if destination == EVERYONE:
            looked.set()
        return found

    monkeypatch.setattr(MembersChannel, "waiting", look)

    def run(group: DayflyGroup) -> None:
        if group.rank() == 1:
            assert looked.wait(60)  # member 0 waits for it to have read what it sent
        for _ in range(8):  # in each lane, what comes after such a wait
            broadcast(group, torch.ones(4))
        group.barrier().wait()

    with members(channel, 2) as groups:
        each(groups, run)


def test_groups_that_were_destroyed_leave_nothing_once_all_have(channel: Channel) -> None:
    with members(channel, 2) as groups:
        each(groups, lambda group: group.allreduce([torch.ones(2**16)]).wait())
        held = channel.size_bytes()
        groups[0].shutdown()
        assert not groups[0].tidy()
        assert channel.size_bytes() >= held
    assert [group.tidy() for group in groups] == [True, True]
    assert channel.size_bytes() < 1000


def test_sums_are_in_the_order_of_the_ranks(channel: Channel) -> None:
    terms = [torch.randn(1000, generator=torch.Generator().manual_seed(r)) for r in range(3)]
    expected = (terms[0] + terms[1]) + terms[2]
    with members(channel, 3) as groups:
        pairs = iter(list(zip(groups, terms, strict=True)))
        by_group = dict(pairs)
        each(groups, lambda group: group.allreduce([by_group[group]]).wait())
    assert all(torch.equal(term, expected) for term in terms)


def test_inside_of_inference_mode(channel: Channel) -> None:
    def run(group: DayflyGroup) -> None:
        with torch.inference_mode():
            whole, turned = torch.ones(5), torch.ones(2, 3).t()
            parts = [torch.empty(2, 3).t() for _ in range(2)]
            mean = dist.AllreduceOptions()
            mean.reduceOp = dist.ReduceOp.AVG
            group.allreduce([whole]).wait()
            group.allreduce([turned], mean).wait()
            group.allgather([parts], [turned]).wait()
            phase = torch.full((2,), 1j).conj()
            group.allreduce([phase]).wait()
            for _ in range(4):  # the later ones are read ahead, where they are
                if group.rank() == 0:
                    group.send([turned], 1, 0).wait()
                else:
                    group.recv([parts[0]], 0, 0).wait()
                group.barrier().wait()
        assert whole.eq(2).all()
        assert turned.eq(1).all()
        assert all(part.eq(1).all() for part in parts)
        assert phase.eq(-2j).all()

    with members(channel, 2) as groups:
        each(groups, run)


def test_a_group_that_failed_stays_so(channel: Channel) -> None:
    with members(channel, 2, timeout_s=0.2) as (group, _):
        with pytest.raises(WireError, match="rank 0: all-reduce SUM of float32"):
            group.allreduce([torch.ones(4)]).wait()
        with pytest.raises(WireError, match="the group failed before: rank 0: all-reduce"):
            group.allreduce([torch.ones(4)]).wait()


def test_a_member_that_has_left_is_not_waited_for(channel: Channel) -> None:
    with members(channel, 2, timeout_s=600) as (group, other):
        other.shutdown()
        channel.put_bytes(left_key(1), b"")
        with pytest.raises(WireError, match="nothing more comes from rank 1"):
            group.allreduce([torch.ones(4)]).wait()


def test_what_a_member_sent_before_it_left_arrives(channel: Channel) -> None:
    with members(channel, 2) as (group, other):
        other.send([torch.ones(3)], 0, 0).wait()
        other.shutdown()
        channel.put_bytes(left_key(1), b"")
        into = torch.zeros(3)
        group.recv([into], 1, 0).wait()
        assert into.tolist() == [1, 1, 1]
        with pytest.raises(WireError, match="nothing more comes from rank 1"):
            group.recv([into], 1, 0).wait()


def test_members_out_of_step_are_told_so(channel: Channel) -> None:
    def run(group: DayflyGroup) -> str:
        work = group.allreduce([torch.ones(4)]) if group.rank() == 0 else group.barrier()
        with pytest.raises(WireError) as caught:
            work.wait()
        return str(caught.value)

    with members(channel, 2) as groups:
        errors = each(groups, run)
    assert any("out of step: collective 0 is" in text for text in errors)


def test_no_thread_is_left(channel: Channel) -> None:
    def ours() -> set[threading.Thread]:
        return {one for one in threading.enumerate() if one.name.startswith("dayfly-0")}

    before = ours()
    with members(channel, 2) as groups:
        each(groups, lambda group: group.allreduce([torch.ones(4)]).wait())
        assert ours() - before
    assert not ours() - before


@pytest.mark.parametrize("begun", [True, False])
def test_ended_in_the_middle_of_a_wait(
    channel: Channel, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = threading.Event()

    def telling(read: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (reads.set(), read(*given))[1]

    for name in ("get", "fetch"):
        monkeypatch.setattr(channel, name, telling(getattr(channel, name)))
    group = DayflyGroup(Member(channel, "0", [0, 1], 0, timeout_s=600))
    work = group.allreduce([torch.ones(4)])
    assert not begun or reads.wait(LONG_S)
    group.abort()
    with pytest.raises(WireError, match="the group was aborted"):
        work.wait()
