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

import pytest

from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.conformance import NAMESPACE, SENDERS, SOON_S, ChannelPlace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import Key
from dayfly.wire.segments import segment as doorbell
from dayfly.wire.segments.layout import address_of
from dayfly.wire.segments.pool import segment_path
from dayfly.wire.segments.segment import Segment
from dayfly.wire.segments.writer import SegmentWriter
from dayfly.wire.shaped import ShapedChannel
from dayfly.wire.shaping import Rates, ShapedLink
from tests.channels.redis_place import ShapedRedisPlace, redis_place, redis_servers
from tests.channels.socket_places import (
    DirectPlace,
    ParameterServerPlace,
    ParameterServersPlace,
    sockets_in,
)
from tests.channels.store_places import directory, dynamodb, own_s3, s3


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

        with closing(SegmentWriter(segment, lambda: None)) as writer:
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
PLACES: dict[str, Callable[[], AbstractContextManager[ChannelPlace]]] = {
    "files-tmpfs": lambda: files_on("/dev/shm"),
    "files-disk": lambda: files_on(None),
    "files-shaped": lambda: files_on("/dev/shm", ShapedFilePlace),
    "s3": s3,
    "directory": directory,
    "redis": redis_place,
    "redis-shaped": lambda: redis_place(ShapedRedisPlace),
    "redis-two": redis_servers,
    "dynamodb": dynamodb,
    "ps": lambda: sockets_in(ParameterServerPlace, SENDERS),
    "ps-two": lambda: sockets_in(ParameterServersPlace, SENDERS),
    "tcp": lambda: sockets_in(DirectPlace, SENDERS),
}
if own := os.environ.get("DAYFLY_TEST_S3"):
    PLACES["s3-own"] = lambda: own_s3(own)
