"""A channel and a store behind a shaped line: every message and every byte of data passes it.

What waits is the call: a put is stored, and a get returns, when its bytes and its latency had
their time. Dropping a message is not waited for, as in virtual time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import torch

from dayfly.wire.channels.base import Channel
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.keys import Key
from dayfly.wire.message import Header
from dayfly.wire.shaping import IN_FLIGHT, Way
from dayfly.wire.store import FileStore, Home

Result = TypeVar("Result")

#: A message that came within this time was there when it was asked for.
_AT_ONCE_S = 0.001


class ShapedChannel(Channel):
    """Any channel, at the rates of `way`; closed with this one."""

    def __init__(self, channel: Channel, way: Way) -> None:
        super().__init__(channel.namespace)
        self.abilities = channel.abilities
        if channel.immediate:
            self.abilities = replace(channel.abilities, in_flight=IN_FLIGHT)
        self.lends = channel.lends
        self.traffic = channel.traffic
        self._channel = channel
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

    def hold(self, key: Key, expected: Header, timeout_s: float) -> tuple[torch.Tensor, float]:
        """As `get`."""
        return self._down(
            lambda: self._channel.hold(key, expected, timeout_s), lambda held: held.nbytes
        )

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        """As `get`."""
        return self._down(lambda: (self._channel.get_bytes(key, timeout_s), self._way.now()), len)[
            0
        ]

    def copies(self, key: Key) -> int:
        return self._channel.copies(key)

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        self._way.ask_only()
        return self._channel.stored(keys)

    def waiting(self, destination: int) -> Sequence[Key]:
        self._way.ask_only()
        return self._channel.waiting(destination)

    def drop(self, keys: Iterable[Key]) -> None:
        self._channel.drop(keys)

    def trim(self, before_step: int) -> None:
        self._channel.trim(before_step)

    def size_bytes(self) -> int:
        return self._channel.size_bytes()

    def served_s(self) -> float | None:
        return self._channel.served_s()

    def destroy(self) -> None:
        self._channel.destroy()

    def wake(self) -> None:
        self._channel.wake()

    def close(self) -> None:
        self._channel.close()

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
        called_s, asked_s = self._way.now(), line.ask()
        result, came_s = get()
        start_s = asked_s if came_s - called_s < _AT_ONCE_S else came_s
        line.done(line.carry(HEADER_BYTES + payload_bytes(result), start_s))
        return result, came_s


class ShapedStore(FileStore):
    """A file store, at the rates of `way`. To look whether an object is there is not shaped."""

    def __init__(self, root: Path, way: Way, home: Home | None = None) -> None:
        super().__init__(root, home)
        self._way = way

    def below(self, folder: str) -> FileStore:
        return ShapedStore(self.path(folder), self._way, self.home)

    def get(self, name: str) -> bytes:
        asked_s = self._way.down.ask()
        data = super().get(name)
        self._down(len(data), asked_s)
        return data

    def read_into(self, name: str, *places: tuple[int, memoryview]) -> None:
        asked_s = self._way.down.ask()
        super().read_into(name, *places)
        self._down(sum(into.nbytes for _, into in places), asked_s)

    def _down(self, nbytes: int, asked_s: float) -> None:
        self._way.down.done(self._way.down.carry(nbytes, asked_s))

    def _write(self, name: str, write: Callable[[BinaryIO], object]) -> Path:
        """Every put writes through here, beside the object's place, before it gives it its name."""
        line = self._way.up
        asked_s = line.ask()
        temporary = super()._write(name, write)
        try:
            line.done(line.carry(temporary.stat().st_size, asked_s))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary


def shaped_channel(channel: Channel, way: Way | None) -> Channel:
    """The channel at the end of the way; as it is without one."""
    return channel if way is None else ShapedChannel(channel, way)


def shaped_store(store: FileStore, way: Way | None) -> FileStore:
    """The store at the end of the way; as it is without one."""
    return store if way is None else ShapedStore(store.root, way, store.home)
