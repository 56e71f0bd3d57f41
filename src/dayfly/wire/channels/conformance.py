"""The conformance suite of channels: derive from `ChannelConformance` and give it a place.

    class TestMine(ChannelConformance):
        @pytest.fixture
        def place(self, tmp_path):
            yield URLPlace("mine://somewhere/of/its/own", tmp_path)     # empty

The scheme of the URL has to be registered. pytest is needed here alone;
`pytest.register_assert_rewrite("dayfly.wire.channels.conformance_messages")` (and this module) in a
conftest.py shows values in failures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dayfly.errors import Forged, WaitTimeout, WireError
from dayfly.wire.authentication import Authenticator, new_token
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.conformance_messages import (
    KEY,
    NAMESPACE,
    SENDERS,
    SOON_S,
    TOKEN,
    ChannelPlace,
    Connect,
    MessageConformance,
    URLPlace,
    connecting,
    put,
    tensor,
)
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, HEADER_BYTES, Key
from dayfly.wire.message import Header, as_bytes, checksum

__all__ = [
    "NAMESPACE",
    "SENDERS",
    "SOON_S",
    "TOKEN",
    "ChannelConformance",
    "ChannelPlace",
    "Connect",
    "URLPlace",
    "connecting",
    "put",
    "tensor",
]

HERE = [
    Key(0, "a", 10, 0),
    Key(0, "a", 2, 0),
    Key(3, "a", 1, 0),
    Key(3, "b", 1, 1),
    Key(4, "a", EVERYONE, 0),
    Key(0, "sum", 1, EVERYONE),
    Key(3, "sum", 1, EVERYONE),
    Key(4, "sum", 1, EVERYONE),
    Key(FOREVER, "stop", COORDINATOR, EVERYONE),
    Key(FOREVER, "stop", COORDINATOR, 1),
    Key(0, "report", 1, COORDINATOR),
    Key(3, "report", 1, COORDINATOR),
]


SENT = tensor((3000,))
HEADER = Header(KEY.operation, SENT.dtype, tuple(SENT.shape))
RUN = NAMESPACE.run, NAMESPACE.generation
STOP = Key(FOREVER, "stop", COORDINATOR, EVERYONE)


def sealed(key: Key, by: Authenticator) -> bytes:
    """Returns the message that somebody sealed under a key."""
    return HEADER.seal(as_bytes(SENT), key, by) + bytes(as_bytes(SENT))


def flipped(raw: bytes, at: int) -> bytes:
    """Returns the bytes with one bit of byte `at` flipped."""
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


def forgeries(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """What a stranger may put in place of a message that he has seen."""
    own = Authenticator(TOKEN, *RUN)
    for at in (0, 4, 5, 6, 7, 8, 48, 97, 100, 111, 112, 127, 128, 2000, len(raw) - 1):
        yield f"bit of byte {at}", flipped(raw, at)
    yield "another payload", raw[:HEADER_BYTES] + bytes(len(raw) - HEADER_BYTES)
    yield "another token", sealed(KEY, Authenticator(new_token(), *RUN))
    yield "another generation", sealed(KEY, Authenticator(TOKEN, RUN[0], RUN[1] + 1))
    yield "another run", sealed(KEY, Authenticator(TOKEN, "other", RUN[1]))
    for field in ({"step": 8}, {"source": 2}, {"destination": 3}, {"operation": "grad-sum"}):
        other = Key(**{**{name: getattr(KEY, name) for name in Key.__slots__}, **field})
        yield f"another key: {field}", sealed(other, own)
    first, seed = HEADER.summed(SENT.nbytes)
    payload = as_bytes(SENT)
    yield "a checksum", first + checksum(payload, seed).to_bytes(8, "little") + bytes(payload)


def read_all(reader: Channel) -> Iterator[Callable[[], object]]:
    """Yields each way to read the message."""
    yield lambda: reader.get(KEY, torch.zeros_like(SENT), SOON_S)
    yield lambda: reader.fetch(KEY, HEADER, SOON_S)


def got(channel: Channel, key: Key, started: threading.Barrier) -> int:
    """Waits for a number, once all others wait, too."""
    into = torch.zeros(1, dtype=torch.int64)
    started.wait(SOON_S)
    channel.get(key, into, SOON_S)
    return int(into)


class ChannelConformance(MessageConformance):
    """The promises of `Channel`, one test a promise."""

    @pytest.fixture
    def shared(self, connect: Connect) -> Connect:
        """As `connect`, for channels that others can write to; others skip."""
        if not connect(0).abilities.authenticated:
            pytest.skip("its messages are in memory that is its user's alone")
        return connect

    def test_all_waiters_of_one_process_wake_up(
        self, connect: Connect, place: ChannelPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two waiters for one key, one for another, one for the mailbox of everyone; many rounds.

        (Where workers talk directly, a message to one rank is for one waiter: two for everyone's.)

        Readers do not look again by themselves, so one event that is missed fails the test.
        """
        place.only_events(monkeypatch)
        reader, writer = connect(0), connect(1)
        with ThreadPoolExecutor(4) as pool:
            for step in range(40):
                keys = [Key(step, "a", 1, 0), Key(step, "b", 1, 0), Key(step, "c", 1, EVERYONE)]
                started = threading.Barrier(5)
                twice = 2 if reader.abilities.direct else 0
                waiters = [pool.submit(got, reader, key, started) for key in (keys[twice], *keys)]
                started.wait(SOON_S)
                for turn in range(3):
                    number = (step + turn) % 3
                    put(writer, keys[number], torch.tensor([number]))
                assert [waiter.result(SOON_S) for waiter in waiters] == [twice, 0, 1, 2]

    def test_a_waiter_outlives_the_timeout_of_another(
        self, connect: Connect, place: ChannelPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever watches for all gives up: one of the others must take over."""
        place.only_events(monkeypatch)
        reader, writer = connect(0), connect(1)
        # A message to one rank is for one waiter.
        reader_rank = EVERYONE if reader.abilities.direct else 0
        with ThreadPoolExecutor(4) as pool:
            for step in range(5):
                key = Key(step, "a", 1, reader_rank)
                started = threading.Barrier(3)
                waiters = [pool.submit(got, reader, key, started) for _ in range(2)]
                started.wait(SOON_S)
                with pytest.raises(WaitTimeout):
                    reader.get(Key(step, "never", 1, 0), torch.zeros(1), 0.01)
                put(writer, key, torch.tensor([5]))
                assert [waiter.result(SOON_S) for waiter in waiters] == [5, 5]

    def test_waiters_of_different_channels_wake_up(
        self, connect: Connect, place: ChannelPlace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place.only_events(monkeypatch)
        readers, key = [connect(rank) for rank in range(3)], Key(0, "sum", 3, EVERYONE)
        started = threading.Barrier(4)
        with ThreadPoolExecutor(3) as pool:
            waiters = [pool.submit(got, reader, key, started) for reader in readers]
            started.wait(SOON_S)
            put(connect(3), key, torch.tensor([9]))
            assert [waiter.result(SOON_S) for waiter in waiters] == [9, 9, 9]

    def test_stored_tells_what_is_there(self, connect: Connect) -> None:
        channel = connect(0)
        assert channel.stored(HERE) == frozenset()
        for key in HERE[:4]:
            connect(1).put_bytes(key, b"x")
        assert channel.stored(HERE) == set(HERE[:4])
        assert channel.stored(iter(HERE[2:6])) == set(HERE[2:4])
        assert channel.stored([]) == frozenset()

    def test_waiting_lists_one_mailbox_in_order(self, connect: Connect) -> None:
        channel = connect(COORDINATOR)
        assert list(channel.waiting(COORDINATOR)) == []
        for key in reversed(HERE):
            connect(1).put_bytes(key, b"x")
        for destination in (0, 1, EVERYONE, COORDINATOR):
            expected = sorted(key for key in HERE if key.destination == destination)
            assert list(channel.waiting(destination)) == expected
        assert [key.source for key in channel.waiting(0)][:2] == [2, 10]  # by number, not by letter

    def test_drop_removes_its_keys_only(self, connect: Connect) -> None:
        channel = connect(0)
        for key in HERE[:6]:
            channel.put_bytes(key, b"x")
        channel.drop([HERE[0], HERE[5], HERE[9]])  # the last was never there
        assert channel.stored(HERE) == set(HERE[1:5])
        with pytest.raises(WaitTimeout):
            channel.get_bytes(HERE[0], 0)

    def test_trim_keeps_later_steps_forever_and_the_coordinators(self, connect: Connect) -> None:
        channel = connect(2)
        for key in HERE:
            channel.put_bytes(key, b"x")
        channel.trim(0)
        assert channel.stored(HERE) == set(HERE)
        channel.trim(4)
        kept = {key for key in HERE if key.step >= 4 or key.destination == COORDINATOR}
        assert channel.stored(HERE) == kept
        for beyond in (FOREVER, FOREVER + 1):
            channel.trim(beyond)
            kept = {key for key in HERE if key.step == FOREVER or key.destination == COORDINATOR}
            assert channel.stored(HERE) == kept

    def test_size_follows_the_messages(self, connect: Connect) -> None:
        channel = connect(0)
        assert channel.size_bytes() == 0
        put(channel, HERE[0], tensor((1000,)))
        put(channel, HERE[5], tensor((500,)))
        put(channel, HERE[5], tensor((500,)))  # lost: takes no room
        payload = 1500 * 4
        assert payload <= channel.size_bytes() <= payload + 2 * HEADER_BYTES
        assert connect(1).size_bytes() == channel.size_bytes()
        channel.drop([HERE[0]])
        assert 2000 <= channel.size_bytes() <= 2000 + HEADER_BYTES
        channel.trim(1)
        assert channel.size_bytes() == 0

    def test_runs_and_generations_do_not_see_each_other(self, connect: Connect) -> None:
        names = [Namespace("run", 0), Namespace("run", 1), Namespace("run-2", 0)]
        channels = [connect(0, name) for name in names]
        read, key = HERE[:2]
        for number, channel in enumerate(channels):
            assert channel.put_bytes(read, bytes([number]) * 10)
            assert channel.put_bytes(key, b"x")
        for number, channel in enumerate(channels):
            assert channel.get_bytes(read, SOON_S) == bytes([number]) * 10
        size = channels[2].size_bytes()
        channels[0].trim(1)
        channels[1].drop([read, key])
        assert [channel.stored([key]) for channel in channels] == [set(), set(), {key}]
        assert [channel.size_bytes() for channel in channels] == [0, 0, size]

    def test_destroy_removes_all_generations_of_its_run_only(self, connect: Connect) -> None:
        first, second = connect(0), connect(0, Namespace("run", 1))
        other = connect(0, Namespace("other", 0))
        for channel in (first, second, other):
            channel.put_bytes(HERE[0], b"x")
        second.destroy()
        second.destroy()
        assert connect(0, again=True).stored(HERE[:1]) == set()
        assert connect(0, Namespace("run", 1), again=True).stored(HERE[:1]) == set()
        assert other.stored(HERE[:1]) == {HERE[0]}

    def test_a_worker_that_outlives_its_run_is_told(self, connect: Connect) -> None:
        channel = connect(0)
        channel.put_bytes(HERE[0], b"x")
        channel.destroy()
        for key in (
            HERE[0],
            Key(0, "a", 0, 7),
        ):  # a mailbox that it knows, and one that it does not
            with pytest.raises(WireError, match=str(key)):
                channel.put_bytes(key, b"x")

    def test_traffic_is_counted_exactly(self, connect: Connect, place: ChannelPlace) -> None:
        def counted() -> tuple[int, int, int]:
            return channel.traffic.bytes_up, channel.traffic.bytes_down, channel.traffic.requests

        channel, key = connect(0), HERE[0]
        assert counted() == (0, 0, 0)
        put(channel, key, tensor((250,)))
        assert counted() == (HEADER_BYTES + 1000, 0, 1)
        put(channel, key, tensor((250,)))  # lost: asked, but nothing was stored
        assert counted() == (HEADER_BYTES + 1000, 0, 2)
        channel.get(key, torch.zeros(250), SOON_S)
        assert counted() == (HEADER_BYTES + 1000, HEADER_BYTES + 1000, 3)
        channel.put_bytes(HERE[1], b"12345")
        assert channel.get_bytes(HERE[1], SOON_S) == b"12345"
        assert counted() == (2 * HEADER_BYTES + 1005, 2 * HEADER_BYTES + 1005, 5)
        channel.stored(HERE)  # a request to each server, however many keys, or one for each
        requests = 5 + (len(HERE) if place.asks_each else getattr(place, "servers", 1))
        assert counted() == (2 * HEADER_BYTES + 1005, 2 * HEADER_BYTES + 1005, requests)
        assert (channel.traffic.puts, channel.traffic.gets) == (3, 2)  # a lost put was asked, too
        assert connect(0).traffic.requests == 0  # each channel counts its own

    def test_channels_may_be_closed_twice_and_the_messages_stay(self, connect: Connect) -> None:
        channel = connect(0)
        channel.put_bytes(HERE[0], b"x")
        channel.close()
        channel.close()
        assert connect(0).get_bytes(HERE[0], SOON_S) == b"x"

    def test_a_message_that_is_not_authentic_is_refused_and_named(
        self, shared: Connect, place: ChannelPlace
    ) -> None:
        writer, reader = shared(1), shared(0)
        assert put(writer, KEY, SENT)
        raw = place.raw(NAMESPACE, KEY)
        reader.get(KEY, torch.zeros_like(SENT), SOON_S)  # as it is
        writer.drop([KEY])
        assert writer.stored([KEY]) == set()
        refused_whole = 0
        for what, forged in forgeries(raw):
            place.plant(NAMESPACE, KEY, forged)
            for read in read_all(reader):
                with pytest.raises(WireError, match=rf"^{KEY}: ") as refused:
                    read()
                refused_whole += isinstance(refused.value, Forged)
                assert isinstance(refused.value, Forged) or "expected" in str(refused.value), what
            writer.drop([KEY])
            assert writer.stored([KEY]) == set()  # now it is gone, also for others
        assert refused_whole > 20

    def test_both_of_two_attempts_are_authentic_and_the_first_wins(
        self, shared: Connect, place: ChannelPlace
    ) -> None:
        first, second = SENT, SENT + 1
        writer = shared(1)
        assert put(writer, KEY, first)
        assert not put(shared(1), KEY, second)
        got = torch.zeros_like(SENT)
        shared(0).get(KEY, got, SOON_S)
        assert torch.equal(got, first)
        writer.drop([KEY])
        assert writer.stored([KEY]) == set()  # now it is gone, also for others
        assert put(shared(1), KEY, second)
        shared(0).get(KEY, got, SOON_S)
        assert torch.equal(got, second)

    def test_each_seal_has_a_nonce_of_its_own(self, shared: Connect, place: ChannelPlace) -> None:
        raws, writer = [], shared(1)
        for _ in range(2):
            put(writer, KEY, SENT)
            raws.append(place.raw(NAMESPACE, KEY))
            writer.drop([KEY])
            assert writer.stored([KEY]) == set()  # of another's dropping it would know later
        nonces = {raw[100:112] for raw in raws}
        tags = {raw[112:128] for raw in raws}
        assert len(nonces) == len(tags) == 2
        assert raws[0][:100] == raws[1][:100]

    def test_a_forged_note_says_nothing_and_a_true_one_takes_its_place(
        self, shared: Connect, place: ChannelPlace
    ) -> None:
        """A stranger who writes a wish to stop, or repeats another run's, stops nothing."""
        worker, coordinator = shared(0), shared(COORDINATOR)
        assert not worker.told(STOP)
        nothing = Header(STOP.operation, torch.uint8, (0,))
        stranger = Authenticator(new_token(), *RUN)
        for forged in (b"", nothing.seal(memoryview(b""), STOP, stranger)):
            place.plant(NAMESPACE, STOP, forged)
            assert worker.stored([STOP]) == {STOP}
            assert not worker.told(STOP)
            coordinator.drop([STOP])
            assert coordinator.stored([STOP]) == set()
        place.plant(NAMESPACE, STOP, nothing.seal(memoryview(b""), STOP, stranger))
        coordinator.tell(STOP)
        assert worker.told(STOP)
        coordinator.tell(STOP)  # again
        assert worker.told(STOP)
