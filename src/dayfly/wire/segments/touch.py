"""Giving a part of a file its pages, before others use it, and at their expense.

Huge pages of 2 MiB, made by `MADV_COLLAPSE`, would spare whoever maps them a fault for each 4 KiB.
But while all processors compute, making one took 6 ms, and small ones of the same size took 1 ms;
steps took longer by as much.
"""

from __future__ import annotations

import os

#: Written at once.
_PIECE_BYTES = 2**20


def touch(fd: int, at: int, size: int) -> None:
    """Give a part of a file that was never used its pages. Raises OSError on a full disk.

    By writing: a page of a file that is only mapped would kill its user on a full disk.
    """
    zeros = memoryview(bytes(min(size, _PIECE_BYTES)))
    for start in range(at, at + size, _PIECE_BYTES):
        write(fd, start, zeros[: at + size - start])


def write(fd: int, at: int, data: bytes | memoryview) -> None:
    """Write all of it at a place in a file. Raises OSError on a full disk."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written
