"""Servers that a run cannot use, and workers who may not: told beforehand, without a secret."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch
from benchmarks.parts.redis_server import RedisOptions

from dayfly.errors import WireError
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, put, tensor
from dayfly.wire.channels.kinds import Redis
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.redis import connection as connections
from tests.channels.kit import kept_port
from tests.channels.redis_place import RedisPlace, redis_server

KEY = Key(3, "a", 1, 0)
SECRET = "open-sesame"
MIB = 2**20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tries again; but a server that is there may take its time."""
    monkeypatch.setattr(connections, "PATIENCE_S", 0.0)
    monkeypatch.setattr(connections, "CONNECT_S", SOON_S)


def assert_refused(place: RedisPlace, says: str) -> None:
    """By whoever touches the server first: whoever makes, removes or opens a channel."""
    acts: list[Callable[[], object]] = [
        lambda: place.make(NAMESPACE),
        lambda: Redis().remove(place.site()),
        lambda: place.open(NAMESPACE, 0),
    ]
    for act in acts:
        with pytest.raises(WireError, match=says) as refused:
            act()
        error: BaseException | None = refused.value
        while error is not None:
            assert SECRET not in f"{error!r} {error}"
            error = error.__cause__ or error.__context__


def assert_works(place: RedisPlace) -> None:
    with place.make(NAMESPACE) as channel, place.open(NAMESPACE, 0) as worker:
        large = tensor((3 * MIB,), torch.uint8)
        assert put(worker, KEY, large)
        got = torch.zeros_like(large)
        channel.get(KEY, got, SOON_S)
        assert torch.equal(got, large)
        assert SECRET not in "".join(place.expiries_s())
        assert SECRET not in repr([vars(channel), place.site()])
        channel.destroy()


def test_passwords() -> None:
    with redis_server(RedisOptions(password=SECRET)) as server:
        assert_works(RedisPlace(server.url, SECRET))
        assert_works(RedisPlace(server.url.replace("://", "://default@"), SECRET))
        assert_refused(RedisPlace(server.url), "needs a password: give it as DAYFLY_CHANNEL_PASS")
        wrong = "refuses the user name or the password of DAYFLY_CHANNEL_PASSWORD$"
        assert_refused(RedisPlace(server.url, f"{SECRET}!"), wrong)
        assert_refused(RedisPlace(server.url.replace("://", "://me@"), SECRET), wrong)


def test_users() -> None:
    with redis_server() as server, RedisPlace(server.url).client() as client:
        client.acl_setuser("me", enabled=True, passwords=f"+{SECRET}", keys="*", commands=["+@all"])
        client.acl_setuser(
            "guest", enabled=True, passwords=f"+{SECRET}", keys="*", commands=["+ping", "+hget"]
        )
        assert_works(RedisPlace(server.url.replace("://", "://me@"), SECRET))
        guest = RedisPlace(server.url.replace("://", "://guest@"), SECRET)
        with pytest.raises(WireError, match="does not permit this user what is needed"):
            guest.make(NAMESPACE)


def test_a_password_that_nobody_wants_is_refused() -> None:
    with redis_server() as server:
        place = RedisPlace(server.url, SECRET)
        assert_refused(place, r"wants no password: unset DAYFLY_CHANNEL_PASSWORD")


def test_databases_are_apart() -> None:
    with redis_server() as server:
        first = RedisPlace(server.url)
        other = RedisPlace(server.url[:-1] + "3")
        with first.make(NAMESPACE) as channel, other.make(NAMESPACE) as theirs:
            put(channel, KEY, tensor((5,)))
            assert theirs.stored([KEY]) == frozenset()
        assert_refused(RedisPlace(server.url[:-1] + "99"), "DB index is out of range")


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server(RedisOptions(tls=tmp_path, password=SECRET)) as server:
        place = RedisPlace(server.url, SECRET)
        assert_refused(place, "a certificate that is not trusted .*[?]ca=.*SSL_CERT_FILE")
        missing = RedisPlace(f"{server.url}?ca={tmp_path}/none", SECRET)
        assert_refused(missing, f"{tmp_path}/none cannot be read")
        plain = RedisPlace(server.url.replace("rediss", "redis"), SECRET)
        assert_refused(plain, "(cannot be reached|not as Redis does).* rediss://")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        with place.make(NAMESPACE) as channel:
            large = tensor((3 * MIB,), torch.uint8)
            assert put(channel, KEY, large)
            assert put(channel, Key(4, "a", 1, COORDINATOR), tensor((9,), torch.uint8))
            got = torch.zeros_like(large)
            channel.get(KEY, got, SOON_S)
            assert torch.equal(got, large)
            assert channel.get_bytes(Key(4, "a", 1, COORDINATOR), SOON_S)
        monkeypatch.delenv("SSL_CERT_FILE")
        Redis().remove(RedisPlace(f"{server.url}?ca={tmp_path}/cert.pem", SECRET).site())


@pytest.mark.long
def test_tls_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_S", 1.0)  # it may wait for more
    with redis_server() as server:
        place = RedisPlace(server.url.replace("redis", "rediss"))
        assert_refused(
            place, "(does not speak TLS: give|cannot be reached .* whether it is) redis://"
        )


class Talkative(BaseHTTPRequestHandler):
    """An HTTP server that repeats what it is told."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def http() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Talkative) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that answers so to whatever it is asked, and says no more."""
    over = threading.Event()

    def serve() -> None:
        connections = []
        while not over.is_set():
            connection, _ = server.accept()
            connections.append(connection)
            connection.recv(2**16)
            connection.sendall(answer)
        for connection in connections:
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            with socket.create_connection(server.getsockname()) as last:
                last.sendall(b"!")
                thread.join()


def test_what_is_not_redis_is_refused() -> None:
    says = "answers, but not as Redis does .*: check host and port"
    with http() as port:
        assert_refused(RedisPlace(f"redis://127.0.0.1:{port}", SECRET), says)
    for answer in (
        b"SSH-2.0-OpenSSH\r\n",
        b"J\0\0\0\n8.0.36\0",
        b"\x15\x03\x01\0\2",
        b"+OK\r\n:x\r\n",
        b"*3\r\n" + SECRET.encode(),
        SECRET.encode() + b"\r\n",
        b"$5\r\nabcdefg\r\n",
    ):
        with answering(answer) as port, pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections, "ANSWER_S", 0.2)
            place = RedisPlace(f"redis://127.0.0.1:{port}", SECRET)
            with pytest.raises(WireError, match=f"{says}|cannot be reached") as refused:
                place.make(NAMESPACE)
            assert SECRET not in str(refused.value)


def test_an_error_that_repeats_the_password_is_cleaned() -> None:
    with answering(b"-ERR you said " + SECRET.encode() + b"\r\n" * 3) as port:
        place = RedisPlace(f"redis://127.0.0.1:{port}/5", SECRET)
        with pytest.raises(WireError, match="refuses") as refused:
            place.make(NAMESPACE)
        assert SECRET not in str(refused.value)


def test_nobody_there_is_told_at_once() -> None:
    with kept_port() as port:
        says = (
            rf"^redis at 127\.0\.0\.1:{port} cannot be reached \(ConnectionRefused.*check that it"
        )
        assert_refused(RedisPlace(f"redis://127.0.0.1:{port}", SECRET), says)
    assert_refused(RedisPlace("redis://nowhere.invalid"), "redis at nowhere.invalid:6379 cannot be")


def test_a_replica_is_refused() -> None:
    with redis_server() as first:
        options = RedisOptions(more=[f"replicaof {first.host} {first.port}"])
        says = "is a replica, which takes no messages"
        with redis_server(options) as replica, pytest.raises(WireError, match=says):
            RedisPlace(replica.url).make(NAMESPACE)


def test_a_server_that_may_evict_or_is_too_small_is_refused() -> None:
    with redis_server(RedisOptions(maxmemory_bytes=32 * MIB)) as server:
        with pytest.raises(WireError, match=r"MiB left .* may take 64 MiB: raise maxmemory"):
            RedisPlace(server.url).make(NAMESPACE)
        RedisPlace(server.url, budget_bytes=16 * MIB).make(NAMESPACE).close()
    evicting = RedisOptions(maxmemory_bytes=2**30, more=["maxmemory-policy volatile-ttl"])
    says = r"throw messages away .*volatile-ttl.*noeviction"
    with redis_server(evicting) as server, pytest.raises(WireError, match=says):
        RedisPlace(server.url).make(NAMESPACE)


def test_a_full_server_is_named_with_its_remedy() -> None:
    """Whole messages are refused, and those that are there stay; where room is made, it goes on."""
    large = tensor((4 * MIB,), torch.uint8)
    with redis_server(RedisOptions(maxmemory_bytes=24 * MIB)) as server:
        place = RedisPlace(server.url, budget_bytes=16 * MIB)
        with place.make(NAMESPACE) as channel:
            stored = []
            for step in range(8):
                key = Key(step, "a", 1, 0)
                try:
                    assert put(channel, key, large)
                    stored.append(key)
                except WireError as error:
                    says = str(error)
                    assert says.startswith(f"{key}: redis at ")
                    assert "no memory left for messages: raise its maxmemory" in says
                    break
            assert 2 <= len(stored) <= 5
            assert list(channel.waiting(0)) == stored
            with place.client() as client:
                assert client.dbsize() == 3 + len(stored)
            got = torch.zeros_like(large)
            for one in stored:
                channel.get(one, got, SOON_S)
                assert torch.equal(got, large)
            channel.trim(2)
            assert put(channel, Key(9, "a", 1, 0), large)
