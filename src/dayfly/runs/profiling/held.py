"""The memory that something takes while it lasts, as the kernel saw it.

    give back what the C library keeps | note what is resident | forget the mark | do it | the mark

Without giving back, what was freed before would serve, and would not be seen. The mark is the most
that was resident since it was forgotten (proc(5), clear_refs). A platform that watches the same
mark only learns less of this moment.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

from dayfly.life.platforms.footprint import Resident

_MIB = 2**20
#: Makes the mark what is resident now.
_FORGET = "5"
#: Other threads may hold something at a moment.
_TIMES = 3


def held_mib(work: Callable[[], object]) -> float | None:
    """The most memory that it takes beside what is there before, in MiB, the median of a few times;
    None: the kernel, or the C library, does not tell. Done once before, so that what stays of it is
    there."""
    work()
    trim = _trim()
    if trim is None:
        return None
    found = [_once(work, trim) for _ in range(_TIMES)]
    known = [one for one in found if one is not None]
    return median(known) if len(known) == _TIMES else None


def _once(work: Callable[[], object], trim: Callable[[int], int]) -> float | None:
    trim(0)
    before = Resident.of("self")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_FORGET)
        work()
        after = Resident.of("self")
        if before is not None and after is not None:
            return max(0.0, (after.most - before.now) / _MIB)
    return None


def _trim() -> Callable[[int], int] | None:
    """Gives back to the kernel what is free in the C library's heaps; only glibc has it."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return lambda pad: int(trim(ctypes.c_size_t(pad)))
