"""Ranks as processes of their own, at one place of messages."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from dayfly.wire.channels.conformance import SOON_S, ChannelPlace

#: Ranks are forked from a server without other threads, which has imported what they need.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "pytest", __name__])


def in_processes(
    target: Callable[[ChannelPlace, int, int, Connection], None],
    place: ChannelPlace,
    world_size: int = 3,
) -> list[Any]:
    """What the ranks send of it, in their order; all of them end well."""
    ends, processes = [], []
    try:
        for rank in range(world_size):
            end, theirs = CONTEXT.Pipe(duplex=False)
            process = CONTEXT.Process(target=target, args=(place, rank, world_size, theirs))
            process.start()
            theirs.close()
            ends.append(end)
            processes.append(process)
        found = [end.recv() if end.poll(3 * SOON_S) else "nothing" for end in ends]
        for process in processes:
            process.join(SOON_S)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
    return found
