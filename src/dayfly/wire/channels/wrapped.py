"""A channel around another one, and one that knows which messages are waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from dayfly.errors import WaitTimeout
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import Key
from dayfly.wire.message import Header

Result = TypeVar("Result")

#: A get that begins so soon after one in vain goes on with the same wait, in seconds.
_GOES_ON_S = 1.0


class WrappedChannel(Channel):
    """Does what another channel does; closed with it. Subclasses do some of it in their own way."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel.namespace)
        self.abilities = channel.abilities
        self.immediate = channel.immediate
        self.zero_copy = channel.zero_copy
        self.traffic = channel.traffic
        self._channel = channel

    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        return self._channel.put(key, header, payload)

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        return self._channel.get(key, into, timeout_s)

    def fetch(self, key: Key, expected: Header, timeout_s: float) -> tuple[torch.Tensor, float]:
        return self._channel.fetch(key, expected, timeout_s)

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        return self._channel.get_bytes(key, timeout_s)

    def copies(self, key: Key) -> int:
        return self._channel.copies(key)

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        return self._channel.stored(keys)

    def waiting(self, destination: int) -> Sequence[Key]:
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


@dataclass(slots=True)
class _Wait:
    """The wait for one message. Times are of `time.monotonic()`.

    Args:
        began: when it began.
        gets: that are under way.
        ended: the last of them.
    """

    began: float
    gets: int = 0
    ended: float = 0.0


class WatchedChannel(WrappedChannel):
    """Any channel, of which it is known whose messages are waited for; for several threads."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._lock = threading.Lock()
        self._waits: dict[Key, _Wait] = {}
        self._came: dict[int, float] = {}

    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        return self._during(key, lambda: self._channel.get(key, into, timeout_s))

    def fetch(self, key: Key, expected: Header, timeout_s: float) -> tuple[torch.Tensor, float]:
        return self._during(key, lambda: self._channel.fetch(key, expected, timeout_s))

    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        return self._during(key, lambda: self._channel.get_bytes(key, timeout_s))

    def waited_for(self, longer_s: float) -> frozenset[int]:
        """Returns the senders for whose messages somebody waits now, of which none has come since.

        Args:
            longer_s: how long somebody has waited at least, in seconds.
        """
        now = time.monotonic()
        with self._lock:
            over = [
                key
                for key, wait in self._waits.items()
                if not wait.gets and now - wait.ended > _GOES_ON_S
            ]
            for key in over:  # it was given up
                del self._waits[key]
            return frozenset(
                key.source
                for key, wait in self._waits.items()
                if now - max(wait.began, self._came.get(key.source, wait.began)) >= longer_s
            )

    def _during(self, key: Key, get: Callable[[], Result]) -> Result:
        with self._lock:
            wait = self._waits.setdefault(key, _Wait(time.monotonic()))
            wait.gets += 1
        came = True
        try:
            return get()
        except WaitTimeout:
            came = False
            raise
        finally:
            with self._lock:
                wait.gets -= 1
                wait.ended = now = time.monotonic()
                if came:
                    self._waits.pop(key, None)
                    self._came[key.source] = now
