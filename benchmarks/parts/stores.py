"""The stores that are measured: our own, started here and gone afterwards, or the user's by URL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.parts.redis_server import RedisServer
from dayfly.errors import RequestError
from dayfly.life.sessions import Session
from dayfly.wire.channels import channel_kind

#: Stores by name, whose servers are started here; besides, any URL of a channel.
STORES = ("files", "redis")


@contextmanager
def store(asked: str, session: Session) -> Iterator[str]:
    """The URL of a channel at a store that runs meanwhile.

    Its processes end with this one. Raises RequestError for what is no store, or not installed.
    """
    match asked:
        case "files":
            yield f"file://{session.root / 'messages'}"
        case "redis":
            need("redis-server", "redis-server")
            with RedisServer() as server:
                yield server.url
        case _:
            if "://" not in asked:
                known = ", ".join(STORES)
                raise RequestError(f"--channel {asked!r}: give one of {known}, or a URL")
            channel_kind(asked)
            yield asked


def need(program: str, package: str) -> None:
    """Raise RequestError unless a program is installed."""
    if shutil.which(program) is None:
        raise RequestError(f"{program} is not installed: sudo apt install {package}")
