"""The messages that one server keeps, as they are used in its own process or over a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeVar

from dayfly.errors import WireError
from dayfly.wire.keys import Key

Result = TypeVar("Result")
#: Fills a buffer with the next bytes of a message.
Receive = Callable[[memoryview], object]
#: Reads a message of so many bytes.
Take = Callable[[Receive, int], Result]

#: Memory for bytes whose number was announced by another end is taken in pieces, as they come.
_PIECE_BYTES = 2**20


class Gone(WireError):
    """The run's messages were removed, or their server is closing."""


class Mailboxes(ABC):
    """What can be asked of a server. All methods may be called from several threads at once.

    Each raises Gone if the messages were removed, and WireError for what is refused. A `Client`
    also raises Unreachable if the server is not there, or Closed if this end was closed.
    """

    @abstractmethod
    def put(self, key: Key, *parts: bytes | memoryview) -> bool:
        """Stores a message, header and payload in parts; returns False if its key is taken."""

    @abstractmethod
    def get(self, key: Key, timeout_s: float, take: Take[Result]) -> tuple[Result, float]:
        """Waits for a message and reads it.

        Args:
            key: names the message.
            timeout_s: longest wait.
            take: reads the message. If it raises, the message counts as unread.

        Returns:
            What `take` returned, and the moment (`time.monotonic()`) at which the message was
            there.

        Raises:
            WaitTimeout: the message did not come.
        """

    @abstractmethod
    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        """Returns those of the keys whose messages are there."""

    @abstractmethod
    def waiting(self, destination: int) -> list[Key]:
        """Returns the keys of the messages to a destination, sorted."""

    @abstractmethod
    def drop(self, keys: Iterable[Key]) -> None:
        """Removes messages; those that are not there are passed over."""

    @abstractmethod
    def trim(self, before_step: int) -> None:
        """Removes the messages of earlier steps, but those to the coordinator."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Returns the bytes of all messages, and of those that are just coming in."""

    @abstractmethod
    def destroy(self) -> None:
        """Removes all messages for good: whoever waits or comes later is told."""


def receive_unknown(receive: Receive, length: int) -> bytes:
    """Returns so many bytes; memory is taken as they come, whatever was announced."""
    got = bytearray()
    while len(got) < length:
        piece = bytearray(min(_PIECE_BYTES, length - len(got)))
        receive(memoryview(piece))
        got += piece
    return bytes(got)
