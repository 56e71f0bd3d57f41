"""Several servers as one channel: each message is at one of them, by the hash of its key.

    grad-part-0   grad-part-1   grad-part-2   grad-part-3        chunks of one buffer, of one source
        |             |             |             |
     server 1      server 0      server 1      server 0          n = 2: (hash + chunk) mod n

The total bandwidth is that of all servers (FuncPipe, section 5.7; Pocket). Chunks of one buffer go
to the servers in turn, so none has more of them than another. A contribution to a sum is at the
server that adds it up and serves the sum.

Every server is needed: without one, its messages are gone, as they are without the only one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch

from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.kind import ChannelFactory, ChannelSpec, Site
from dayfly.wire.keys import SERVER, Key
from dayfly.wire.message import Header
from dayfly.wire.sockets.sums import sum_key

_CHUNK = re.compile(r"(.+)-([0-9]{1,9})")


def server_of(key: Key, servers: int) -> int:
    """Returns which of so many servers has a message, from 0; the same in every process."""
    if key.destination == SERVER:
        key = sum_key(key)
    found = _CHUNK.fullmatch(key.operation)
    operation, chunk = (found[1], int(found[2])) if found is not None else (key.operation, 0)
    whole = f"{key.step} {operation} {key.source} {key.destination}"
    return (zlib.crc32(whole.encode()) + chunk) % servers


def sites(site: Site, servers: Sequence[str]) -> list[Site]:
    """Returns the sites of the servers, whose URLs these are; each has addresses of its own."""
    return [
        replace(site, url=url, rendezvous=site.rendezvous.below(f"server-{number}"))
        for number, url in enumerate(servers)
    ]


class SpreadChannel(Channel):
    """A channel over several; they are closed with it."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        first = channels[0]
        super().__init__(first.namespace)
        self.abilities = first.abilities
        self.immediate = first.immediate
        self.zero_copy = first.zero_copy
        self._channels = tuple(channels)
        for channel in channels:
            channel.traffic = self.traffic

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        return self._of(key).put(key, header, payload)

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        return self._of(key).get(key, into, timeout_s)

    def fetch(self, key: Key, expected: Header, timeout_s: float) -> tuple[torch.Tensor, float]:
        return self._of(key).fetch(key, expected, timeout_s)

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        return self._of(key).get_bytes(key, timeout_s)

    def copies(self, key: Key) -> int:
        return self._of(key).copies(key)

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        shares = self._shares(keys)
        return frozenset[Key]().union(*(channel.stored(some) for channel, some in shares))

    def waiting(self, destination: int) -> Sequence[Key]:
        return sorted(key for channel in self._channels for key in channel.waiting(destination))

    def drop(self, keys: Iterable[Key]) -> None:
        for channel, some in self._shares(keys):
            channel.drop(some)

    def trim(self, before_step: int) -> None:
        for channel in self._channels:
            channel.trim(before_step)

    def size_bytes(self) -> int:
        return sum(channel.size_bytes() for channel in self._channels)

    def served_s(self) -> float | None:
        """As of one thread that is as fast as the servers' threads together."""
        each = [channel.served_s() for channel in self._channels]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) / len(each) if len(known) == len(each) else None

    def wake(self) -> None:
        for channel in self._channels:
            channel.wake()

    def destroy(self) -> None:
        _all(channel.destroy for channel in self._channels)

    def close(self) -> None:
        _all(channel.close for channel in self._channels)

    def _of(self, key: Key) -> Channel:
        return self._channels[server_of(key, len(self._channels))]

    def _shares(self, keys: Iterable[Key]) -> list[tuple[Channel, list[Key]]]:
        """The keys of each server that has some."""
        shares: list[list[Key]] = [[] for _ in self._channels]
        for key in keys:
            shares[server_of(key, len(shares))].append(key)
        return [pair for pair in zip(self._channels, shares, strict=True) if pair[1]]


class SpreadFactory(ChannelFactory):
    """Makes channels over several servers of one kind.

    Args:
        factory: of the channel at each server.
        servers: their URLs.
    """

    def __init__(self, factory: ChannelFactory, servers: Sequence[str]) -> None:
        self._factory, self._servers = factory, tuple(servers)

    def create(self, site: Site, spec: ChannelSpec) -> Channel:
        """As `ChannelFactory.create`. Any server may have to keep all, so each has the budget."""
        made: list[Channel] = []
        with ExitStack() as stack:
            for one in sites(site, self._servers):
                channel = self._factory.create(one, spec)
                stack.callback(channel.close)
                stack.callback(channel.destroy)
                made.append(channel)
            stack.pop_all()
        return SpreadChannel(made)

    def open(self, site: Site, reader: int) -> Channel:
        made: list[Channel] = []
        with ExitStack() as stack:
            for one in sites(site, self._servers):
                made.append(stack.enter_context(self._factory.open(one, reader)))
            stack.pop_all()
        return SpreadChannel(made)

    def remove(self, site: Site) -> None:
        def at(one: Site) -> Callable[[], None]:
            return lambda: self._factory.remove(one)

        _all(at(one) for one in sites(site, self._servers))


def _all(works: Iterable[Callable[[], None]]) -> None:
    """Does all of them, in any case; the first error is raised afterwards."""
    with ExitStack() as stack:
        for work in reversed(tuple(works)):
            stack.callback(work)
