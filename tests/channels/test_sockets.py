"""A server of sockets among strangers: what they say is refused, and costs next to nothing."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.conformance import SOON_S
from dayfly.wire.keys import Key
from dayfly.wire.sockets import protocol, server
from dayfly.wire.sockets.client import Address, Client
from dayfly.wire.sockets.mailboxes import Receive, receive_unknown
from dayfly.wire.sockets.protocol import Asked, ServerRequest, Unreachable
from dayfly.wire.sockets.server import Server
from dayfly.wire.sockets.table import MessageTable
from tests.channels.kit import eventually, eventually_only, handles

TOKEN, AUDIENCE = "ab" * 32, "run/0/server"
KEY = Key(3, "grad-part", 1, 0)


@pytest.fixture
def served() -> Iterator[Server]:
    table = MessageTable(lambda key: {key.destination}, limit_bytes=2**20, full="do something")
    with Server(table, host="127.0.0.1", token=TOKEN, audience=AUDIENCE) as one:
        yield one


def client_of(one: Server, token: str = TOKEN, audience: str = AUDIENCE, rank: int = 0) -> Client:
    return Client(Address(host=one.host, port=one.port, audience=audience), token, rank)


def introduced(one: Server) -> socket.socket:
    """A connection of somebody who knows the token, and then says what he likes."""
    connection = socket.create_connection((one.host, one.port), SOON_S)
    protocol.prepare(connection)
    protocol.introduce(connection, TOKEN, AUDIENCE, 0)
    return connection


def hung_up(connection: socket.socket) -> bool:
    connection.settimeout(SOON_S)
    try:
        return connection.recv(4096) == b""
    except ConnectionError:
        return True


@given(
    st.integers(0, 10**9 - 1),
    st.from_regex(r"[a-z][a-z0-9-]{0,39}", fullmatch=True),
    st.integers(-3, 2**31 - 1),
    st.integers(-3, 2**31 - 1),
)
@pytest.mark.long
def test_keys_travel(step: int, operation: str, source: int, destination: int) -> None:
    key = Key(step, operation, source, destination)
    assert protocol.unpack_keys(protocol.pack_keys([key, key])) == [key, key]


@pytest.mark.parametrize("raw", [b"x", bytes(52), b"\xff" * 52, bytes(53), b"a" * 104])
def test_what_are_no_keys_is_refused(raw: bytes) -> None:
    with pytest.raises(WireError, match="no keys"):
        protocol.unpack_keys(raw)


@pytest.mark.parametrize(
    ("token", "audience"), [("cd" * 32, AUDIENCE), (TOKEN, "run/1/server"), ("", AUDIENCE)]
)
def test_a_wrong_token_or_namespace_is_refused(served: Server, token: str, audience: str) -> None:
    with client_of(served, token, audience) as stranger:
        with pytest.raises(Unreachable, match="refused this run's token"):
            stranger.put(KEY, b"x")
        with pytest.raises(Unreachable, match="refused this run's token"):
            stranger.destroy()
    with client_of(served) as friend:
        assert friend.stored([KEY]) == set()
        assert friend.put(KEY, b"x")


def test_the_token_does_not_travel(served: Server) -> None:
    """Who listens at an address that was a run's learns nothing, and is noticed."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def pretend() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"dayfly sockets 1" + bytes(32))
                while len(heard) < 68:
                    heard.extend(connection.recv(68))
                connection.sendall(bytes(32))

        thief = pool.submit(pretend)
        port = listener.getsockname()[1]
        address = Address(host="127.0.0.1", port=port, audience=AUDIENCE)
        with Client(address, TOKEN, 0) as client, pytest.raises(WireError, match="does not know"):
            client.put(KEY, b"secret")
        thief.result(SOON_S)
    assert TOKEN.encode() not in heard
    assert bytes.fromhex(TOKEN) not in heard


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n" * 10, b"\xff" * 68, b"", b"x", b"\0" * 100_000],
    ids=["http", "ones", "nothing", "a byte", "zeros"],
)
def test_garbage_instead_of_a_hello(served: Server, said: bytes) -> None:
    with socket.create_connection((served.host, served.port), SOON_S) as stranger:
        stranger.settimeout(SOON_S)
        got = b""
        while len(got) < 48:
            got += stranger.recv(48)
        try:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # hung up before it was all said
        assert hung_up(stranger)
    with client_of(served) as friend:
        assert friend.size_bytes() == 0


LENGTHS = {
    "longer than allowed": ServerRequest(Asked.PUT, key=KEY, length=2**63).pack(),
    "too many keys": ServerRequest(Asked.STORED, length=2**35).pack(),
    "no operation": b"\x63" + ServerRequest(Asked.SIZE).pack()[1:],
    "a wait without end": ServerRequest(Asked.GET, key=KEY, seconds=float("inf")).pack(),
    "a wait that is no number": ServerRequest(Asked.GET, key=KEY, seconds=float("nan")).pack(),
    "a key that is none": ServerRequest(Asked.GET).pack()[:-52] + b"\xff" * 52,
    "an operation that is none": struct.pack("<B7xqdQI40sii", 2, 0, 0.0, 0, 1, b"../../x", 0, 1),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_absurd_requests_end_their_connection(
    served: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Of one that knows the token, even; and nothing of that size is allocated."""
    sizes: list[int] = []
    real = np.empty
    monkeypatch.setattr(server.np, "empty", lambda n, *rest: sizes.append(n) or real(n, *rest))
    with closing(introduced(served)) as connection:
        connection.sendall(LENGTHS[name])
        assert hung_up(connection)
    assert sizes == []
    with client_of(served) as friend:
        assert friend.put(KEY, b"x")


def test_a_length_beyond_the_limit_is_refused_before_it_is_allocated(
    served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = np.empty
    monkeypatch.setattr(server.np, "empty", lambda n, *rest: sizes.append(n) or real(n, *rest))
    with client_of(served) as friend:
        with pytest.raises(WireError, match=r"no room for 2\.0 MiB.* of 1\.0 MiB; do something"):
            friend.put(KEY, bytes(2**21))
        assert sizes == []
        assert friend.put(KEY, bytes(2**10))
        assert sizes == [2**10]


def test_a_message_that_breaks_off_is_not_there(served: Server) -> None:
    with closing(introduced(served)) as connection:
        connection.sendall(ServerRequest(Asked.PUT, key=KEY, length=1000).pack() + bytes(999))
    with client_of(served) as friend:
        eventually(lambda: friend.size_bytes() == 0, "its room is given back")
        assert friend.stored([KEY]) == set()


def test_many_strangers_who_say_nothing_do_not_keep_friends_out(
    served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are waited for so long, and so many at once."""
    monkeypatch.setattr(protocol, "HELLO_S", 0.2)
    strangers = [
        socket.create_connection((served.host, served.port), SOON_S)
        for _ in range(server._STRANGERS + 10)
    ]
    try:
        for stranger in strangers[: server._STRANGERS]:
            assert stranger.recv(1), "it is waited for"
        monkeypatch.setattr(protocol, "HELLO_S", SOON_S)  # who comes now may be slow to say it
        with client_of(served) as friend:
            assert friend.put(KEY, b"x")
    finally:
        for stranger in strangers:
            stranger.close()


def test_a_reader_that_did_not_get_it_whole_asks_again(served: Server) -> None:
    """What is freed by reading is freed when its reader says so, not when it was sent."""

    def cut(receive: Receive, length: int) -> bytes:
        receive(memoryview(bytearray(3)))
        raise WireError("cut")

    with client_of(served) as friend:
        assert friend.put(KEY, b"message")
        for _ in range(2):
            with pytest.raises(WireError, match="cut"):
                friend.get(KEY, 0, cut)
        assert friend.get(KEY, 0, receive_unknown)[0] == b"message"
        assert friend.stored([KEY]) == set()
        with pytest.raises(WaitTimeout):
            friend.get(KEY, 0, receive_unknown)


def test_an_idle_connection_that_broke_is_made_anew(served: Server) -> None:
    with client_of(served) as friend:
        assert friend.put(KEY, b"x")
        (idle,) = friend._idle
        idle.shutdown(socket.SHUT_RDWR)
        assert friend.stored([KEY]) == {KEY}


@pytest.mark.parametrize("end", ["server", "client"])
@pytest.mark.long
def test_who_waits_is_woken_by_either_end(end: str) -> None:
    before = handles()
    table = MessageTable(lambda key: None, limit_bytes=2**20, full="")
    with (
        Server(table, host="127.0.0.1", token=TOKEN, audience=AUDIENCE) as one,
        client_of(one) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        waits = pool.submit(client.get, KEY, SOON_S, receive_unknown)
        eventually(lambda: KEY in table._waiters, "it waits")
        (one if end == "server" else client).close()
        says = "closed the connection" if end == "server" else "this end was closed"
        with pytest.raises(Unreachable, match=says):
            waits.result(SOON_S)
    eventually_only(before)


def test_a_full_table_waits_for_its_readers() -> None:
    table = MessageTable(lambda key: {0, 1}, limit_bytes=100, patience_s=SOON_S, full="")
    table.put(KEY, bytes(60))
    message = table.wait(KEY, 0)
    assert message is not None
    done = threading.Event()
    waiter = threading.Thread(target=lambda: (table.reserve(60), done.set()))
    waiter.start()
    table.read(KEY, message, 0)
    assert not done.is_set()
    table.read(KEY, message, 1)
    assert done.wait(SOON_S)
    waiter.join()
    assert table.size_bytes() == 60


def test_a_table_that_stays_full_names_who_does_not_read() -> None:
    table = MessageTable(lambda key: {0, 4}, limit_bytes=100, patience_s=0.01, full="look at them")
    table.put(KEY, bytes(60))
    with pytest.raises(WireError, match=rf"after 0\.01 s.*not read: {KEY}, by 0, 4; look at them"):
        table.reserve(60)


def test_without_a_thread_to_be_had_others_are_served_later(
    served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = server.start_thread
    refused = [True, True]

    def scarce(*what: Any, **how: Any) -> threading.Thread:
        if refused and refused.pop():
            raise RuntimeError("can't start new thread")
        return start(*what, **how)

    monkeypatch.setattr(server, "start_thread", scarce)
    for _ in range(2):
        with closing(socket.create_connection((served.host, served.port), SOON_S)) as stranger:
            assert hung_up(stranger)
    with client_of(served) as client:
        assert client.put(KEY, b"x")
    refused.append(True)
    with pytest.raises(WireError, match=r"cannot serve at .*: can't start new thread"):
        Server(served.table, host="127.0.0.1", token=TOKEN, audience=AUDIENCE)
    served.close()  # joins no thread that never began


def test_a_mistake_of_the_server_is_told_to_its_caller(
    served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.set())
    monkeypatch.setattr(MessageTable, "stored", lambda table, keys: [].remove(keys))
    with client_of(served) as client:
        with pytest.raises(WireError, match="the server failed: ValueError"):
            client.stored([KEY])
        assert shown.wait(SOON_S)
        assert client.put(KEY, b"x")  # over a new connection


def test_an_acceptor_that_fails_closes_the_server(
    served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    with closing(introduced(served)) as connection:
        monkeypatch.setattr(server, "partial", lambda *what: [].remove(what))
        with closing(socket.create_connection((served.host, served.port), SOON_S)):
            assert hung_up(connection)
