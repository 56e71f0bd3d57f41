"""The URLs through which workers talk; a Redis server is started where one is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from benchmarks.parts.planning.configurations import Channel
from benchmarks.parts.redis_server import RedisServer
from dayfly.wire.channels.kinds import LOOPBACK

#: Two servers of this machine, which share the keys.
_TWO_SERVERS = f"ps://{LOOPBACK},{LOOPBACK}"
#: None: files in memory, a session's own.
Urls = Mapping[Channel, str | None]


@contextmanager
def channels(names: Iterable[Channel]) -> Iterator[Urls]:
    """URLs of these. Raises RunFailed if redis-server does not start."""
    urls: dict[Channel, str | None] = {"file": None, "tcp": "tcp://", "ps": "ps://"}
    urls["ps2"] = _TWO_SERVERS
    if "redis" not in set(names):
        yield urls
        return
    with RedisServer() as server:
        yield {**urls, "redis": server.url}
