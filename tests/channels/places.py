"""Where the conformance suite runs: one line of `PLACES` a channel.

A place says how a worker opens its channel there, and gives the suite a way past the channel, to
look at stored bytes and to damage them. Places travel to other processes, so they are picklable.
"""

from __future__ import annotations

import atexit
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest
import torch
from benchmarks.parts.moto_server import MotoServer, moto_server

from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.dynamodb import DynamoChannel
from dayfly.wire.channels.dynamodb_table import Table, create_command
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.kind import Plan, Site
from dayfly.wire.channels.objects import ObjectChannel
from dayfly.wire.keys import Key
from dayfly.wire.message import Header
from dayfly.wire.segments import doorbell
from dayfly.wire.segments.layout import address_of
from dayfly.wire.segments.pool import segment_path
from dayfly.wire.segments.segment import Segment
from dayfly.wire.segments.writer import Writer
from dayfly.wire.shaped import ShapedChannel
from dayfly.wire.shaping import Rates, Way
from dayfly.wire.store import FileStore
from dayfly.wire.tensors import as_bytes

#: Seconds until a test is hung rather than slow; nothing waits that long when all is well.
SOON_S = 30.0
NAMESPACE = Namespace("run", 0)
#: Ranks that may send in the suite.
SENDERS = 12


class Place(Protocol):
    """One channel's kit for the suite.

    asks_each: whether to ask what is stored takes a request for each key.
    """

    asks_each: bool

    def make(self, namespace: Namespace) -> Channel:
        """The coordinator's end of a new channel, with `SENDERS` ranks."""

    def open(self, namespace: Namespace, reader: int) -> Channel:
        """The channel as the worker `reader` opens it, once it was made."""

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        """A stored message, header and payload, as it lies there."""

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        """Store these bytes under a key, whatever they are."""

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        """From now on readers in this process wake by events alone, not by looking again."""


@dataclass(frozen=True)
class FilePlace:
    """A file channel's directory."""

    root: Path
    asks_each: bool = False

    def make(self, namespace: Namespace) -> Channel:
        return make(self.root, namespace)

    def open(self, namespace: Namespace, reader: int) -> Channel:
        return FileChannel(self.root, namespace)

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        segment = self._segment(namespace, key)
        found = segment.find(*address_of(key))
        assert found is not None
        return segment.map[found.at : found.at + found.size]

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        segment = self._segment(namespace, key)

        def copy(at: int) -> None:
            segment.map[at : at + len(raw)] = raw

        with closing(Writer(segment, lambda: None)) as writer:
            assert writer.put(*address_of(key), len(raw), copy)

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(doorbell, "LOOK_AGAIN_S", 10 * SOON_S)

    def _segment(self, namespace: Namespace, key: Key) -> Segment:
        place = self.root / namespace.run / f"{namespace.generation:06d}"
        return Segment(segment_path(place, key.source))


def make(
    root: Path,
    namespace: Namespace = NAMESPACE,
    *,
    senders: int = SENDERS,
    budget_bytes: int = 64 * 2**20,
    ahead_bytes: int = 2**18,
) -> FileChannel:
    """The coordinator's end of a new file channel."""
    return FileChannel.make(
        root, namespace, senders=senders, budget_bytes=budget_bytes, ahead_bytes=ahead_bytes
    )


class ShapedFilePlace(FilePlace):
    """The same behind a line, at rates that nobody notices."""

    def open(self, namespace: Namespace, reader: int) -> Channel:
        fast = Rates(up_bytes_per_s=1e12, down_bytes_per_s=1e12, latency_s=1e-6)
        return ShapedChannel(super().open(namespace, reader), Way(fast))


@contextmanager
def files_on(parent: str | None, kind: type[FilePlace] = FilePlace) -> Iterator[FilePlace]:
    """A file channel's place under a private directory; None: on the normal disk."""
    with tempfile.TemporaryDirectory(prefix="dayfly-test-", dir=parent) as root:
        yield kind(Path(root))


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
        import obstore

        channel = self._past(namespace)
        return bytes(obstore.get(channel._store, _path(channel, key)).bytes())

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        import obstore

        channel = self._past(namespace)
        obstore.put(channel._store, _path(channel, key), raw)

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        """Nothing here wakes a reader but its own looking."""

    def _past(self, namespace: Namespace) -> ObjectChannel:
        os.environ.update(self.environment)
        return ObjectChannel(self.url, namespace)


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

    def _past(self, namespace: Namespace) -> DynamoChannel:
        os.environ.update(self.environment)
        return DynamoChannel(self.table, namespace)


def _path(channel: ObjectChannel, key: Key) -> str:
    return channel._path(f"{key.box}/{key.name}")


def site(url: str, namespace: Namespace = NAMESPACE) -> Site:
    """Where a channel without a meeting point is."""
    return Site(url=url, namespace=namespace, rendezvous=FileStore(Path("/nowhere")))


def made(url: str, namespace: Namespace, environment: Mapping[str, str]) -> Channel:
    """The coordinator's end of a new channel at a URL, with this environment from now on."""
    os.environ.update(environment)
    plan = Plan(senders=SENDERS, budget_bytes=64 * 2**20, ahead_bytes=2**18)
    return channel_kind(url).create(site(url, namespace), plan)


def opened(url: str, namespace: Namespace, environment: Mapping[str, str], reader: int) -> Channel:
    """A worker's end of the channel at a URL."""
    os.environ.update(environment)
    return channel_kind(url).open(site(url, namespace), reader)


def make_table(table: str) -> None:
    """Do what `create_command` tells users to do, at the store of this environment.

    The command itself is read, so that what the users are told is what is tested.
    """
    client = Table(table, connections=1)._client
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


#: Every channel, by the name that its tests carry. To test a new channel, add its line.
PLACES: dict[str, Callable[[], AbstractContextManager[Place]]] = {
    "files-tmpfs": lambda: files_on("/dev/shm"),
    "files-disk": lambda: files_on(None),
    "files-shaped": lambda: files_on("/dev/shm", ShapedFilePlace),
    "s3": s3,
    "directory": directory,
    "dynamodb": dynamodb,
}
if own := os.environ.get("DAYFLY_TEST_S3"):
    PLACES["s3-own"] = lambda: own_s3(own)


def tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor whose elements tell their positions, as far as the type can."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 119 - 3).to(dtype).reshape(shape)


def put(channel: Channel, key: Key, value: torch.Tensor, operation: str | None = None) -> bool:
    """Put a tensor under its key, by default with the header that its reader expects."""
    header = Header(operation or key.operation, value.dtype, tuple(value.shape))
    return channel.put(key, header, as_bytes(value))
