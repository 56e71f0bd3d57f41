"""The Redis channel alone: what it leaves in the server, what a put costs, and large messages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, put, tensor
from dayfly.wire.channels.kinds import Redis
from dayfly.wire.keys import COORDINATOR, EVERYONE, HEADER_BYTES, Key
from dayfly.wire.message import Header, as_bytes
from dayfly.wire.redis import connection as pools
from dayfly.wire.redis.connection import Connection
from dayfly.wire.redis.layout import PIECE_BYTES
from dayfly.wire.redis.resp import CommandPart
from dayfly.wire.redis.server import RedisAddress, Secret
from tests.channels.kit import eventually, handles
from tests.channels.redis_place import RedisPlace, redis_place

KEY = Key(3, "a", 1, 0)
LARGE = tensor((PIECE_BYTES * 5 // 2,), torch.uint8)


@pytest.fixture
def place() -> Iterator[RedisPlace]:
    with redis_place() as place:
        yield place


def bytes_in_pieces(place: RedisPlace) -> list[int]:
    with place.client() as client:
        entries = client.xrange(place.layout().stream(KEY.mailbox, KEY.name))
    return [len(fields[b"m"]) for _, fields in entries]


SIZES = [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, LARGE.nbytes]


@pytest.mark.parametrize("size", SIZES)
def test_every_size_arrives_whole_in_pieces(place: RedisPlace, size: int) -> None:
    whole = tensor((size + 3,), torch.uint8)
    with place.make(NAMESPACE) as coordinators, place.open(NAMESPACE, 0) as channel:
        sent = whole[3:]
        assert put(channel, KEY, sent)
        got = torch.zeros(size + 1, dtype=torch.uint8)[1:]
        channel.get(KEY, got, SOON_S)
        held, _ = channel.fetch(KEY, Header("a", torch.uint8, (size,)), SOON_S)
        assert torch.equal(got, sent)
        assert torch.equal(held, sent)
        assert channel.get_bytes(KEY, SOON_S) == sent.numpy().tobytes()
        pieces = bytes_in_pieces(place)
        assert sum(pieces) == HEADER_BYTES + size == coordinators.size_bytes()
        assert max(pieces) <= HEADER_BYTES + PIECE_BYTES
        cost = Redis().cost(size)
        traffic = channel.traffic
        assert (traffic.puts, traffic.gets) == (cost.puts, 3 * cost.gets)
        assert (traffic.bytes_up, traffic.bytes_down) == (cost.bytes_up, 3 * cost.bytes_down)


def test_a_server_says_what_messages_take_of_its_cpu(place: RedisPlace) -> None:
    sent = torch.zeros(2 * PIECE_BYTES, dtype=torch.uint8)
    with place.make(NAMESPACE), place.open(NAMESPACE, 0) as channel:
        before = channel.served_s()
        for step in range(20):
            put(channel, Key(step, "a", 1, 0), sent)
        after = channel.served_s()
    assert before is not None
    assert after is not None
    assert after > before


@pytest.mark.parametrize(("first", "second"), [(1, 3), (3, 1), (2, 3), (3, 3)])
def test_no_piece_of_a_second_message_is_added(place: RedisPlace, first: int, second: int) -> None:
    sent = torch.full((first * PIECE_BYTES,), 1, dtype=torch.uint8)
    late = torch.full((second * PIECE_BYTES,), 2, dtype=torch.uint8)
    with place.make(NAMESPACE), place.open(NAMESPACE, 0) as channel:
        assert put(channel, KEY, sent)
        assert not put(channel, KEY, late)
        got = torch.zeros_like(sent)
        channel.get(KEY, got, SOON_S)
        assert torch.equal(got, sent)


@pytest.mark.parametrize("sent_share", [0.1, 0.5, 0.9, 0.999])
def test_a_writer_that_dies_half_way_stored_nothing(place: RedisPlace, sent_share: float) -> None:
    """Its connection ends before its message did: at any byte, readers see nothing of it."""
    with place.make(NAMESPACE), place.open(NAMESPACE, 0) as reader, place.client() as client:
        before = client.keys()
        header = Header("a", LARGE.dtype, tuple(LARGE.shape))
        header = header.seal(as_bytes(LARGE), KEY, place.site().authenticator)
        whole = b"".join(place.layout().put(KEY, header, as_bytes(LARGE), "word").parts)
        writer = Connection(RedisAddress.parse(place.url), Secret(variable=""))
        (number,) = writer.ask(("CLIENT", "ID"))

        def connected() -> bool:
            return str(number) in {one["id"] for one in client.client_list()}

        assert connected()
        writer.send([whole[: int(len(whole) * sent_share)]])
        writer.close()
        eventually(lambda: not connected(), "the server learns that it is gone")
        with pytest.raises(WaitTimeout):
            reader.get(KEY, torch.zeros_like(LARGE), 0)
        assert client.keys() == before
        assert put(reader, KEY, LARGE)


def test_a_put_and_a_get_are_one_packet_each(
    place: RedisPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the server is asked once for a message, however long it is waited for."""
    sent: list[Sequence[CommandPart]] = []
    send = Connection.send

    def counted(connection: Connection, parts: Sequence[CommandPart]) -> None:
        sent.append(parts)
        send(connection, parts)

    with (
        place.make(NAMESPACE),
        place.open(NAMESPACE, 0) as reader,
        place.open(NAMESPACE, 1) as writer,
        place.client() as client,
        ThreadPoolExecutor(1) as pool,
    ):
        place.only_events(monkeypatch)
        reader.stored([KEY])
        writer.stored([KEY])  # both are connected
        monkeypatch.setattr(Connection, "send", counted)
        got = torch.zeros_like(LARGE)
        waiter = pool.submit(reader.get, KEY, got, SOON_S)
        while not client.info("clients")["blocked_clients"]:
            assert not waiter.done()
        put(writer, Key(3, "b", 1, 0), LARGE)
        assert not waiter.done()
        put(writer, KEY, LARGE)
        waiter.result(SOON_S)
        assert torch.equal(got, LARGE)
        assert len(sent) == 3
        assert client.info("commandstats")["cmdstat_xread"]["calls"] == 1


def test_every_key_expires_and_none_is_left_at_the_end(place: RedisPlace) -> None:
    with place.make(NAMESPACE) as coordinators, place.open(NAMESPACE, 0) as channel:
        for destination in (0, 1, EVERYONE, COORDINATOR):
            put(channel, Key(0, "a", 1, destination), LARGE)
            put(channel, Key(1, "a", 1, destination), tensor((5,)))
        expiries = place.expiries_s()
        assert len(expiries) == 1 + 1 + 4 + 8  # lives; mailboxes; each mailbox; each message
        assert all(0 < left_s <= 24 * 3600 for left_s in expiries.values())
        channel.trim(1)
        channel.drop([Key(1, "a", 1, 0)])
        coordinators.destroy()
        assert place.expiries_s() == {}
        with pytest.raises(WireError, match=f"^{KEY}: .* removed, or lost"):
            put(channel, KEY, LARGE)
        assert place.expiries_s() == {}
    with place.client() as client:
        assert client.dbsize() == 0


def test_what_a_killed_coordinator_left_is_removed_by_the_next(place: RedisPlace) -> None:
    left = [place.make(Namespace("run", generation)) for generation in range(3)]
    for channel in left:
        put(channel, KEY, LARGE)
        channel.close()
    with place.make(Namespace("other", 0)) as other:
        put(other, KEY, tensor((5,)))
        with pytest.raises(WireError, match="holds messages of run run already"):
            place.make(Namespace("run", 1))
        Redis().remove(place.site())
        assert all("{other}" in key for key in place.expiries_s())
        assert other.stored([KEY]) == {KEY}
        Redis().remove(place.site())
        with place.make(Namespace("run", 1)) as anew:
            assert anew.stored([KEY]) == frozenset()


def test_a_removal_that_was_killed_is_finished_by_the_next(place: RedisPlace) -> None:
    """Once a life is marked as ended, nobody puts into it, and it can still be found."""
    with place.make(NAMESPACE) as channel, place.client() as client:
        put(channel, KEY, tensor((5,)))
        life = place.layout().life
        client.hset("dayfly:{run}", "000000", f"-{life}")
        with pytest.raises(WireError, match="removed, or lost"):
            put(channel, Key(4, "a", 1, 0), tensor((5,)))
        Redis().remove(place.site())
        assert client.dbsize() == 0


def test_one_that_was_made_again_takes_nothing_of_an_earlier_life(place: RedisPlace) -> None:
    with place.make(NAMESPACE), place.open(NAMESPACE, 0) as late:
        Redis().remove(place.site())
        with place.make(NAMESPACE) as channel:
            put(channel, KEY, tensor((5,)))
            with pytest.raises(WireError, match=f"^{KEY}: .* removed, or lost"):
                put(late, KEY, tensor((5,)))
            assert channel.stored([KEY]) == {KEY}
            with pytest.raises(WireError, match=f"^{KEY}: .* removed, or lost"):
                late.get(KEY, torch.zeros(5), SOON_S)


def test_a_message_that_cannot_be_written_is_not_noted(place: RedisPlace) -> None:
    """Here as something else has its key."""
    with place.make(NAMESPACE) as channel, place.client() as client:
        client.set(place.layout().stream(KEY.mailbox, KEY.name), "not a stream", ex=60)
        with pytest.raises(WireError, match=f"^{KEY}: redis at .* refuses: .*WRONGTYPE"):
            put(channel, KEY, tensor((5,)))
        assert list(channel.waiting(0)) == []


def test_what_was_not_made_cannot_be_opened(place: RedisPlace) -> None:
    with pytest.raises(WireError, match=r"^redis at .* has nothing of run run, generation 0: "):
        place.open(NAMESPACE, 0)


def test_many_are_trimmed_dropped_and_looked_for_at_once(place: RedisPlace) -> None:
    keys = [Key(step, "a", source, 0) for step in range(250) for source in range(10)]
    with place.make(NAMESPACE) as channel:
        for key in keys:
            channel.put_bytes(key, b"x")
        assert channel.stored(keys) == set(keys)
        assert list(channel.waiting(0)) == keys
        channel.trim(10)
        assert list(channel.waiting(0)) == keys[100:]
        channel.drop(keys[:2000])
        assert list(channel.waiting(0)) == keys[2000:]
        assert channel.size_bytes() == 500 * (HEADER_BYTES + 1)
        channel.destroy()
    assert place.expiries_s() == {}


def test_closing_ends_what_others_wait_for(
    place: RedisPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.only_events(monkeypatch)
    with (
        place.make(NAMESPACE),
        place.open(NAMESPACE, 0) as channel,
        place.client() as client,
        ThreadPoolExecutor(2) as pool,
    ):
        waiters = [pool.submit(channel.get, KEY, torch.zeros(5), SOON_S) for _ in range(2)]
        while client.info("clients")["blocked_clients"] < 2:
            pass
        channel.close()
        for waiter in waiters:
            with pytest.raises(WireError, match=f"^{KEY}: the channel at redis .* is closed"):
                waiter.result(SOON_S)
        with pytest.raises(WireError, match=f"^{KEY}: the channel at redis .* is closed"):
            put(channel, KEY, tensor((5,)))


def test_a_forked_channel_is_refused(place: RedisPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fork two processes would read from one connection, each the other's answers."""
    with place.make(NAMESPACE), place.open(NAMESPACE, 0) as channel:
        own = os.getpid()
        monkeypatch.setattr(pools.os, "getpid", lambda: own + 1)
        with pytest.raises(WireError, match=f"^{KEY}: .* opened by another process"):
            put(channel, KEY, tensor((5,)))


@pytest.mark.long
def test_closed_channels_leave_no_handles_and_threads(place: RedisPlace) -> None:
    before = handles()
    for generation in range(3):
        namespace = Namespace("run", generation)
        with place.make(namespace), place.open(namespace, 0) as channel:
            put(channel, KEY, tensor((4,)))
            channel.get(KEY, torch.zeros(4), SOON_S)
            with pytest.raises(WireError, match="expected"):
                channel.get(KEY, torch.zeros(5), SOON_S)
    assert not handles() - before
