"""How much memory a function needs: the most of it that the kernel could not take back at once.

A cgroup's own maximum counts the pages of files that were read and written, too, up to the limit;
the kernel takes them back before it kills. So the owner of a function looks at it now and then, at
what it has beside such pages. What it had between two looks is told by the high-water mark of its
resident memory:

    needed now   anonymous and shared memory, page tables, stacks      by cgroup, or of the process
    needed most  the greatest of  needed now + (mark - resident now),  if the mark rose since the
                 look before: pages of libraries and messages, in both, hardly change meanwhile

A limit below this kills, as does none that is a little above (benchmarks/parts/footprints.py).
"""

from __future__ import annotations

import errno
import math
import os
import re
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dayfly.errors import RequestError
from dayfly.life.platforms.cgroups import Cgroup

MIB = 2**20
#: What to tell a user whose functions are limited so.
BY_RLIMIT = (
    "memory is limited by RLIMIT_DATA, as this user may make no cgroups: an allocation beyond the "
    "limit fails, and each child of a function has the limit for itself"
)
#: What a function must have beside its base to start at all, in bytes.
LEAST_OWN_BYTES = 16 * MIB


def least_mib(base_bytes: int) -> int:
    """The smallest memory limit that works with this base, in MiB."""
    return math.ceil((base_bytes + LEAST_OWN_BYTES) / MIB)


def own_bytes(function: str, memory_mib: int, base_bytes: int) -> int:
    """What a function may use beside its base. Raises RequestError if that is not enough."""
    if memory_mib < least_mib(base_bytes):
        raise RequestError(
            f"{function} has {memory_mib} MiB, but the interpreter, torch and the preloaded "
            f"modules alone take {math.ceil(base_bytes / MIB)} MiB here: "
            f"give it at least {least_mib(base_bytes)} MiB"
        )
    return memory_mib * MIB - base_bytes


def resident_bytes() -> int:
    """Resident memory of this process; exact, where /proc/self/status is not (per-CPU counts)."""
    return _of_this_process("smaps_rollup", "Rss")


def anonymous_bytes() -> int:
    """Memory of this process that is no file's, in microseconds."""
    return _of_this_process("status", "RssAnon")


def _of_this_process(file: str, name: str) -> int:
    """Returns a figure of a file of /proc/self, in bytes."""
    for line in Path(f"/proc/self/{file}").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in /proc/self/{file}")


def limit_data_of_this_process(own_bytes: int) -> None:
    """Let this process allocate `own_bytes` beyond what it has mapped now.

    Only the soft limit is set, so that `lift_data_limit` can make room for the error report.
    """
    data_pages = int(Path("/proc/self/statm").read_text().split()[5])
    limit = data_pages * os.sysconf("SC_PAGE_SIZE") + own_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def lift_data_limit() -> None:
    """Undo `limit_data_of_this_process`."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def is_memory_error(error: BaseException) -> bool:
    """Whether an exception says that an allocation failed."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError):  # torch and C++
        text = str(error).lower()
        return any(sign in text for sign in _MEMORY_SIGNS)
    return False


_MEMORY_SIGNS = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
)


#: Between two looks at a function, in seconds. They are for what the mark does not tell, and that
#: changes slowly.
LOOK_EVERY_S = 0.1

_SIZE = re.compile(r"^(VmHWM|VmRSS|RssAnon):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident memory of a process, in bytes.

    Args:
        most: ever.
        anonymous: without what is a file's.
    """

    most: int
    now: int
    anonymous: int

    @property
    def of_files(self) -> int:
        """Pages of files, and of memory that is shared as a file is."""
        return self.now - self.anonymous

    @classmethod
    def of(cls, pid: int | str) -> Resident | None:
        """As /proc tells; None of a process that has ended."""
        with suppress(OSError):
            found = dict(_SIZE.findall(Path(f"/proc/{pid}/status").read_text()))
            if len(found) == len(cls.__slots__):
                kib = (int(found[name]) for name in ("VmHWM", "VmRSS", "RssAnon"))
                return cls(*(1024 * one for one in kib))
        return None


class Footprint:
    """The memory that one function needs beside what it shares with its zygote.

    Args:
        anonymous_bytes: its memory when it was forked, all of it the zygote's.
        cgroup: of its memory; None: memory that it shares at first and writes to later is not
            counted.
    """

    def __init__(self, pid: int, anonymous_bytes: int, cgroup: Cgroup | None) -> None:
        self._pid = pid
        self._shared_bytes = anonymous_bytes
        self._cgroup = cgroup
        self._needed_bytes = self._most_bytes = 0
        self._last: Resident | None = None

    def look(self) -> None:
        """Look at the process, if it is there."""
        if (resident := Resident.of(self._pid)) is not None:
            self._see(resident, self._needed(resident))

    def told(self, resident: Resident) -> None:
        """What the function itself says, as it ends: it may have done much since the last look."""
        if self._last is not None:
            more = resident.anonymous - self._last.anonymous
            self._see(resident, max(0, self._needed_bytes + more))

    def most_bytes(self, most_resident_bytes: int) -> int:
        """The most that it needed.

        Args:
            most_resident_bytes: the mark when it ended.
        """
        if self._last is not None and most_resident_bytes > self._last.most:
            self._add(most_resident_bytes - self._last.now)
        return self._most_bytes

    def _see(self, resident: Resident, needed_bytes: int) -> None:
        last = self._last or resident
        self._last, self._needed_bytes = resident, needed_bytes
        rose = 0
        if resident.most > last.most:
            of_files = max(last.of_files, resident.of_files)
            rose = resident.most - of_files - resident.anonymous
        self._add(rose)

    def _add(self, rose: int) -> None:
        """Notes that the memory rose by `rose` for a moment."""
        self._most_bytes = max(self._most_bytes, self._needed_bytes + max(0, rose))

    def _needed(self, resident: Resident) -> int:
        if self._cgroup is not None:
            with suppress(OSError):  # somebody removed it
                return self._cgroup.kept_bytes()
        return max(0, resident.anonymous - self._shared_bytes)
