"""Where the conformance suite runs: one line of `PLACES` a channel.

A place says how a worker opens its channel there, and gives the suite a way past the channel, to
look at stored bytes and to damage them. Places travel to other processes, so they are picklable.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
import torch

from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import Key
from dayfly.wire.message import Header, as_bytes
from dayfly.wire.segments import segment as doorbell
from dayfly.wire.segments.layout import address_of
from dayfly.wire.segments.pool import segment_path
from dayfly.wire.segments.segment import Segment
from dayfly.wire.segments.writer import Writer
from dayfly.wire.shaped import ShapedChannel
from dayfly.wire.shaping import Rates, ShapedLink
from tests.channels.names import NAMESPACE, SENDERS
from tests.channels.redis_place import ShapedRedisPlace, redis_place
from tests.channels.socket_places import DirectPlace, ParameterServerPlace, sockets_in
from tests.channels.store_places import directory, dynamodb, own_s3, s3

#: Seconds until a test is hung rather than slow; nothing waits that long when all is well.
SOON_S = 30.0


class Place(Protocol):
    """One channel's kit for the suite.

    asks_each: whether to ask what is stored takes a request for each key.
    """

    asks_each: bool

    def make(self, namespace: Namespace) -> AbstractContextManager[Channel]:
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
        return ShapedChannel(super().open(namespace, reader), ShapedLink(fast))


@contextmanager
def files_on(parent: str | None, kind: type[FilePlace] = FilePlace) -> Iterator[FilePlace]:
    """A file channel's place under a private directory; None: on the normal disk."""
    with tempfile.TemporaryDirectory(prefix="dayfly-test-", dir=parent) as root:
        yield kind(Path(root))


#: Every channel, by the name that its tests carry. To test a new channel, add its line.
PLACES: dict[str, Callable[[], AbstractContextManager[Place]]] = {
    "files-tmpfs": lambda: files_on("/dev/shm"),
    "files-disk": lambda: files_on(None),
    "files-shaped": lambda: files_on("/dev/shm", ShapedFilePlace),
    "s3": s3,
    "directory": directory,
    "redis": redis_place,
    "redis-shaped": lambda: redis_place(ShapedRedisPlace),
    "dynamodb": dynamodb,
    "ps": lambda: sockets_in(ParameterServerPlace, SENDERS),
    "tcp": lambda: sockets_in(DirectPlace, SENDERS),
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
