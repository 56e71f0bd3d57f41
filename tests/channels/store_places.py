"""Places at stores that are asked: objects at moto's server or in a directory, DynamoDB there.

DAYFLY_TEST_S3 names a bucket of your own, such as s3://bucket/prefix, for the suite to run in as
well; AWS_ENDPOINT_URL and the like are then as this process was started with.
"""

from __future__ import annotations

import atexit
import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from benchmarks.parts.moto_server import MotoServer, moto_server

from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.conformance import NAMESPACE, SENDERS, TOKEN
from dayfly.wire.channels.dynamodb import DynamoChannel
from dayfly.wire.channels.dynamodb_table import DynamoTable, Item, create_command
from dayfly.wire.channels.kind import ChannelSpec, Site
from dayfly.wire.channels.objects import ObjectChannel
from dayfly.wire.keys import Key
from dayfly.wire.stores.files import FileStore


@dataclass(frozen=True)
class ObjectPlace:
    """A prefix of its own in a bucket, or a directory. environment: what its clients need."""

    url: str
    environment: Mapping[str, str]
    asks_each: bool = True

    def make(self, namespace: Namespace) -> Channel:
        return made(self.url, namespace, self.environment)

    def open(self, namespace: Namespace, reader: int) -> Channel:
        return opened(self.url, namespace, self.environment, reader)

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        channel = self._past(namespace)
        got = channel._client.get(_path(channel, key))
        assert got is not None
        return bytes(got.bytes())

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        channel = self._past(namespace)
        channel._client.put(_path(channel, key), [raw])

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        """Nothing here wakes a reader but its own looking."""

    def objects(self) -> list[str]:
        """Names of all that is there."""
        with self._past(NAMESPACE) as channel:
            return [one["path"] for page in channel._client.pages("") for one in page]

    def _past(self, namespace: Namespace) -> ObjectChannel:
        os.environ.update(self.environment)
        return ObjectChannel(site(self.url, namespace))


@dataclass(frozen=True)
class DynamoPlace:
    """A table of its own. environment: what its clients need."""

    table: str
    environment: Mapping[str, str]
    asks_each: bool = True

    def make(self, namespace: Namespace) -> Channel:
        return made(f"dynamodb://{self.table}", namespace, self.environment)

    def open(self, namespace: Namespace, reader: int) -> Channel:
        return opened(f"dynamodb://{self.table}", namespace, self.environment, reader)

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        channel = self._past(namespace)
        item = channel._table.get(channel._address(key))
        assert item is not None
        return bytes(item["data"]["B"])

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        channel = self._past(namespace)
        channel._table.put(channel._item(channel._address(key), raw))

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        """Nothing here wakes a reader but its own looking."""

    def items(self) -> list[Item]:
        """All that is in the table."""
        with closing(DynamoTable(self.table, connections=1)) as table:
            pages = table._client.get_paginator("scan").paginate(TableName=self.table)
            return [item for page in pages for item in page["Items"]]

    def _past(self, namespace: Namespace) -> DynamoChannel:
        os.environ.update(self.environment)
        return DynamoChannel(site(f"dynamodb://{self.table}", namespace))


def _path(channel: ObjectChannel, key: Key) -> str:
    return channel._path(f"{key.mailbox}/{key.name}")


def site(url: str, namespace: Namespace = NAMESPACE) -> Site:
    """Where a channel without a meeting point is."""
    return Site(url=url, namespace=namespace, rendezvous=FileStore(Path("/nowhere")), token=TOKEN)


def made(url: str, namespace: Namespace, environment: Mapping[str, str]) -> Channel:
    """The coordinator's end of a new channel at a URL, with this environment from now on."""
    os.environ.update(environment)
    plan = ChannelSpec(senders=SENDERS, budget_bytes=64 * 2**20, ahead_bytes=2**18)
    return channel_kind(url).create(site(url, namespace), plan)


def opened(url: str, namespace: Namespace, environment: Mapping[str, str], reader: int) -> Channel:
    """A worker's end of the channel at a URL."""
    os.environ.update(environment)
    return channel_kind(url).open(site(url, namespace), reader)


def make_table(table: str) -> None:
    """Do what `create_command` tells users to do, at the store of this environment.

    The command itself is read, so that what the users are told is what is tested.
    """
    client = DynamoTable(table, connections=1)._client
    for command in create_command(table).split(" && "):
        _, _, action, *arguments = command.split()
        options: dict[str, list[str]] = {}
        for argument in arguments:
            if argument.startswith("--"):
                options[argument] = []
            elif options:
                options[list(options)[-1]].append(argument)
        given = {name: [_pairs(value) for value in values] for name, values in options.items()}
        if action == "create-table":
            client.create_table(
                TableName=table,
                BillingMode=options["--billing-mode"][0],
                AttributeDefinitions=given["--attribute-definitions"],
                KeySchema=given["--key-schema"],
            )
        elif action == "update-time-to-live":
            (told,) = given["--time-to-live-specification"]
            enabled = told["Enabled"] == "true"
            client.update_time_to_live(
                TableName=table, TimeToLiveSpecification={**told, "Enabled": enabled}
            )
    client.close()


def _pairs(value: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in value.split(",") if "=" in pair)


_NUMBERS = itertools.count()


@cache
def shared_moto() -> MotoServer:
    """One server for all tests of this process; it ends with it, however that ends."""
    stack = ExitStack()
    atexit.register(stack.close)
    server = stack.enter_context(moto_server())
    server.make_bucket("dayfly")
    return server


@contextmanager
def in_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """Meanwhile this process has these variables."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def s3() -> Iterator[ObjectPlace]:
    """A prefix in a bucket at moto's server."""
    environment = shared_moto().environment
    with in_environment(environment):
        yield ObjectPlace(f"s3://dayfly/suite/{next(_NUMBERS)}", environment)


@contextmanager
def own_s3(url: str) -> Iterator[ObjectPlace]:
    """A prefix in the bucket that DAYFLY_TEST_S3 names, emptied at the end."""
    place = ObjectPlace(f"{url.rstrip('/')}/dayfly-test-{os.getpid()}-{next(_NUMBERS)}", {})
    try:
        yield place
    finally:
        for run in (NAMESPACE, Namespace("run-2", 0), Namespace("other", 0)):
            channel_kind(place.url).remove(site(place.url, run))


@contextmanager
def dynamodb() -> Iterator[DynamoPlace]:
    """A table at moto's server."""
    environment = shared_moto().environment
    with in_environment(environment):
        table = f"suite-{next(_NUMBERS)}"
        make_table(table)
        yield DynamoPlace(table, environment)


@contextmanager
def directory() -> Iterator[ObjectPlace]:
    """A directory through the client of object stores."""
    with tempfile.TemporaryDirectory(prefix="dayfly-test-") as root:
        yield ObjectPlace(f"dir://{root}", {})
