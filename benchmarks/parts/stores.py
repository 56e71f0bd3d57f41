"""The stores that are measured: our own, started here and gone afterwards, or the user's by URL."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from benchmarks.parts.moto_server import moto_server
from benchmarks.parts.redis_server import RedisServer
from benchmarks.parts.reducer import Place
from dayfly.errors import RequestError
from dayfly.life.sessions import Session
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Namespace
from dayfly.wire.channels.kind import Abilities

#: Stores that are started here, by name, each with a URL of its kind.
STORES = {
    "files": "file:///",
    "redis": "redis://127.0.0.1:1/0",
    "s3": "s3://bench/messages",
    "dynamodb": "dynamodb://bench",
    "ps": "ps://",
    "tcp": "tcp://",
}
#: The run of a bench at a store of the user's: there it finds, and removes, what a killed one left.
_RUN = "bench"


class Store:
    """A store that runs. url: of its channels. run: whose messages they are."""

    def __init__(self, url: str, run: str, session: Session) -> None:
        self._url, self._run, self._session = url, run, session
        self._generations = count()

    def place(self) -> Place:
        """Where a channel is to be; each has a generation of its own."""
        namespace = Namespace(self._run, next(self._generations))
        rendezvous = self._session.root / f"rendezvous-{secrets.token_hex(4)}"
        rendezvous.mkdir()
        return Place(url=self._url, namespace=namespace, rendezvous=rendezvous)


def abilities_of(asked: str) -> Abilities:
    """What channels at a store can do. Raises RequestError for what is no store."""
    if asked not in STORES and "://" not in asked:
        raise RequestError(f"--channel {asked!r}: give one of {', '.join(STORES)}, or a URL")
    if asked == "redis":
        need("redis-server", "redis-server")
    return channel_kind(STORES.get(asked, asked)).abilities


@contextmanager
def running(asked: str, session: Session) -> Iterator[Store]:
    """A store, of those that `abilities_of` knows; its processes end with this one, at the latest.

    Start the ranks afterwards: they have the environment by which clients find it.
    """
    run = f"{_RUN}-{secrets.token_hex(4)}" if asked in STORES else _RUN
    match asked:
        case "files":
            yield Store(f"file://{session.root / 'messages'}", run, session)
        case "redis":
            with RedisServer() as server:
                yield Store(server.url, run, session)
        case "s3" | "dynamodb":
            with moto_server() as moto, _environment(moto.environment):
                if asked == "s3":
                    moto.make_bucket(_RUN)
                else:
                    _make_table(_RUN)
                yield Store(STORES[asked], run, session)
        case _:
            yield Store(STORES.get(asked, asked), run, session)


def _make_table(name: str) -> None:
    """A DynamoDB table as the channel says that it has to be."""
    import boto3  # Only here: it takes a second.

    keys = {"box": "HASH", "name": "RANGE"}
    client = boto3.client("dynamodb")
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
    )
    client.update_time_to_live(
        TableName=name,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"},
    )
    client.close()


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """More of it, as long as this lasts."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def need(program: str, package: str) -> None:
    """Raise RequestError unless a program is installed."""
    if shutil.which(program) is None:
        raise RequestError(f"{program} is not installed: sudo apt install {package}")
