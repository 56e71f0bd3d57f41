"""A server's messages: stored once, waited for, freed when all have read them.

Whoever waits for a message has a queue of its own, and a put hands the message to all of them. So a
message that its first reader frees reaches a second one, too, that was waiting at the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import numpy as np

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.keys import COORDINATOR, FOREVER, Key
from dayfly.wire.sockets.mailboxes import Gone, Mailboxes, Receive, Result, Take

#: Who reads a message that is freed once all of them have; None: it stays until it is dropped.
Readers = Callable[[Key], set[int] | None]


@dataclass(slots=True, eq=False)
class Message:
    """One message.

    Attributes:
        blob: header and payload.
        unread: ranks that are still to read it; None: nobody counts.
    """

    blob: memoryview
    unread: set[int] | None


class MessageTable(Mailboxes):
    """All messages of one server. All methods may be called from several threads at once.

    Args:
        readers: see `Readers`.
        owner: who reads by `get`, in the server's own process.
        limit_bytes: of all messages.
        patience_s: how long a put waits for others to be freed.
        full: the end of the error's sentence when none was: what to do.
    """

    def __init__(
        self,
        readers: Readers,
        *,
        owner: int = COORDINATOR,
        limit_bytes: int,
        patience_s: float = 0.0,
        full: str,
    ) -> None:
        self.limit_bytes = limit_bytes
        self._owner = owner
        self._readers = readers
        self._patience_s = patience_s
        self._full = full
        self._mailboxes: dict[int, dict[Key, Message]] = {}
        self._waiters: dict[Key, list[SimpleQueue[Message | WireError]]] = {}
        self._failures: dict[Key, str] = {}
        self._bytes = 0
        self._gone = False
        self._changed = threading.Condition()  # of what is stored, when something was freed

    def reserve(self, nbytes: int) -> None:
        """Make sure of room for a message to come. Raises WireError if there is none in time."""
        with self._changed:
            self._check()
            if self._bytes + nbytes > self.limit_bytes:
                self._changed.wait_for(
                    lambda: self._gone or self._bytes + nbytes <= self.limit_bytes,
                    self._patience_s,
                )
                self._check()
                if self._bytes + nbytes > self.limit_bytes:
                    raise WireError(self._no_room(nbytes))
            self._bytes += nbytes

    def release(self, nbytes: int) -> None:
        """Give room back that was reserved and is not needed."""
        with self._changed:
            self._free(nbytes)

    def put(self, key: Key, *parts: bytes | memoryview) -> bool:
        if self.stored([key]):
            return False
        sizes = [len(part) for part in parts]
        self.reserve(sum(sizes))
        try:
            blob = np.concatenate([np.frombuffer(part, np.uint8) for part in parts])
        except BaseException:
            self.release(sum(sizes))
            raise
        return self.keep(key, blob.data)

    def get(self, key: Key, timeout_s: float, take: Take[Result]) -> tuple[Result, float]:
        message = self.wait(key, timeout_s)
        if message is None:
            raise WaitTimeout("it is not there")
        there_s = time.monotonic()
        result = take(_receiver(message.blob), message.blob.nbytes)
        self.read(key, message, self._owner)
        return result, there_s

    def keep(self, key: Key, blob: memoryview) -> bool:
        """Store a message in the room that was reserved for it, unless the key is there."""
        with self._changed:
            if self._gone or key in self._mailboxes.get(key.destination, ()):
                self._free(blob.nbytes)
                self._check()
                return False
            message = Message(blob, self._readers(key) or None)
            self._mailboxes.setdefault(key.destination, {})[key] = message
            for waiter in self._waiters.pop(key, ()):
                waiter.put(message)
            return True

    def wait(self, key: Key, timeout_s: float) -> Message | None:
        """Wait for a message; None if it does not come in time.

        Raises Gone, and WireError for a message that never will.
        """
        with self._changed:
            self._check()
            if (why := self._failures.get(key)) is not None:
                raise WireError(why)
            message = self._find(key)
            if message is not None or timeout_s <= 0:
                return message
            waiter: SimpleQueue[Message | WireError] = SimpleQueue()
            self._waiters.setdefault(key, []).append(waiter)
        try:
            came = waiter.get(timeout=timeout_s)
        except Empty:
            with self._changed:
                waiters = self._waiters.get(key, [])
                if waiter in waiters:
                    waiters.remove(waiter)
                    if not waiters:
                        del self._waiters[key]
                    return None
            came = waiter.get()  # it came meanwhile
        if isinstance(came, WireError):
            raise came
        return came

    def read(self, key: Key, message: Message, rank: int) -> None:
        """A rank has read a message; when all have that are to, it is freed."""
        with self._changed:
            if message.unread is not None:
                message.unread.discard(rank)
                if not message.unread and self._find(key) is message:
                    self._remove(key)

    def fail(self, key: Key, why: str) -> None:
        """A message will never come: tell so whoever waits for it, now or later."""
        with self._changed:
            self._failures[key] = why
            for waiter in self._waiters.pop(key, ()):
                waiter.put(WireError(why))

    def failure(self, key: Key) -> str | None:
        """Why a message will never come, if that is so."""
        with self._changed:
            return self._failures.get(key)

    def stored(self, keys: Iterable[Key]) -> frozenset[Key]:
        with self._changed:
            self._check()
            return frozenset(key for key in keys if self._find(key) is not None)

    def waiting(self, destination: int) -> list[Key]:
        with self._changed:
            self._check()
            return sorted(self._mailboxes.get(destination, ()))

    def drop(self, keys: Iterable[Key]) -> None:
        with self._changed:
            self._check()
            for key in keys:
                if self._find(key) is not None:
                    self._remove(key)

    def trim(self, before_step: int) -> None:
        before_step = min(before_step, FOREVER)
        with self._changed:
            self._check()
            for destination, mailbox in self._mailboxes.items():
                if destination != COORDINATOR:
                    for key in [key for key in mailbox if key.step < before_step]:
                        self._remove(key)
            for key in [key for key in self._failures if key.step < before_step]:
                del self._failures[key]

    def size_bytes(self) -> int:
        with self._changed:
            self._check()
            return self._bytes

    def destroy(self) -> None:
        with self._changed:
            self._gone = True
            self._mailboxes.clear()
            for waiters in self._waiters.values():
                for waiter in waiters:
                    waiter.put(_gone())
            self._waiters.clear()
            self._bytes = 0
            self._changed.notify_all()

    def wait_until_read(self, timeout_s: float) -> bool:
        """Whether all messages were read that are freed by it, or all is gone; waits for it."""
        with self._changed:
            return self._changed.wait_for(lambda: self._gone or not self._unread(), timeout_s)

    def _unread(self) -> bool:
        return any(
            message.unread for mailbox in self._mailboxes.values() for message in mailbox.values()
        )

    def _find(self, key: Key) -> Message | None:
        return self._mailboxes.get(key.destination, {}).get(key)

    def _remove(self, key: Key) -> None:
        self._free(self._mailboxes[key.destination].pop(key).blob.nbytes)

    def _free(self, nbytes: int) -> None:
        if not self._gone:
            self._bytes -= nbytes
        self._changed.notify_all()

    def _check(self) -> None:
        if self._gone:
            raise _gone()

    def _no_room(self, nbytes: int) -> str:
        mib, waited = 2**20, f" after {self._patience_s:g} s" if self._patience_s else ""
        unread = [
            f"{key}, by {', '.join(map(str, sorted(message.unread)))}"
            for mailbox in self._mailboxes.values()
            for key, message in mailbox.items()
            if message.unread
        ]
        oldest = f"; not read: {min(unread)}" if unread and self._patience_s else ""
        return (
            f"no room for {nbytes / mib:.1f} MiB{waited}: messages take {self._bytes / mib:.1f} of "
            f"{self.limit_bytes / mib:.1f} MiB{oldest}; {self._full}"
        )


def _receiver(blob: memoryview) -> Receive:
    """Gives the bytes of a message one piece after another."""
    left = np.frombuffer(blob, np.uint8)

    def receive(into: memoryview) -> None:
        nonlocal left
        np.frombuffer(into, np.uint8)[:] = left[: into.nbytes]
        left = left[into.nbytes :]

    return receive


def _gone() -> Gone:
    return Gone("the run's messages were removed")
