"""Giving a part of a file its pages, before others use it, and at their expense.

Small pages cost whoever maps them a fault each, 1.4 us for 4 KiB: more than the copying. Linux can
make huge ones of 2 MiB in one go, also where files in memory usually have none (`MADV_COLLAPSE`,
since 6.1); where it cannot, or will not, small ones it is, to the same effect.
"""

from __future__ import annotations

import ctypes
import os

from dayfly.wire.segments.layout import HUGE_BYTES

_COLLAPSE = 25
#: Written at once.
_PIECE_BYTES = 2**20

# Other threads run meanwhile, which they do not while `mmap.madvise` is at it.
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_madvise.restype = ctypes.c_int


def touch(fd: int, at: int, size: int) -> None:
    """Give a part of a file that was never used its pages. Raises OSError on a full disk.

    By writing: a page of a file that is only mapped would kill its user on a full disk.
    """
    zeros = memoryview(bytes(min(size, _PIECE_BYTES)))
    for start in range(at, at + size, _PIECE_BYTES):
        write(fd, start, zeros[: at + size - start])


def touch_huge(fd: int, at: int, address: int, used: int) -> bool:
    """Give `HUGE_BYTES` from `at` on one huge page, if that can be done.

    address: where that part of the file is mapped. used: bytes of it that have pages already.
    Returns False if it cannot be done; there is no harm in that. Raises OSError on a full disk.
    """
    if at % HUGE_BYTES or address % HUGE_BYTES:
        return False
    if not used:
        write(fd, at, bytes(1))  # there has to be something to make it of
    return bool(_madvise(address, HUGE_BYTES, _COLLAPSE) == 0)


def write(fd: int, at: int, data: bytes | memoryview) -> None:
    """Write all of it at a place in a file. Raises OSError on a full disk."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written
