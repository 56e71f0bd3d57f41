"""What comes next is downloaded before anybody asks: seen at the channel, not by the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dayfly.errors import NoRoom, WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import Key
from dayfly.wire.message import Header
from dayfly.wire.process_group import p2p_incoming as incoming
from dayfly.wire.process_group.p2p import Outgoing, PointToPoint
from dayfly.wire.process_group.p2p_incoming import MOST_AHEAD, IncomingMessages
from dayfly.wire.shaped import ShapedChannel
from dayfly.wire.shaping import Rates, ShapedLink
from tests.channels.places import make
from tests.process_group.p2p_ranks import CHUNK, Call, Member, Office, office, threads

pytestmark = pytest.mark.long

RATES = Rates(up_bytes_per_s=1e9, down_bytes_per_s=1e7, latency_s=0.002)
LENGTH = 5 * CHUNK
PARTS = 5
MIB = 2**20


class Watched(ShapedChannel):
    """A channel behind a line that tells what was downloaded, and what was not as expected."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, ShapedLink(RATES))
        self.downloaded: set[Key] = set()
        self.refused: list[Key] = []
        self._changed = threading.Condition()

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        try:
            there_s = super().get(key, into, timeout_s)
        except WaitTimeout:
            raise
        except WireError:
            with self._changed:
                self.refused.append(key)
                self._changed.notify_all()
            raise
        with self._changed:
            self.downloaded.add(key)
            self._changed.notify_all()
        return there_s

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, SOON_S)

    def has(self, number: int) -> bool:
        """Whether all chunks of a message were downloaded."""
        with self._changed:
            return sum(key.step == number for key in self.downloaded) == PARTS


def watched(made: Office) -> tuple[Watched, Member]:
    """Rank 1 behind the line."""
    member = made.member(1, wrap=Watched)
    assert isinstance(member.channel, Watched)
    return member.channel, member


def stream(member: Member, source: int = 0, tag: int = 0) -> IncomingMessages:
    return member.p2p._incoming[source, tag]


def soon(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def idle(member: Member) -> None:
    """Wait until nobody reads any more."""
    soon(lambda: not stream(member)._reading)


@pytest.mark.parametrize("kind", ["files-shaped", "redis", "tcp"])
def test_the_next_letter_is_downloaded_while_the_last_is_worked_on(kind: str) -> None:
    """As torch's GPipe: each receive is asked for just before it is waited for."""
    count = 6
    with office(kind, 2) as made:
        channel, one = watched(made)
        for number in range(count):
            made.members[0].send(torch.full((LENGTH,), float(number)), 1)
        for number in range(count):
            # Nobody has asked for this one, but for the first.
            assert channel.has(number) == (number > 0)
            into = torch.zeros(LENGTH)
            one.recv(into, 0).result()
            assert torch.equal(into, torch.full((LENGTH,), float(number)))
            # The work lasts as long as the download: for ever, if there is none.
            if number + 1 < count:
                channel.until(lambda number=number: channel.has(number + 1))  # type: ignore[misc]


def test_memory_that_cannot_be_written_to_is_an_error_and_no_wait_for_ever() -> None:
    with office("files-shaped", 2) as made:
        channel, one = watched(made)
        for _ in range(2):
            made.members[0].send(torch.ones(LENGTH), 1)
        one.recv(torch.zeros(LENGTH), 0).result()
        channel.until(lambda: channel.has(1))
        with torch.inference_mode():
            refuses = torch.zeros(LENGTH)
        assert isinstance(one.recv(refuses, 0).error(), RuntimeError)


def test_no_more_than_two_are_kept() -> None:
    with office("files-shaped", 2) as made:
        channel, one = watched(made)
        for number in range(5):
            made.members[0].send(torch.full((LENGTH,), float(number)), 1).result()
        one.recv(torch.zeros(LENGTH), 0).result()
        idle(one)
        assert [channel.has(number) for number in range(5)] == [True, True, True, False, False]
        assert len(stream(one)._ahead) == MOST_AHEAD
        for number in range(1, 5):
            into = torch.zeros(LENGTH)
            one.recv(into, 0).result()
            assert into[0] == number
        one.p2p.close()
        assert made.left() == []
        assert not one.p2p._context.buffers._lent


def test_nothing_is_read_ahead_before_a_first_letter() -> None:
    with office("files-shaped", 2) as made:
        channel, _ = watched(made)
        made.members[0].send(torch.zeros(LENGTH), 1).result()
        assert not channel.downloaded


def test_nothing_is_read_ahead_in_memory() -> None:
    with office("files-tmpfs", 2) as made:
        zero, one = made.members
        for _ in range(2):
            zero.send(torch.zeros(LENGTH), 1).result()
        one.recv(torch.zeros(LENGTH), 0).result()
        idle(one)
        assert not stream(one)._ahead
        assert [key.step for key in made.left()] == [1]


@pytest.mark.parametrize("kind", ["files-shaped", "tcp"])
@pytest.mark.parametrize("length", [1, 2 * CHUNK, LENGTH + 1, LENGTH + CHUNK])
def test_one_of_another_form_stays_unread_until_somebody_asks(kind: str, length: int) -> None:
    """Also over a channel where nothing can be read twice."""
    with office(kind, 2) as made:
        channel, one = watched(made)
        zero = made.members[0]
        zero.send(torch.zeros(LENGTH), 1)
        one.recv(torch.zeros(LENGTH), 0).result()
        zero.send(torch.ones(length), 1)
        channel.until(lambda: bool(channel.refused))
        idle(one)
        assert [key.step for key in channel.refused] == [1]
        assert not any(key.step == 1 for key in channel.downloaded)
        into = torch.zeros(length)
        one.recv(into, 0).result()
        assert torch.equal(into, torch.ones(length))
        one.p2p.close()
        soon(lambda: made.left() == [])  # once the sender has heard that it was read


def test_who_asks_for_another_form_than_was_read_hears_so() -> None:
    with office("files-shaped", 2) as made:
        channel, one = watched(made)
        for value in range(3):
            made.members[0].send(torch.full((LENGTH,), float(value)), 1)
        one.recv(torch.zeros(LENGTH), 0).result()
        channel.until(lambda: channel.has(1))
        with pytest.raises(
            WireError,
            match=r"^rank 1, receiving message 1 of tag 0 from rank 0, int32\[7\]: expected "
            r"int32\[7\], found float32\[320\]",
        ):
            one.recv(torch.zeros(7, dtype=torch.int32), 0).result()
        into = torch.zeros(LENGTH)
        one.recv(into, 0).result()
        assert into[0] == 2


def test_the_time_that_nobody_asked_does_not_count() -> None:
    """A wait ahead lasts; one that was asked for ends, and is named."""
    with office("files-shaped", 2) as made:
        hasty = made.member(1, timeout_s=0.3, wrap=Watched)
        zero = made.members[0]
        zero.send(torch.zeros(2), 1).result()
        hasty.recv(torch.zeros(2), 0).result()
        time.sleep(0.5)  # more than it may wait for what is asked for
        assert stream(hasty)._reading
        zero.send(torch.ones(2), 1).result()
        soon(lambda: any(one.over for one in list(stream(hasty)._ahead)))
        hasty.recv(torch.zeros(2), 0).result()
        with pytest.raises(WaitTimeout, match=r"message 2 of tag 0 .* within 0\.3 s"):
            hasty.recv(torch.zeros(2), 0).result()


def test_a_wait_that_nobody_asks_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "AHEAD_S", 0.0)
    with office("files-shaped", 2) as made:
        _, one = watched(made)
        made.members[0].send(torch.zeros(2), 1).result()
        one.recv(torch.zeros(2), 0).result()
        idle(one)
        made.members[0].send(torch.ones(2), 1).result()
        one.recv(into := torch.zeros(2), 0).result()
        assert into.tolist() == [1, 1]


def test_few_streams_wait_ahead_and_none_is_left_out() -> None:
    with office("files-shaped", 2) as made:
        _, one = watched(made)
        zero = made.members[0]
        for round_ in range(3):
            for tag in range(30):
                zero.send(torch.full((3,), float(round_)), 1, tag).result()
                one.recv(into := torch.zeros(3), 0, tag).result()
                assert into[0] == round_
                assert len(one.p2p._ahead._streams) <= 8
        # Two members' idle threads, and those that wait ahead; others may be about to end.
        soon(lambda: len(threads()) <= 2 * 8 + 8)


def test_what_finds_no_room_waits_for_its_reader(tmp_path: Path) -> None:
    """Ten times what there is room for, in order, over memory and over a line."""
    sizes = [MIB // 16, MIB // 8, MIB // 32] * 10
    with make(tmp_path, senders=2, budget_bytes=MIB) as coordinators:
        for wrap in (lambda channel: channel, Watched):
            near, far = (wrap(FileChannel(tmp_path, NAMESPACE)) for _ in range(2))
            settings = {"timeout_s": SOON_S, "check": lambda: None}
            with (
                near,
                far,
                PointToPoint(near, 0, 2, **settings) as zero,  # type: ignore[arg-type]
                PointToPoint(far, 1, 2, **settings) as one,  # type: ignore[arg-type]
            ):
                sends = [Call() for _ in sizes]
                for number, (size, call) in enumerate(zip(sizes, sends, strict=True)):
                    zero.send(torch.full((size,), float(number)), 1, 0, call)
                assert not all(call.over for call in sends)
                for number, size in enumerate(sizes):
                    into, call = torch.zeros(size), Call()
                    one.recv(into, 0, 0, call)
                    call.result()
                    assert torch.equal(into, torch.full((size,), float(number)))
                for call in sends:
                    call.result()
            coordinators.trim(100)


class Late(ShapedChannel):
    """A channel that takes the first message once it is full of those after it, and may go on."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, ShapedLink(RATES))
        self.full, self.go = threading.Event(), threading.Event()

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        if key.step == 0 and key.operation.endswith("chunk-0"):
            assert self.full.wait(SOON_S)
            assert self.go.wait(SOON_S)
        try:
            return super().put(key, header, payload)
        except NoRoom:
            self.full.set()
            raise


def test_a_letter_that_comes_late_to_a_full_channel_is_not_shut_out(tmp_path: Path) -> None:
    """Those after it, which its reader takes later, give it their room."""
    sizes = [MIB // 8, *[MIB // 32] * 9]  # elements: message 0 takes half of the room
    with (
        make(tmp_path, senders=2, budget_bytes=MIB),
        Late(FileChannel(tmp_path, NAMESPACE)) as near,
        ShapedChannel(FileChannel(tmp_path, NAMESPACE), ShapedLink(RATES)) as far,
        PointToPoint(near, 0, 2, timeout_s=SOON_S, check=lambda: None) as zero,
        PointToPoint(far, 1, 2, timeout_s=SOON_S, check=lambda: None) as one,
    ):
        sends = [Call() for _ in sizes]
        for number, (size, call) in enumerate(zip(sizes, sends, strict=True)):
            zero.send(torch.full((size,), float(number)), 1, 0, call)
        assert near.full.wait(SOON_S)
        assert not any(call.over for call in sends)
        near.go.set()
        for number, size in enumerate(sizes):
            into, call = torch.zeros(size), Call()
            one.recv(into, 0, 0, call)
            call.result()
            assert torch.equal(into, torch.full((size,), float(number)))
        for call in sends:
            call.result()
        soon(lambda: far.waiting(1) == [])  # what was read is removed beside the reading


def test_no_room_in_time_is_named(tmp_path: Path) -> None:
    with (
        make(tmp_path, senders=2, budget_bytes=MIB),
        FileChannel(tmp_path, NAMESPACE) as channel,
        PointToPoint(channel, 0, 2, timeout_s=0.1, check=lambda: None) as messages,
    ):
        calls = [Call() for _ in range(3)]
        for call in calls:
            messages.send(torch.zeros(MIB // 8), 1, 2, call)
        calls[0].result()
        for number, call in enumerate(calls[1:], 1):
            with pytest.raises(
                WaitTimeout,
                match=rf"^rank 0, sending message {number} of tag 2 to rank 1, .*: no room came "
                rf"within 0\.1 s, .*no room at {tmp_path}",
            ):
                call.result()
        never = Call()
        messages.send(torch.zeros(MIB), 1, 3, never)
        error = never.error()
        assert isinstance(error, WireError)
        assert not isinstance(error, WaitTimeout)


def test_close_ends_what_waits_for_room(tmp_path: Path) -> None:
    class Full(FileChannel):
        refused = threading.Event()

        def put(self, key: Key, header: Header, payload: memoryview) -> bool:
            self.refused.set()
            raise NoRoom("full")

    before = threads()
    with make(tmp_path, senders=2), Full(tmp_path, NAMESPACE) as channel:
        messages = PointToPoint(channel, 0, 2, timeout_s=SOON_S, check=lambda: None)
        calls = [Call() for _ in range(3)]
        for call in calls:
            messages.send(torch.zeros(4), 1, 0, call)
        assert channel.refused.wait(SOON_S)
        messages.close()
        for call in calls:
            assert call.over
            with pytest.raises(WireError, match=r"rank 0, sending message . of tag 0 .*was closed"):
                call.result()
    assert not threads() - before


@pytest.mark.parametrize(("owner", "name"), [(IncomingMessages, "_take"), (Outgoing, "_carry")])
def test_a_thread_that_fails_fails_what_waits_for_it(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, with the error that ended it: nothing waits for its time-out."""

    def fail(*whatever: object) -> None:
        raise KeyError("nobody expected this")

    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    monkeypatch.setattr(owner, name, fail)
    began = time.monotonic()
    with office("files-shaped", 2) as made:
        one = made.members[1]
        call = one.send(torch.ones(3), 0) if owner is Outgoing else one.recv(torch.ones(3), 0)
        assert isinstance(call.error(), KeyError)
        with pytest.raises(WireError, match="nobody expected this") as failure:
            one.recv(torch.ones(3), 0)
        assert failure.value.__cause__ is call.error()
    assert time.monotonic() - began < SOON_S / 2
