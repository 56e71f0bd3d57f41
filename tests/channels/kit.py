"""Channels of sockets for tests of their own: made at a store, with few ranks."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S, TOKEN, put
from dayfly.wire.channels.kind import ChannelSpec, Site
from dayfly.wire.keys import SERVER, Key
from dayfly.wire.stores.files import FileStore

MIB = 2**20
#: Rank 0's of three, to everyone: see `pushed`.
SUM = Key(0, "grad-sum-0", SERVER, -1)


def site(root: Path, url: str) -> Site:
    """A channel's site whose addresses are kept below `root`."""
    return Site(url=url, namespace=NAMESPACE, rendezvous=FileStore(root), token=TOKEN)


def plan(senders: int, budget_bytes: int = 64 * MIB, ahead_bytes: int = MIB) -> ChannelSpec:
    """A plan for so many ranks."""
    return ChannelSpec(senders=senders, budget_bytes=budget_bytes, ahead_bytes=ahead_bytes)


def part(rank: int, step: int = 0, chunk: int = 0) -> Key:
    """The key of a contribution."""
    return Key(step, f"grad-part-{chunk}", rank, SERVER)


def push(channel: Channel, rank: int, value: torch.Tensor, step: int = 0) -> bool:
    """Push a contribution."""
    return put(channel, part(rank, step), value)


def eventually(true: Callable[[], bool], what: str) -> None:
    """Wait until something is true that soon must be."""
    until = time.monotonic() + SOON_S
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def handles() -> frozenset[object]:
    """Descriptors, threads and children of this process, without what nobody refers to.

    Themselves, and not how many: what an earlier test has left may end at any time.
    """
    gc.collect()
    found: set[object] = set(threading.enumerate())
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing
            found.add(f"{number}: {os.readlink(f'/proc/self/fd/{number}')}")
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return frozenset(found | {f"process {child}" for child in children})


def eventually_only(before: frozenset[object]) -> None:
    """Wait until there are no handles but those of before; some may be about to end."""
    until = time.monotonic() + SOON_S
    while more := handles() - before:
        assert time.monotonic() < until, f"{more} are left"
        time.sleep(0.01)


@contextmanager
def kept_port() -> Iterator[int]:
    """A port of the loopback address at which nobody listens, and that nobody else gets meanwhile.

    A server of the test's own may listen there, as it says SO_REUSEADDR.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        assert isinstance(port, int)
        yield port
