"""Ranks as processes of their own, at one place of messages."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests.channels.places import SOON_S, Place


def in_processes(target: Callable[[Place, int, int, Connection], None], place: Place) -> list[Any]:
    """What three ranks send of it; all of them end well."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "dayfly.wire.channels.files"])
    ends, processes = [], []
    for rank in range(3):
        end, theirs = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(place, rank, 3, theirs), daemon=True)
        process.start()
        theirs.close()
        ends.append(end)
        processes.append(process)
    found = [end.recv() if end.poll(3 * SOON_S) else "nothing" for end in ends]
    for process in processes:
        process.join(SOON_S)
        assert process.exitcode == 0
    return found
