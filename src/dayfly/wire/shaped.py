"""A channel and a store behind a shaped line: every message and every byte of data passes it.

What waits is the call: a put is stored, and a get returns, when its bytes and its latency had
their time. Dropping a message is not waited for, as in virtual time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.wrapped import WrappedChannel
from dayfly.wire.keys import HEADER_BYTES, Key
from dayfly.wire.message import Header
from dayfly.wire.shaping import IN_FLIGHT, ShapedLink
from dayfly.wire.stores.base import Buffer, Pieces, Store, Version, WrappedStore, size_of

Result = TypeVar("Result")

#: A message that came within this time was there when it was asked for.
_AT_ONCE_S = 0.001


class ShapedChannel(WrappedChannel):
    """Any channel, at the rates of `way`; closed with this one."""

    def __init__(self, channel: Channel, way: ShapedLink) -> None:
        super().__init__(channel)
        if channel.immediate:
            self.abilities = replace(channel.abilities, in_flight=IN_FLIGHT)
        self.immediate = False
        self._way = way
        # Seconds a byte that storing took at its fastest: put begins that much before its time.
        self._store_s_per_byte = float("inf")

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        """As `Channel.put`; a message whose key is taken has crossed the line all the same.

        One that goes directly to several readers crosses it as often.
        """
        copies = self._channel.copies(key)
        line, size = self._way.up, copies * (HEADER_BYTES + payload.nbytes)
        ahead_s = size * self._store_s_per_byte if self._store_s_per_byte < float("inf") else 0.0
        free_s = line.carry(size, line.ask(), ahead_s)
        began = time.perf_counter()
        won = self._channel.put(key, header, payload)
        self._store_s_per_byte = min(self._store_s_per_byte, (time.perf_counter() - began) / size)
        line.done(free_s)
        return won

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        """As `Channel.get`; `timeout_s` is for the message to be there, not for its bytes."""
        return self._down(
            lambda: (into.nbytes, self._channel.get(key, into, timeout_s)), lambda nbytes: nbytes
        )[1]

    def fetch(self, key: Key, expected: Header, timeout_s: float) -> tuple[torch.Tensor, float]:
        """As `get`."""
        return self._down(
            lambda: self._channel.fetch(key, expected, timeout_s), lambda held: held.nbytes
        )

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        """As `get`."""
        return self._down(lambda: (self._channel.get_bytes(key, timeout_s), time.monotonic()), len)[
            0
        ]

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        self._way.ask_only()
        return super().stored(keys)

    def waiting(self, destination: int) -> Sequence[Key]:
        self._way.ask_only()
        return super().waiting(destination)

    def _down(
        self,
        get: Callable[[], tuple[Result, float]],
        payload_bytes: Callable[[Result], int],
    ) -> tuple[Result, float]:
        """Get a message, then let its bytes through.

        One that was there when it was asked for starts then; one that was waited for starts when
        it came, which `get` tells. Returns it and when its bytes began to come.
        """
        line = self._way.down
        called_s, asked_s = time.monotonic(), line.ask()
        result, came_s = get()
        start_s = asked_s if came_s - called_s < _AT_ONCE_S else came_s
        line.done(line.carry(HEADER_BYTES + payload_bytes(result), start_s))
        return result, came_s


class ShapedStore(WrappedStore):
    """Any store, at the rates of `way`. What moves no bytes to speak of is not shaped.

    A put is stored at once, and returns when its bytes had their time.
    """

    def __init__(self, store: Store, way: ShapedLink) -> None:
        super().__init__(store)
        self._way = way

    def below(self, prefix: str, *, private: bool = False) -> Store:
        return ShapedStore(self._store.below(prefix, private=private), self._way)

    def put(self, name: str, data: Buffer | Pieces) -> Version:
        return self._up(data, lambda: self._store.put(name, data))

    def put_new(self, name: str, data: Buffer) -> Version | None:
        return self._up(data, lambda: self._store.put_new(name, data))

    def put_if(self, name: str, data: Buffer, version: Version) -> Version | None:
        return self._up(data, lambda: self._store.put_if(name, data, version))

    def get_versioned(self, name: str) -> tuple[bytes, Version]:
        return self._down(lambda: self._store.get_versioned(name), lambda got: len(got[0]))

    def read_into(self, name: str, ranges: Sequence[tuple[int, memoryview]]) -> None:
        nbytes = sum(into.nbytes for _, into in ranges)
        self._down(lambda: self._store.read_into(name, ranges), lambda _: nbytes)

    def _up(self, data: Buffer | Pieces, put: Callable[[], Result]) -> Result:
        line = self._way.up
        asked_s = line.ask()
        result = put()
        line.done(line.carry(size_of(data), asked_s))
        return result

    def _down(self, get: Callable[[], Result], size: Callable[[Result], int]) -> Result:
        line = self._way.down
        asked_s = line.ask()
        result = get()
        line.done(line.carry(size(result), asked_s))
        return result


def shaped_channel(channel: Channel, way: ShapedLink | None) -> Channel:
    """Returns the channel behind a link of limited rates; without limits the channel itself."""
    return channel if way is None else ShapedChannel(channel, way)


def shaped_store(store: Store, way: ShapedLink | None) -> Store:
    """Returns the store behind a link of limited rates; without limits the store itself."""
    return store if way is None else ShapedStore(store, way)
