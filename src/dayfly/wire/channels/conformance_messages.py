"""Messages of the conformance suite of channels: what is put is got, by whoever waits for it.

See `conformance`. A place costs connections to a server or a directory of its own, so cases that
need nothing of each other share one, each under the key of another step.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Protocol

import pytest
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.kind import ChannelSpec, Site
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, HEADER_BYTES, Key
from dayfly.wire.message import DTYPES, Header, as_bytes
from dayfly.wire.stores.files import FileStore

Connect = Callable[..., Channel]

#: Seconds until a test is hung rather than slow; nothing waits that long when all is well.
SOON_S = 30.0
NAMESPACE = Namespace("run", 0)
#: Ranks that may send in the suite.
SENDERS = 12
#: Of the suite's coordinator.
TOKEN = "5e" * 32


class ChannelPlace(Protocol):
    """Where the suite makes and opens one channel.

    Attributes:
        asks_each: whether `Channel.stored` costs a request for each key.
        servers: how many share the messages; it may be missing, and is 1 then.
    """

    asks_each: bool

    def make(self, namespace: Namespace) -> AbstractContextManager[Channel]:
        """Returns the coordinator's end of a new channel, with `SENDERS` ranks."""

    def open(self, namespace: Namespace, reader: int) -> Channel:
        """Returns the channel as the worker `reader` opens it, once it was made."""

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        """Returns a stored message, header and payload, as it lies there."""

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        """Stores these bytes under a key, whatever they are."""

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        """From now on readers in this process wake by events alone, not by looking again."""


@dataclass(frozen=True)
class URLPlace(ChannelPlace):
    """The place of a channel that is registered, by its URL.

    Override `raw` and `plant` so that the tests of damaged and forged messages run, too.

    Attributes:
        url: of the channel; the place is empty, and its own.
        rendezvous: directory in which workers and coordinator find each other.
        asks_each: see `ChannelPlace`.
    """

    url: str
    rendezvous: Path
    asks_each: bool = False

    def site(self, namespace: Namespace) -> Site:
        """Returns what both ends of the channel are given."""
        store = FileStore(self.rendezvous / namespace.run)
        return Site(url=self.url, namespace=namespace, rendezvous=store, token=TOKEN)

    def make(self, namespace: Namespace) -> AbstractContextManager[Channel]:
        spec = ChannelSpec(senders=SENDERS, budget_bytes=64 * 2**20, ahead_bytes=2**18)
        return channel_kind(self.url).create(self.site(namespace), spec)

    def open(self, namespace: Namespace, reader: int) -> Channel:
        return channel_kind(self.url).open(self.site(namespace), reader)

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        pytest.skip("this place has no way past the channel: override raw and plant")

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        pytest.skip("this place has no way past the channel: override raw and plant")

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        return None


@contextmanager
def connecting(place: ChannelPlace) -> Iterator[Connect]:
    """Opens channels at a place: `connect(reader=1, namespace=...)`, made if it was not yet.

    They are closed at the end. With `again=True` a place is made anew after it was destroyed.
    """
    made: set[Namespace] = set()
    with ExitStack() as stack:

        def connect(
            reader: int = 0, namespace: Namespace = NAMESPACE, *, again: bool = False
        ) -> Channel:
            if again or namespace not in made:
                stack.enter_context(place.make(namespace))
                made.add(namespace)
            return stack.enter_context(place.open(namespace, reader))

        yield connect


def tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor whose elements tell their positions, as far as the type can."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 119 - 3).to(dtype).reshape(shape)


def put(channel: Channel, key: Key, value: torch.Tensor, operation: str | None = None) -> bool:
    """Put a tensor under its key, by default with the header that its reader expects."""
    header = Header(operation or key.operation, value.dtype, tuple(value.shape))
    return channel.put(key, header, as_bytes(value))


KEY = Key(7, "grad-part", 1, 0)


def at(step: int) -> Key:
    """The same key in another step."""
    return replace(KEY, step=step)


SHAPES = [(), (0,), (1,), (5,), (3, 0, 2), (2, 3), (1, 2, 1, 2, 1, 2, 1, 2), (70_001,)]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "payload": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
    "seal": lambda raw: raw[:120] + bytes([raw[120] ^ 1]) + raw[121:],
    "kind of seal": lambda raw: raw[:7] + bytes([raw[7] ^ 1]) + raw[8:],
    "unused byte": lambda raw: raw[:97] + b"\1" + raw[98:],
    "cut by one": lambda raw: raw[:-1],
    "payload gone": lambda raw: raw[:HEADER_BYTES],
    "header cut": lambda raw: raw[: HEADER_BYTES - 1],
    "nothing": lambda raw: b"",
    "garbage": lambda raw: b"\xa5" * len(raw),
    "another version": lambda raw: raw[:4] + b"\1" + raw[5:],
}


SIZE = 100_000


KEYS = [Key(step, "race", 0, EVERYONE) for step in range(8)]


def put_all(channel: Channel, writer: int, barrier: threading.Barrier | Barrier) -> list[bool]:
    """Put every key when all others do too; whether each was stored."""
    mine = torch.full((SIZE,), writer, dtype=torch.int32)
    won = []
    for key in KEYS:
        barrier.wait(SOON_S)
        won.append(put(channel, key, mine))
    return won


def read_all(channel: Channel) -> list[set[int]]:
    """Get every key as soon as it is there; the writers whose numbers are in each."""
    got = torch.empty(SIZE, dtype=torch.int32)
    found = []
    for key in KEYS:
        channel.get(key, got, SOON_S)
        found.append(set(got.tolist()))
    return found


def check_one_winner(won: list[list[bool]], read: list[set[int]]) -> None:
    """Asserts that one writer stored each key, whom all readers saw."""
    for key, outcome, seen in zip(KEYS, zip(*won, strict=True), read, strict=True):
        winners = {writer for writer, stored in enumerate(outcome) if stored}
        assert len(winners) == 1, f"{key}: stored by {winners}"
        assert seen == winners, f"{key}: read {seen}, stored by {winners}"


class MessageConformance:
    """Messages arrive bit for bit, once; what a reader does not expect is refused."""

    @pytest.fixture
    def place(self) -> Iterator[ChannelPlace]:
        """An empty place of the channel."""
        raise NotImplementedError("give the suite a channel: override this fixture")

    @pytest.fixture
    def connect(self, place: ChannelPlace) -> Iterator[Connect]:
        """Opens channels at the place; see `connecting`."""
        with connecting(place) as connect:
            yield connect

    def test_every_dtype_arrives_with_the_same_bits(self, connect: Connect) -> None:
        writer, reader = connect(1), connect(0)
        for step, dtype in enumerate(DTYPES):
            key, sent = at(step), tensor((3, 50), dtype)
            assert put(writer, key, sent)
            got = torch.zeros_like(sent)
            reader.get(key, got, SOON_S)
            assert as_bytes(got) == as_bytes(sent), dtype

    def test_every_shape_arrives(self, connect: Connect) -> None:
        writer, reader = connect(1), connect(0)
        for step, shape in enumerate(SHAPES):
            key, sent = at(step), tensor(shape)
            assert put(writer, key, sent)
            got = torch.full(shape, -1.0)
            reader.get(key, got, SOON_S)
            assert torch.equal(got, sent), shape

    def test_bits_that_are_no_numbers_arrive(self, connect: Connect) -> None:
        bits = torch.tensor([0x7FC00001, 0x7F800001, -(2**31), 1], dtype=torch.int32)
        put(connect(1), KEY, bits.view(torch.float32))
        got = torch.zeros(4)
        connect(0).get(KEY, got, SOON_S)
        assert torch.equal(got.view(torch.int32), bits)

    def test_bytes_of_unknown_size_arrive(self, connect: Connect) -> None:
        worker, coordinator = connect(3), connect(COORDINATOR)
        for step, data in enumerate([b"", b"x", b"{}" * 40_000]):
            key = Key(step, "report", 3, COORDINATOR)
            assert worker.put_bytes(key, data)
            assert coordinator.get_bytes(key, SOON_S) == data

    def test_any_reader_and_step(self, connect: Connect) -> None:
        coordinator = connect(COORDINATOR)
        for destination in (0, 5, EVERYONE, COORDINATOR):
            reader = connect(max(destination, 0))
            for step in (0, FOREVER):
                key = Key(step, "note", COORDINATOR, destination)
                coordinator.put_bytes(key, b"hello")
                assert reader.get_bytes(key, SOON_S) == b"hello", key

    def test_what_is_held_is_the_message(self, connect: Connect) -> None:
        writer, reader = connect(1), connect(0)
        messages = [tensor(shape) for shape in SHAPES]
        messages += [tensor((2, 3), torch.bfloat16), tensor((70_001,), torch.uint8)]
        for step, sent in enumerate(messages):
            key, header = at(step), Header(KEY.operation, sent.dtype, tuple(sent.shape))
            assert put(writer, key, sent)
            before = reader.traffic.bytes_down
            held, _ = reader.fetch(key, header, SOON_S)
            assert held.dtype == sent.dtype
            assert torch.equal(held, sent), header
            assert reader.traffic.bytes_down - before == HEADER_BYTES + sent.nbytes
            if reader.abilities.direct:  # freed, as its one reader has read it
                assert reader.stored([key]) == set()
                assert put(writer, key, sent)
            by_copy, _ = Channel.fetch(reader, key, header, SOON_S)
            assert torch.equal(by_copy, sent), header

    def test_what_cannot_be_held_is_named(self, connect: Connect) -> None:
        channel = connect(0)
        header = Header(KEY.operation, torch.float32, (4,))
        with pytest.raises(WaitTimeout, match=f"{KEY} .*0.01 s"):
            channel.fetch(KEY, header, 0.01)
        put(connect(1), KEY, tensor((5,)))
        with pytest.raises(WireError, match=rf"^{KEY}: expected .*\[4\], found .*\[5\]"):
            channel.fetch(KEY, header, SOON_S)

    def test_a_message_stays_after_it_was_read(self, connect: Connect) -> None:
        """Until it is dropped; over direct channels, until all of its readers have read it."""
        reader = connect(0)
        put(connect(1), KEY, tensor((4,)))
        for _ in range(1 if reader.abilities.direct else 2):
            got = torch.zeros(4)
            reader.get(KEY, got, SOON_S)
            assert torch.equal(got, tensor((4,)))
        assert reader.stored([KEY]) == (set() if reader.abilities.direct else {KEY})

    def test_a_missing_message_is_named_with_the_time(self, connect: Connect) -> None:
        channel = connect(0)
        for timeout_s in (0, 0.01):
            with pytest.raises(WaitTimeout, match=f"{KEY} .*{timeout_s:g} s"):
                channel.get(KEY, torch.zeros(4), timeout_s)
            with pytest.raises(WaitTimeout, match=f"{KEY} .*{timeout_s:g} s"):
                channel.get_bytes(KEY, timeout_s)

    def test_another_message_is_refused(self, connect: Connect) -> None:
        writer, reader = connect(1), connect(0)
        others = [
            (tensor((4,)), "other", "other float32[4]"),
            (tensor((4,), torch.int32), "grad-part", "grad-part int32[4]"),
            (tensor((2, 2)), "grad-part", "grad-part float32[2, 2]"),
            (tensor((5,)), "grad-part", "grad-part float32[5]"),
            (tensor(()), "grad-part", "grad-part float32[]"),
        ]
        for step, (sent, operation, found) in enumerate(others):
            put(writer, at(step), sent, operation)
            expected = f"{at(step)}: expected grad-part float32[4], found {found}"
            with pytest.raises(WireError, match=re.escape(expected)):
                reader.get(at(step), torch.zeros(4), SOON_S)

    def test_get_bytes_refuses_what_is_not_bytes(self, connect: Connect) -> None:
        writer, reader = connect(1), connect(0)
        others = [
            (tensor((4,)), "grad-part"),
            (tensor((2, 2), torch.uint8), "grad-part"),
            (tensor((4,), torch.uint8), "other"),
        ]
        for step, (sent, operation) in enumerate(others):
            put(writer, at(step), sent, operation)
            expected = f"{at(step)}: expected grad-part of bytes, found {operation} "
            with pytest.raises(WireError, match=expected):
                reader.get_bytes(at(step), SOON_S)

    def test_a_damaged_message_is_refused(self, connect: Connect, place: ChannelPlace) -> None:
        """By each way to read it, which leaves it there for the next one."""
        writer, reader = connect(1), connect(0)
        sent = tensor((8,), torch.uint8)
        header = Header(KEY.operation, torch.uint8, (8,))
        ways: tuple[Callable[[Key], object], ...] = (
            lambda key: reader.get(key, torch.zeros_like(sent), SOON_S),
            lambda key: reader.get_bytes(key, SOON_S),
            lambda key: reader.fetch(key, header, SOON_S),
        )
        for step, (damage, damaged) in enumerate(DAMAGE.items()):
            key = at(step)
            put(writer, key, sent)
            whole = place.raw(NAMESPACE, key)
            writer.drop([key])
            assert writer.stored([key]) == set()  # now it is gone, also for others
            place.plant(NAMESPACE, key, damaged(whole))
            for read in ways:
                with pytest.raises(WireError, match=f"^{key}: ") as refused:
                    read(key)
                said = str(refused.value)
                # Either what was expected and found, or that its seal is wrong.
                sealed = "not authentic" if reader.abilities.authenticated else "checksum"
                named = ("expected" in said and "found" in said) or said.count(sealed) == 1
                assert named, f"{damage}: {said}"
                assert not isinstance(refused.value, WaitTimeout), damage

    def test_the_second_put_changes_nothing(self, connect: Connect) -> None:
        channel, key = connect(0), KEYS[0]
        assert put(channel, key, torch.full((4,), 1.0)) is True
        assert put(channel, key, torch.full((4,), 2.0)) is False
        assert put(connect(1), key, torch.full((9,), 3.0)) is False
        got = torch.zeros(4)
        channel.get(key, got, SOON_S)
        assert got.tolist() == [1.0] * 4

    def test_a_dropped_key_can_be_put_again(self, connect: Connect) -> None:
        channel, key = connect(0), KEYS[0]
        assert put(channel, key, torch.full((4,), 1.0))
        channel.drop([key])
        assert put(channel, key, torch.full((4,), 2.0))

    @pytest.mark.long
    def test_eight_threads_race(self, connect: Connect) -> None:
        """Two threads on each of four channels, so both within one channel and between them."""
        channels = [connect(rank) for rank in range(4)]
        barrier = threading.Barrier(8)
        with ThreadPoolExecutor(9) as pool:
            races = [
                pool.submit(put_all, channels[writer % 4], writer, barrier) for writer in range(8)
            ]
            read = pool.submit(read_all, connect(9))
            check_one_winner([race.result(SOON_S) for race in races], read.result(SOON_S))
