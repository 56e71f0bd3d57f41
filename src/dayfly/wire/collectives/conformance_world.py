"""A whole world in one process, for `conformance`: an engine a rank, each in a thread."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from dayfly.wire.buffers import Buffer
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.collectives import Collective
from dayfly.wire.collectives.push_pull import serve
from dayfly.wire.engine import Engine
from dayfly.wire.keys import EVERYONE, SERVER, Key
from dayfly.wire.schedule import Name, Op, Schedule

#: Seconds until a test is hung rather than slow; nothing waits that long when all is well.
SOON_S = 30.0
OPERATION = "grad"


class LinkedChannel(FileChannel):
    """As if a link were between: uplink and downlink beside each other, several requests each."""

    immediate = False
    abilities = Abilities(in_flight=3)


class World:
    """Ranks 0 to n-1. Every all-reduce is a new step unless one is given.

    Args:
        root: of the channel.
        collective: to be run.
        size: number of ranks.
        stack: closes what is opened.
        chunk: four-byte elements that are worth a message.
    """

    def __init__(
        self, stack: ExitStack, root: Path, collective: Collective, size: int, chunk: int
    ) -> None:
        self.size = size
        self.chunk = chunk
        self.collective = collective
        self.root = root
        self.stack = stack
        self.channels: list[Channel] = []
        self.engines: list[Engine] = []
        coordinators = FileChannel.make(
            root, Namespace("run", 0), senders=size, budget_bytes=2**26, ahead_bytes=2**18
        )
        stack.enter_context(coordinators)
        for rank in range(size):
            channel, engine = self.worker(rank)
            self.channels.append(channel)
            self.engines.append(engine)
        self._server = self._made_server() if collective.server and size > 1 else None
        self.step = -1

    def worker(
        self, rank: int, observe: Callable[[Op], None] | None = None
    ) -> tuple[Channel, Engine]:
        """A (new) worker of this rank; it is closed with the world."""
        # In every other world as over a link, uplink and downlink beside each other.
        kind = LinkedChannel if self.size % 2 else FileChannel
        channel = kind(self.root, Namespace("run", 0))
        channel.abilities = replace(channel.abilities, chunk_bytes=4 * self.chunk, in_flight=3)
        self.stack.enter_context(channel)
        engine = Engine(
            channel, self.collective, rank, self.size, timeout_s=SOON_S, observe=observe
        )
        return channel, self.stack.enter_context(engine)

    def sums(self, length: int) -> set[Name]:
        """The messages that hold the result of summing so many elements."""
        return set(self.collective.sums(self.size, length, self.chunk))

    def _made_server(self) -> Engine:
        """A server that sums, over a channel that does not: an engine that runs its schedule."""

        def schedule(
            rank: int,
            world_size: int,
            length: int,
            stored: Set[Name] = frozenset(),
            *,
            chunk: int = 1,
        ) -> Schedule:
            return serve(world_size, length, chunk=chunk)

        channel = FileChannel(self.root, Namespace("run", 0))
        channel.abilities = replace(channel.abilities, chunk_bytes=4 * self.chunk)
        self.stack.enter_context(channel)
        server = Collective(schedule=schedule, sums=self.collective.sums)
        engine = Engine(channel, server, SERVER, self.size, timeout_s=SOON_S)
        return self.stack.enter_context(engine)

    def all_reduce(
        self, inputs: list[torch.Tensor], stored: Set[Name] | None = None, step: int | None = None
    ) -> list[torch.Tensor]:
        """Each rank's result, from copies of the ranks' inputs."""
        return self.sum_up([buffer.clone() for buffer in inputs], stored, step)

    def sum_up(
        self, buffers: Sequence[Buffer], stored: Set[Name] | None = None, step: int | None = None
    ) -> list[torch.Tensor]:
        """Each rank's result, in its buffer."""
        if step is None:
            self.step += 1
            step = self.step
        with ThreadPoolExecutor(self.size + 1) as pool:
            calls = [
                pool.submit(engine.all_reduce, buffer, step, OPERATION, stored)
                for engine, buffer in zip(self.engines, buffers, strict=True)
            ]
            if self._server is not None:
                scratch = torch.empty(buffers[0].numel(), dtype=buffers[0].dtype)
                calls.append(pool.submit(self._server.all_reduce, scratch, step, OPERATION))
            for call in calls:
                call.result(2 * SOON_S)
        return [buffer[0 : buffer.numel()] for buffer in buffers]

    def left(self) -> set[Name]:
        """The messages of the latest step that are in the channel."""
        mailboxes = (*range(self.size), EVERYONE, SERVER)
        keys = [key for mailbox in mailboxes for key in self.channels[0].waiting(mailbox)]
        return {_name(key) for key in keys if key.step == self.step}

    def drop(self, names: Set[Name]) -> None:
        """Remove messages of the latest step."""
        keys = [_key(self.step, name) for name in names]
        self.channels[0].drop(keys)


@contextmanager
def world(collective: Collective, size: int, chunk: int = 2**14) -> Iterator[World]:
    """A world on tmpfs, closed and removed at the end."""
    with ExitStack() as stack:
        root = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="dayfly-test-", dir="/dev/shm")
        )
        yield World(stack, Path(root), collective, size, chunk)


def random_inputs(size: int, length: int, seed: int) -> list[torch.Tensor]:
    """Numbers of very different magnitude, so that the order of the sum shows in its bits."""
    random = torch.Generator().manual_seed(seed)
    return [
        torch.randn(length, generator=random)
        * 10.0 ** torch.randint(-6, 7, (length,), generator=random)
        for _ in range(size)
    ]


def sum_in_order(inputs: list[torch.Tensor], ranks: Iterable[int]) -> torch.Tensor:
    """((input of the first + input of the second) + input of the third) + …"""
    first, *others = ranks
    total = inputs[first].clone()
    for rank in others:
        total += inputs[rank]
    return total


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal in type, shape and every bit."""
    return one.dtype is other.dtype and torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def _key(step: int, name: Name) -> Key:
    return Key(step, f"{OPERATION}-{name.phase}", name.source, name.destination)


def _name(key: Key) -> Name:
    return Name(key.operation.removeprefix(f"{OPERATION}-"), key.source, key.destination)
