"""A Redis server that goes away for a while costs the while; one that comes back empty is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from benchmarks.parts.redis_server import RedisServer

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels import redis as redis_channel
from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, put, tensor
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.redis import connection as connections
from dayfly.wire.redis.connection import Connection
from dayfly.wire.redis.resp import CommandPart
from tests.channels.redis_place import RedisPlace, redis_server

KEY = Key(3, "a", 1, 0)
LARGE = tensor((3 * 2**20,), torch.uint8)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def place(server: RedisServer) -> RedisPlace:
    return RedisPlace(server.url)


@pytest.fixture
def coordinators(place: RedisPlace) -> Iterator[Channel]:
    with place.make(NAMESPACE) as channel:
        yield channel


@pytest.fixture
def tries(coordinators: Channel, monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released when a try of a request failed, as the server did not answer in time."""
    failed = threading.Semaphore(0)
    discard = connections.ConnectionPool._discard

    def told(pool: connections.ConnectionPool, connection: Connection | None) -> None:
        discard(pool, connection)
        failed.release()

    monkeypatch.setattr(connections.ConnectionPool, "_discard", told)
    # Short, so that the outage is: with these, an answer takes at most 0.3 s, a wait for it 0.5 s.
    monkeypatch.setattr(connections, "ANSWER_S", 0.3)
    monkeypatch.setattr(redis_channel, "_LOOK_EVERY_S", 0.2)
    monkeypatch.setattr(connections, "PATIENCE_S", SOON_S)
    return failed


def away_for(server: RedisServer, tries: threading.Semaphore, failures: int) -> None:
    """Until so many tries have failed."""
    for _ in range(failures):
        assert tries.acquire(timeout=SOON_S)
    connections.ANSWER_S = SOON_S  # from now on it is there, and may be slow
    server.resume()


def test_a_wait_outlives_an_outage(
    server: RedisServer, place: RedisPlace, tries: threading.Semaphore
) -> None:
    with (
        place.open(NAMESPACE, 0) as reader,
        place.open(NAMESPACE, 1) as writer,
        ThreadPoolExecutor(2) as pool,
    ):
        got = torch.zeros_like(LARGE)
        waiter = pool.submit(reader.get, KEY, got, SOON_S)
        server.pause()
        away_for(server, tries, 3)
        putter = pool.submit(put, writer, KEY, LARGE)
        assert putter.result(SOON_S)
        waiter.result(SOON_S)
        assert torch.equal(got, LARGE)


def test_an_outage_is_told_once_and_so_is_its_end(
    server: RedisServer,
    place: RedisPlace,
    tries: threading.Semaphore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with place.open(NAMESPACE, 0) as channel, ThreadPoolExecutor(3) as pool:
        monkeypatch.setattr(connections, "_SILENT_S", 0.0)
        server.pause()
        looks = [pool.submit(channel.stored, [KEY]) for _ in range(3)]
        away_for(server, tries, 6)
        assert [look.result(SOON_S) for look in looks] == [frozenset()] * 3
    where = f"dayfly: redis at {server.host}:{server.port}"
    told = [message for message in caplog.messages if message.startswith(where)]
    assert len(told) == 2
    assert told[0].endswith(f"; trying for {SOON_S:g} s")
    assert told[1] == f"{where} answers again"


def test_who_hears_late_that_it_was_away_has_no_news(
    place: RedisPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """Another asked no earlier, and was answered meanwhile."""
    with place.make(NAMESPACE) as channel:
        assert isinstance(channel, redis_channel.RedisChannel)
        asked_s = time.monotonic()
        channel.stored([KEY])
        channel._pool._tell(True, "does not answer", asked_s)
        assert caplog.messages == []
        channel._pool._tell(True, "does not answer", time.monotonic())
        assert len(caplog.messages) == 1


def test_a_short_wait_is_not_over_before_the_server_has_answered(
    server: RedisServer, place: RedisPlace, tries: threading.Semaphore
) -> None:
    """An outage is no reason to believe that a message is not there."""
    with (
        place.open(NAMESPACE, 0) as channel,
        ThreadPoolExecutor(1) as pool,
    ):
        put(channel, KEY, LARGE)
        server.pause()
        got = torch.zeros_like(LARGE)
        waiter = pool.submit(channel.get, KEY, got, 0.01)
        away_for(server, tries, 2)
        waiter.result(SOON_S)
        assert torch.equal(got, LARGE)


@pytest.mark.parametrize("size", [5, LARGE.nbytes])
def test_puts_outlive_an_outage_and_are_stored_once(
    server: RedisServer,
    place: RedisPlace,
    coordinators: Channel,
    tries: threading.Semaphore,
    size: int,
) -> None:
    """Those that the server had received come to pass, and are tried again: first by its word."""
    with (
        place.open(NAMESPACE, 0) as channel,
        ThreadPoolExecutor(4) as pool,
    ):
        keys = [Key(step, "a", 1, 0) for step in range(4)]
        assert channel.stored(keys) == frozenset()
        server.pause()
        putters = [pool.submit(put, channel, key, LARGE[:size]) for key in keys]
        away_for(server, tries, 6)
        assert [putter.result(SOON_S) for putter in putters] == [True] * 4
        assert list(coordinators.waiting(0)) == keys
        assert coordinators.size_bytes() == 4 * (128 + size)
        assert (channel.traffic.puts, channel.traffic.bytes_up) == (4, 4 * (128 + size))
        for key in keys:
            assert channel.get_bytes(key, SOON_S) == LARGE[:size].numpy().tobytes()


@pytest.mark.parametrize("other_was_first", [False, True])
def test_a_put_whose_answer_was_lost_knows_whose_message_is_there(
    place: RedisPlace, monkeypatch: pytest.MonkeyPatch, other_was_first: bool
) -> None:
    send = Connection.send

    def lost(connection: Connection, parts: Sequence[CommandPart]) -> None:
        send(connection, parts)
        connection.reader.value()  # it was carried out
        while connection.reader.value() == "QUEUED":
            pass
        monkeypatch.setattr(Connection, "send", send)
        raise ConnectionResetError("injected")

    with place.make(NAMESPACE) as other, place.open(NAMESPACE, 0) as channel:
        channel.stored([KEY])
        if other_was_first:
            put(other, KEY, tensor((7,)))
        monkeypatch.setattr(Connection, "send", lost)
        assert put(channel, KEY, tensor((5,))) is not other_was_first
        assert channel.size_bytes() == 128 + 4 * (7 if other_was_first else 5)
        assert channel.traffic.bytes_up == (0 if other_was_first else 148)


def test_one_that_stays_away_is_named_with_the_time(
    server: RedisServer, place: RedisPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE_S", 0.2)
    with place.make(NAMESPACE) as channel:
        put(channel, KEY, tensor((5,)))
        server.kill()
        where = f"redis at {server.host}:{server.port}"
        says = rf"{where} has not answered for 0\.2 s \(the last try: \w+Error"
        acts: list[Callable[[], object]] = [
            lambda: put(channel, KEY, tensor((5,))),
            lambda: channel.get(KEY, torch.zeros(5), SOON_S),
            lambda: channel.get_bytes(KEY, 0),
        ]
        for act in acts:
            with pytest.raises(WireError, match=f"^{KEY}: {says}") as failed:
                act()
            assert not isinstance(failed.value, WaitTimeout)
        others: list[Callable[[], object]] = [
            lambda: channel.waiting(COORDINATOR),
            lambda: channel.stored([KEY]),
            lambda: channel.drop([KEY]),
            lambda: channel.trim(5),
            channel.size_bytes,
            channel.destroy,
        ]
        for act in others:
            with pytest.raises(WireError, match=f"^[a-z]+ing.*: {says}"):
                act()


def test_one_that_comes_back_empty_has_lost_the_run(server: RedisServer, place: RedisPlace) -> None:
    """Whoever waits, puts or looks is told, whether they were connected or not."""
    with (
        place.make(NAMESPACE) as coordinators,
        place.open(NAMESPACE, 0) as channel,
        ThreadPoolExecutor(1) as pool,
    ):
        put(channel, KEY, tensor((5,)))
        waiter = pool.submit(channel.get, Key(9, "a", 1, 0), torch.zeros(5), SOON_S)
        server.kill()
        server.start()
        says = f"redis at .*:{server.port} has nothing of run run any more: .* lost as the server"
        with pytest.raises(WireError, match=f"^a of step 9 .*: {says}"):
            waiter.result(SOON_S)
        acts: list[Callable[[], object]] = [
            lambda: put(channel, KEY, tensor((5,))),
            lambda: channel.get(KEY, torch.zeros(5), SOON_S),
            lambda: coordinators.waiting(COORDINATOR),
        ]
        for act in acts:
            with pytest.raises(WireError, match=says):
                act()
        assert place.expiries_s() == {}
        with pytest.raises(WireError, match=r"nothing of run run, generation 0: .* has lost it"):
            place.open(NAMESPACE, 0)


def test_one_that_is_still_loading_is_waited_for(
    place: RedisPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that started again from its disk answers LOADING for a while."""
    value = connections.Reader.value
    left = ["LOADING Redis is loading the dataset in memory"] * 2

    def loading(reader: connections.Reader, depth: int = 0) -> object:
        found = value(reader, depth)
        return connections.ReplyError(left.pop()) if left else found

    with place.make(NAMESPACE) as channel:
        monkeypatch.setattr(connections.Reader, "value", loading)
        monkeypatch.setattr(connections.Reader, "begins", lambda reader, known: False)
        assert put(channel, KEY, tensor((5,)))
        assert left == []


def opened(place: RedisPlace) -> Channel:
    return place.open(NAMESPACE, 0)


def test_a_worker_that_starts_during_an_outage_waits_for_its_end(
    server: RedisServer, place: RedisPlace, coordinators: Channel, tries: threading.Semaphore
) -> None:
    with ThreadPoolExecutor(1) as pool:
        put(coordinators, KEY, tensor((5,)))
        server.pause()
        opening = pool.submit(opened, place)
        away_for(server, tries, 2)
        with opening.result(SOON_S) as late:
            assert late.stored([KEY]) == {KEY}
