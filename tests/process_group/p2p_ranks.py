"""Ranks in one process that send each other messages, and calls whose end can be waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from dayfly.wire.channels.base import Channel
from dayfly.wire.channels.conformance import NAMESPACE, SOON_S
from dayfly.wire.keys import Key
from dayfly.wire.process_group.p2p import PointToPoint
from tests.channels.places import PLACES

#: Channels of different kinds: in memory, behind a line, at a server, from rank to rank, asked.
KINDS = ["files-tmpfs", "files-shaped", "redis", "tcp", "directory"]
#: Elements of four bytes that are worth a message of their own here.
CHUNK = 64


class Call:
    """What `done` was told: once, from which thread, and what."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self.told: list[tuple[Any, ...]] = []
        self.thread: threading.Thread | None = None

    def __call__(self, *told: Any) -> None:
        self.told.append(told)
        self.thread = threading.current_thread()
        self._over.set()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def error(self) -> BaseException | None:
        """Wait for the end, and return the error."""
        assert self._over.wait(SOON_S), "done was never called"
        error: BaseException | None = self.told[0][0]
        return error

    def result(self) -> None:
        """Wait for the end, and raise the error."""
        if (error := self.error()) is not None:
            raise error


class Member:
    """One rank's messages, as calls."""

    def __init__(self, channel: Channel, p2p: PointToPoint) -> None:
        self.channel = channel
        self.p2p = p2p
        self.calls: list[Call] = []

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> Call:
        return self._call(lambda call: self.p2p.send(tensor, to, tag, call))

    def recv(self, tensor: torch.Tensor, source: int, tag: int = 0) -> Call:
        return self._call(lambda call: self.p2p.recv(tensor, source, tag, call))

    def recv_any(self, tensor: torch.Tensor, tag: int = 0) -> Call:
        return self._call(lambda call: self.p2p.recv_any(tensor, tag, call))

    def _call(self, begin: Callable[[Call], None]) -> Call:
        call = Call()
        begin(call)
        self.calls.append(call)
        return call


class Office:
    """Ranks 0 to n-1 at one place."""

    def __init__(self, kind: str, stack: ExitStack, size: int) -> None:
        self.kind = kind
        self._stack = stack
        self._size = size
        self._place = stack.enter_context(PLACES[kind]())
        self.coordinators = stack.enter_context(self._place.make(NAMESPACE))
        self.members = [self.member(rank) for rank in range(size)]

    def member(
        self,
        rank: int,
        *,
        timeout_s: float = SOON_S,
        check: Callable[[], None] = lambda: None,
        wrap: Callable[[Channel], Channel] = lambda channel: channel,
    ) -> Member:
        channel = self._stack.enter_context(self._place.open(NAMESPACE, rank))
        channel.abilities = replace(channel.abilities, chunk_bytes=4 * CHUNK)
        channel = wrap(channel)
        p2p = PointToPoint(channel, rank, self._size, timeout_s=timeout_s, check=check)
        self._stack.enter_context(p2p)
        return Member(channel, p2p)

    def left(self) -> list[Key]:
        """The messages that nobody read."""
        return [key for rank in range(self._size) for key in self.coordinators.waiting(rank)]


@contextmanager
def office(kind: str = "files-tmpfs", size: int = 3) -> Iterator[Office]:
    """Open until the end; then each call was over once, and no thread is left."""
    before = threads()
    with ExitStack() as stack:
        made = Office(kind, stack, size)
        yield made
        for member in made.members:
            member.p2p.close()
        for member in made.members:
            for call in member.calls:
                call.error()
                assert len(call.told) == 1
    assert not threads() - before


def threads() -> set[threading.Thread]:
    """Threads of such messages."""
    return {one for one in threading.enumerate() if one.name.startswith("dayfly-p2p")}
