"""What every channel promises: the one thing through which functions talk.

A channel is opened for one namespace (a run and its generation). All methods may be called from
several threads at once. The conformance suite in `tests/channels` runs over every channel.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from dayfly.closing import Closing
from dayfly.errors import WireError
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.keys import Key
from dayfly.wire.message import Header
from dayfly.wire.outages import Traffic

#: Longest time to read a note that is there, in seconds.
_NOTE_S = 30.0
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Namespace:
    """Whose messages: a run (a plain name, safe as a part of a path) and its generation.

    The generation rises whenever all workers start anew from the run checkpoint, so messages of
    an earlier life are never mistaken for this one's.
    """

    run: str
    generation: int

    def __post_init__(self) -> None:
        if not _RUN.fullmatch(self.run):
            raise ValueError(f"run {self.run!r} must be letters, digits, '_' and '-', at most 64")
        if not 0 <= self.generation < 10**6:
            raise ValueError(f"generation {self.generation} is outside 0..999999")


class Messages(ABC):
    """Messages that some put and others get.

    Attributes:
        abilities: what its kind can do.
        immediate: whether a transfer is work of this processor alone, as in memory, and not time of
            a link.
        zero_copy: whether `fetch` gives the message itself, which takes no memory.
        traffic: requests and bytes so far.
    """

    abilities: Abilities = Abilities()
    immediate: bool = False
    zero_copy: bool = False
    traffic: Traffic

    def copies(self, key: Key) -> int:
        """Returns how often a message that is put leaves its sender: once, to a store."""
        return 1

    @abstractmethod
    def put(self, key: Key, header: Header, payload: memoryview) -> bool:
        """Stores a message; the first put wins. Readers see all of it or nothing.

        Args:
            key: names the message.
            header: dtype and shape of the payload.
            payload: its bytes.

        Returns:
            True if it was stored, False if the key was there already. The stored bytes stay; a
            caller that needs to agree with its peers gets them.

        Raises:
            WireError: the channel cannot take it; with the cause.
            NoRoom: there will be room once messages are dropped.
        """

    @abstractmethod
    def get(self, key: Key, into: torch.Tensor, timeout_s: float) -> float:
        """Waits for a message and reads it; the message stays.

        Args:
            key: names the message.
            into: a contiguous CPU tensor of its dtype and shape. After an error its content is not
                defined.
            timeout_s: longest wait.

        Returns:
            The moment (`time.monotonic()`) at which the wait was over and the reading began.

        Raises:
            WaitTimeout: the message is not there in time; names the key.
            WireError: operation, dtype, shape or checksum do not fit; says which were expected and
                found.
        """

    def fetch(self, key: Key, expected: Header, timeout_s: float) -> tuple[torch.Tensor, float]:
        """Waits for a message as `get` does, and returns it in memory of the channel.

        Args:
            key: names the message.
            expected: its dtype and shape.
            timeout_s: longest wait.

        Returns:
            A tensor to be read only, until the message is dropped, and the moment as of `get`. It
            may be the message itself, without a copy.
        """
        held = torch.empty(expected.shape, dtype=expected.dtype)
        return held, self.get(key, held, timeout_s)

    @abstractmethod
    def get_bytes(self, key: Key, timeout_s: float) -> bytes:
        """Returns a message of dtype uint8, of one dimension whose size is not known.

        Args:
            key: of the message.
            timeout_s: longest wait for it.

        Raises:
            WireError: as of `get`.
        """

    @abstractmethod
    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        """Returns those of the keys whose messages are there now."""

    @abstractmethod
    def waiting(self, destination: int) -> Sequence[Key]:
        """Returns the keys of all messages to a destination, sorted."""

    @abstractmethod
    def drop(self, keys: Iterable[Key]) -> None:
        """Removes messages; those that are not there are passed over."""

    def wake(self) -> None:
        """Ends gets that poll; they raise WaitTimeout."""
        return None

    def told(self, key: Key) -> bool:
        """Returns whether a note of no bytes is there (see `tell`).

        One that is not authentic is none; nor is one that cannot be read, as whoever goes on with
        such a channel is told why.
        """
        if not self.stored([key]):
            return False
        try:
            self.get_bytes(key, _NOTE_S)
        except WireError:
            return False
        return True

    def tell(self, key: Key) -> None:
        """Puts a note of no bytes, whose presence is all that it says; in place of a forged one."""
        if not self.put_bytes(key, b"") and not self.told(key):
            self.drop([key])
            self.put_bytes(key, b"")

    def put_bytes(self, key: Key, data: bytes) -> bool:
        """Stores plain bytes, such as a report in JSON.

        Args:
            key: of the message.
            data: the bytes.

        Returns:
            As of `put`.
        """
        return self.put(key, Header(key.operation, torch.uint8, (len(data),)), memoryview(data))


class Channel(Messages, Closing):
    """A place for messages. Use as a context manager, or close it."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.traffic = Traffic()

    @abstractmethod
    def trim(self, before_step: int) -> None:
        """Removes every message to ranks and to everyone of steps below `before_step`.

        Messages to the coordinator stay until it drops them.
        """

    @abstractmethod
    def size_bytes(self) -> int:
        """Returns the bytes that the messages of this namespace take now."""

    def served_s(self) -> float | None:
        """Returns the CPU seconds of the one thread behind all messages so far.

        None: there is no such thread, or it does not tell.
        """
        return None

    @abstractmethod
    def destroy(self) -> None:
        """Removes the run's messages of all generations. The coordinator's, at the end."""

    def close(self) -> None:
        """Closes this process's handles; the messages stay. May be called twice."""
        return None
