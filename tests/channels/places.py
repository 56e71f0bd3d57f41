"""Where the conformance suite runs: one line of `PLACES` a channel.

A place says how a worker opens its channel there, and gives the suite a way past the channel, to
look at stored bytes and to damage them. Places travel to other processes, so they are picklable.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
import torch

from dayfly.wire import inotify
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.keys import Key
from dayfly.wire.message import Header
from dayfly.wire.shaped import ShapedChannel
from dayfly.wire.shaping import Rates, Way
from dayfly.wire.tensors import as_bytes

#: Seconds until a test is hung rather than slow; nothing waits that long when all is well.
SOON_S = 30.0
NAMESPACE = Namespace("run", 0)


class Place(Protocol):
    """One channel's kit for the suite."""

    def open(self, namespace: Namespace, reader: int) -> Channel:
        """The channel as the worker `reader` opens it."""

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

    def open(self, namespace: Namespace, reader: int) -> Channel:
        return FileChannel(self.root, namespace, reader)

    def raw(self, namespace: Namespace, key: Key) -> bytes:
        return self._path(namespace, key).read_bytes()

    def plant(self, namespace: Namespace, key: Key, raw: bytes) -> None:
        path = self._path(namespace, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)

    def only_events(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(inotify, "LOOK_AGAIN_S", 10 * SOON_S)

    def _path(self, namespace: Namespace, key: Key) -> Path:
        return self.root / namespace.run / f"{namespace.generation:06d}" / key.box / key.name


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


#: Every channel, by the name that its tests carry. To test a new channel, add its line.
PLACES: dict[str, Callable[[], AbstractContextManager[Place]]] = {
    "files-tmpfs": lambda: files_on("/dev/shm"),
    "files-disk": lambda: files_on(None),
    "files-shaped": lambda: files_on("/dev/shm", ShapedFilePlace),
}


def tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor whose elements tell their positions, as far as the type can."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 119 - 3).to(dtype).reshape(shape)


def put(channel: Channel, key: Key, value: torch.Tensor, operation: str | None = None) -> bool:
    """Put a tensor under its key, by default with the header that its reader expects."""
    header = Header(operation or key.operation, value.dtype, tuple(value.shape))
    return channel.put(key, header, as_bytes(value))
