"""Messages arrive in their order, whoever asks when; what does not arrive is named."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.conformance import tensor
from dayfly.wire.collectives.conformance_world import same_bits
from dayfly.wire.message import DTYPES
from tests.channels.kit import eventually
from tests.process_group.p2p_ranks import CHUNK, KINDS, Call, Office, office, threads

pytestmark = pytest.mark.long

#: Of nothing, of one message, of several, of as many as there may be, and larger ones.
LENGTHS = [0, 1, CHUNK, 2 * CHUNK, 5 * CHUNK + 3, 32 * CHUNK, 100 * CHUNK + 17]


@pytest.fixture(params=KINDS)
def three(request: pytest.FixtureRequest) -> Iterator[Office]:
    """Three ranks over each kind of channel."""
    with office(request.param) as made:
        yield made


def numbered(number: int, length: int) -> torch.Tensor:
    return torch.full((length,), float(number))


@pytest.mark.quick
def test_p2p_arrive_in_their_order(three: Office) -> None:
    """All are sent at once; half of the receives are asked for before, half after."""
    zero, one, _ = three.members
    count = 2 * len(LENGTHS)
    lengths = [LENGTHS[number % len(LENGTHS)] for number in range(count)]
    got = [torch.full((length,), -1.0) for length in lengths]
    receives = [one.recv(into, 0, 7) for into in got[: count // 2]]
    sends = [zero.send(numbered(at, length), 1, 7) for at, length in enumerate(lengths)]
    for send in sends:
        send.result()
    receives += [one.recv(into, 0, 7) for into in got[count // 2 :]]
    for at, receive in enumerate(receives):
        receive.result()
        assert torch.equal(got[at], numbered(at, lengths[at])), at
    one.p2p.close()
    one.channel.close()  # which waits for what it still removes
    eventually(lambda: three.left() == [], "the senders hear that all was read")


def test_there_and_back(three: Office) -> None:
    """One after another, as a pipeline's stages have it, with two tags and three ranks."""
    first, second, third = three.members
    for step in range(5):
        there, back = torch.zeros(3 * CHUNK), torch.zeros(2)
        first.send(numbered(step, 3 * CHUNK), 1, 0).result()
        second.recv(there, 0, 0).result()
        second.send(there, 2, 0).result()
        third.recv(there.zero_(), 1, 0).result()
        third.send(there[:2].contiguous(), 0, 1).result()
        first.recv(back, 2, 1).result()
        assert back.tolist() == [step, step]


def test_receives_of_many_streams_wait_beside_each_other(three: Office) -> None:
    """The last that is asked for comes first; none has a thread of another's."""
    _, one, two = three.members
    # A store that is asked again and again is asked for a sender's first few above all.
    tags = range(2 if three.kind == "directory" else 24)
    got = {(tag, source): torch.zeros(2) for tag in tags for source in (0, 2)}
    receives = {key: one.recv(into, key[1], key[0]) for key, into in got.items()}
    for tag in reversed(tags):
        two.send(numbered(tag, 2), 1, tag).result()
        receives[tag, 2].result()
        assert got[tag, 2].tolist() == [tag, tag]
        assert not receives[tag, 0].over
    for tag in reversed(tags):
        three.members[0].send(numbered(-tag, 2), 1, tag).result()
        receives[tag, 0].result()
        assert got[tag, 0].tolist() == [-tag, -tag]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_arrives_with_the_same_bits(dtype: torch.dtype) -> None:
    with office("files-shaped", 2) as made:
        sent = tensor((5 * CHUNK,), dtype)
        made.members[0].send(sent, 1).result()
        got = torch.zeros_like(sent)
        made.members[1].recv(got, 0).result()
        assert same_bits(got, sent)


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (torch.zeros(4), torch.zeros(5)),
        (torch.zeros(4), torch.zeros(4, dtype=torch.int32)),
        (torch.zeros(2 * CHUNK), torch.zeros(3 * CHUNK)),
        (torch.zeros(3 * CHUNK), torch.zeros(2 * CHUNK)),
        (torch.zeros(64 * CHUNK), torch.zeros(64 * CHUNK + 1)),
    ],
    ids=["length", "dtype", "more", "fewer", "one more"],
)
def test_another_form_is_named_and_the_next_letter_comes(
    three: Office, sent: torch.Tensor, wanted: torch.Tensor
) -> None:
    zero, one, _ = three.members
    receive = one.recv(wanted, 0, 3)
    zero.send(sent, 1, 3).result()
    name = str(wanted.dtype).removeprefix("torch.")
    with pytest.raises(
        WireError,
        match=rf"^rank 1, receiving message 0 of tag 3 from rank 0, {name}\[{len(wanted)}\]: .*"
        "expected .*, found",
    ):
        receive.result()
    got = torch.zeros(2)
    zero.send(numbered(5, 2), 1, 3).result()
    one.recv(got, 0, 3).result()
    assert got.tolist() == [5, 5]


def test_what_does_not_come_is_named() -> None:
    for kind in ("files-tmpfs", "files-shaped", "redis"):
        with office(kind, 2) as made:
            hasty = made.member(1, timeout_s=0.05)
            says = (
                r"^rank 1, receiving message {} of tag 4 from rank 0, float32\[3\]: nothing came "
                r"within 0\.05 s"
            )
            calls = [hasty.recv(torch.zeros(3), 0, 4) for _ in range(2)]
            for number, call in enumerate(calls):
                with pytest.raises(WaitTimeout, match=says.format(number)):
                    call.result()
            any_call = hasty.recv_any(torch.zeros(3), 5)
            with pytest.raises(
                WaitTimeout,
                match=r"^rank 1, receiving with tag 5 from anyone, .*: nothing came .*0\.05 s",
            ):
                any_call.result()
            assert any_call.told[0][1] == -1


def test_close_ends_what_waits(three: Office) -> None:
    one = three.members[1]
    calls = [one.recv(torch.zeros(2), source, tag) for source in (0, 2) for tag in range(3)]
    calls += [one.recv(torch.zeros(2), 0, 0), one.recv_any(torch.zeros(2), 9)]
    one.p2p.close()
    for call in calls:
        assert call.over, "when they are closed, all are told"
        assert call.thread is not threading.current_thread()
        with pytest.raises(WireError, match="closed meanwhile"):
            call.result()
    for begin in (one.send, one.recv):
        with pytest.raises(WireError, match="messages of rank 1 are closed"):
            begin(torch.zeros(2), 0)
    with pytest.raises(WireError, match="messages of rank 1 are closed"):
        one.recv_any(torch.zeros(2))
    one.p2p.close()


@pytest.mark.parametrize("kind", KINDS)
def test_check_ends_what_waits(kind: str) -> None:
    failed = threading.Event()

    def check() -> None:
        if failed.is_set():
            raise WireError("the group failed before")

    with office(kind, 2) as made:
        member = made.member(1, check=check)
        calls = [member.recv(torch.zeros(2), 0), member.recv_any(torch.zeros(2), 2)]
        failed.set()
        for call in calls:
            with pytest.raises(WireError, match="the group failed before"):
                call.result()


def test_p2p_from_anyone(three: Office) -> None:
    """Each goes to one call, by number too: a receive of one sender is not robbed."""
    zero, one, two = three.members
    got = [torch.zeros(CHUNK * 3) for _ in range(4)]
    calls = [one.recv_any(into, 1) for into in got]
    sent = 0
    while sent < 4:
        sender = (zero, two)[sent % 2]
        sender.send(numbered(sent, CHUNK * 3), 1, 1).result()
        sent += 1
    seen = []
    for call, into in zip(calls, got, strict=True):
        call.result()
        seen.append((call.told[0][1], int(into[0])))
        assert torch.equal(into, numbered(seen[-1][1], len(into)))
    assert sorted(seen) == [(0, 0), (0, 2), (2, 1), (2, 3)]
    # Each sender's come in their order.
    assert [number for source, number in seen if source == 0] == [0, 2]
    assert [number for source, number in seen if source == 2] == [1, 3]
    # And a receive of one sender takes its next one after those.
    zero.send(numbered(9, 2), 1, 1).result()
    last = torch.zeros(2)
    one.recv(last, 0, 1).result()
    assert last.tolist() == [9, 9]


def test_who_fails_when_told_harms_no_other_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)

    def fail(error: BaseException | None) -> None:
        raise ValueError("broken")

    with office("files-shaped", 2) as made:
        zero, one = made.members
        one.p2p.recv(torch.zeros(2), 0, 0, fail)
        zero.p2p.send(torch.zeros(2), 1, 0, fail)
        zero.send(torch.ones(2), 1).result()
        one.recv(into := torch.zeros(2), 0).result()
        assert into.tolist() == [1, 1]
    assert [str(one.exc_value) for one in shown] == ["broken", "broken"]


@pytest.mark.parametrize(
    ("flat", "peer", "tag", "why"),
    [
        (torch.zeros(2), 1, 0, "rank 1 to itself"),
        (torch.zeros(2), 3, 0, "rank 3 of 3"),
        (torch.zeros(2), 0, -1, "tag -1: give 0 or more"),
        (torch.zeros(2), 0, 10**40, "must match"),
        (torch.zeros(2, 2), 0, 0, "flat, contiguous"),
        (torch.zeros(4)[::2], 0, 0, "flat, contiguous"),
    ],
)
def test_wrong_requests_are_refused_at_once(
    flat: torch.Tensor, peer: int, tag: int, why: str
) -> None:
    with office() as made:
        one = made.members[1].p2p
        for begin in (one.send, one.recv):
            with pytest.raises(ValueError, match=why):
                begin(flat, peer, tag, Call())


@settings(deadline=None, max_examples=15)
@given(data=st.data(), kind=st.sampled_from(["files-tmpfs", "files-shaped"]))
def test_whatever_the_order_of_sends_and_receives(data: st.DataObject, kind: str) -> None:
    """Of two streams each way between two ranks, with forms that change."""
    streams = [(source, tag) for source in (0, 1) for tag in (0, 1)]
    steps = st.tuples(st.booleans(), st.sampled_from(streams))
    lengths = st.sampled_from([0, 1, 2 * CHUNK, 3 * CHUNK])
    with office(kind, 2) as made:
        sent: dict[tuple[int, int], list[torch.Tensor]] = {one: [] for one in streams}
        got: dict[tuple[int, int], list[tuple[Call, torch.Tensor]]] = {one: [] for one in streams}
        forms: dict[tuple[int, int], list[int]] = {one: [] for one in streams}

        def length_of(stream: tuple[int, int], number: int) -> int:
            while len(forms[stream]) <= number:
                forms[stream].append(data.draw(lengths))
            return forms[stream][number]

        def send(stream: tuple[int, int]) -> None:
            value = torch.randn(length_of(stream, len(sent[stream])))
            made.members[stream[0]].send(value, 1 - stream[0], stream[1])
            sent[stream].append(value)

        def receive(stream: tuple[int, int]) -> None:
            into = torch.zeros(length_of(stream, len(got[stream])))
            call = made.members[1 - stream[0]].recv(into, *stream)
            got[stream].append((call, into))

        for sends, stream in data.draw(st.lists(steps, max_size=20)):
            (send if sends else receive)(stream)
        for stream in streams:
            while len(sent[stream]) < len(got[stream]):
                send(stream)
            while len(got[stream]) < len(sent[stream]):
                receive(stream)
            for (call, into), value in zip(got[stream], sent[stream], strict=True):
                call.result()
                assert torch.equal(into, value)


def test_tags_that_grow_for_ever_leave_no_threads() -> None:
    """Each stream would wait for a second message; only a few do."""
    with office("files-shaped", 2) as made:
        zero, one = made.members
        for tag in range(100):
            zero.send(numbered(tag, 2), 1, tag).result()
            one.recv(into := torch.zeros(2), 0, tag).result()
            assert into.tolist() == [tag, tag]
            # Of two members: those that wait ahead, and those that are kept for the next work;
            # others may be about to end.
            eventually(lambda: len(threads()) <= 8 + 2 * 8, "the others end")
