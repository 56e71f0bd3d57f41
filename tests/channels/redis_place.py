"""Places at Redis servers: each has one of its own, in memory alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from benchmarks.parts.redis_server import RedisOptions, RedisServer

from dayfly.wire.channels import redis as redis_channel
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.conformance import NAMESPACE, SENDERS, TOKEN
from dayfly.wire.channels.kind import ChannelSpec, Site
from dayfly.wire.channels.kinds import Redis
from dayfly.wire.channels.spread import server_of
from dayfly.wire.keys import Key
from dayfly.wire.redis.layout import KeyNames
from dayfly.wire.shaped import ShapedChannel
from dayfly.wire.shaping import Rates, ShapedLink
from dayfly.wire.stores.files import FileStore


@dataclass(frozen=True)
class RedisPlace:
    """A Redis server's database. budget_bytes: of the channels that are made there."""

    url: str
    password: str | None = None
    budget_bytes: int = 64 * 2**20
    asks_each: bool = False

    def make(self, namespace: Namespace) -> Channel:
        plan = ChannelSpec(senders=SENDERS, budget_bytes=self.budget_bytes, ahead_bytes=2**18)
        return Redis().create(self.site(namespace), plan)

    def open(self, namespace: Namespace, reader: int) -> Channel:
        return Redis().open(self.site(namespace), reader)

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        with self.client() as client:
            entries = client.xrange(self.layout(namespace).stream(key.mailbox, key.name))
            return b"".join(fields[b"m"] for _, fields in entries)

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        place = self.layout(namespace)
        with self.client() as client:
            client.xadd(place.stream(key.mailbox, key.name), {"m": raw}, "1-999999")
            client.expire(place.stream(key.mailbox, key.name), 60)
            client.hset(place.mailbox(key.mailbox), key.name, f"{len(raw)} planted")
            client.expire(place.mailbox(key.mailbox), 60)

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(redis_channel, "_LOOK_EVERY_S", 300.0)

    def site(self, namespace: Namespace = NAMESPACE, token: str = TOKEN) -> Site:
        """What the channel's ends need to meet."""
        nowhere = FileStore(Path("/nonexistent"))
        return Site(
            url=self.url,
            namespace=namespace,
            rendezvous=nowhere,
            token=token,
            password=self.password,
        )

    def layout(self, namespace: Namespace = NAMESPACE) -> KeyNames:
        """Where the messages of the channel that was made are."""
        lives, generation = f"dayfly:{{{namespace.run}}}", f"{namespace.generation:06d}"
        with self.client() as client:
            life = client.hget(lives, generation)
        assert life is not None
        return KeyNames(namespace.run, namespace.generation, life.decode())

    @property
    def host(self) -> str:
        """And its port."""
        return self.url.partition("://")[2].partition("/")[0]

    def client(self) -> redis.Redis:
        """Another's client of the same server."""
        return redis.Redis.from_url(self.url, password=self.password)

    def expiries_s(self) -> dict[str, int]:
        """Every key, and the seconds until it expires: -1 for never."""
        with self.client() as client:
            found = {key.decode(): client.ttl(key) for key in client.keys()}  # noqa: SIM118
        return {key: left_s for key, left_s in found.items() if left_s != -2}  # gone meanwhile


class ShapedRedisPlace(RedisPlace):
    """The same behind a line, at rates that nobody notices."""

    def open(self, namespace: Namespace, reader: int) -> Channel:
        fast = Rates(up_bytes_per_s=1e12, down_bytes_per_s=1e12, latency_s=1e-6)
        return ShapedChannel(super().open(namespace, reader), ShapedLink(fast))


@dataclass(frozen=True)
class SpreadRedisPlace(RedisPlace):
    """Two servers, which share the keys. url: of both."""

    servers: int = 2

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        return self._at(key).raw(namespace, key)

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        self._at(key).plant(namespace, key, raw)

    def _at(self, key: Key) -> RedisPlace:
        urls = Redis().servers(self.url)
        return RedisPlace(urls[server_of(key, len(urls))], self.password)


@contextmanager
def redis_servers() -> Iterator[SpreadRedisPlace]:
    """A place at two servers of its own."""
    with redis_place() as one, redis_place() as other:
        yield SpreadRedisPlace(f"redis://{one.host},{other.host}/0")


@contextmanager
def redis_server(options: RedisOptions | None = None) -> Iterator[RedisServer]:
    """A Redis server of the test's own. Without the program the test is skipped."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: apt install redis-server")
    with RedisServer(options) as server:
        yield server


@contextmanager
def redis_place(kind: type[RedisPlace] = RedisPlace) -> Iterator[RedisPlace]:
    """A place on a server of its own; at the end, every key that is left there expires."""
    with redis_server() as server:
        place = kind(server.url)
        yield place
        assert [key for key, left_s in place.expiries_s().items() if left_s < 0] == []
