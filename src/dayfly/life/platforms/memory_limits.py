"""How the local platform makes a memory limit bite.

The limit means the whole function: also the interpreter and torch, which a function shares with the
zygote that it was forked from. So what is enforced is the rest: limit - base, where base is the
zygote's resident memory after its imports.

By cgroup the kernel kills at the limit, whatever uses the memory. By RLIMIT_DATA an allocation
beyond the limit fails in the function, and its children have the limit each for themselves.
"""

from __future__ import annotations

import errno
import math
import os
import resource
from pathlib import Path

from dayfly.errors import RequestError

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
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise OSError("no Rss in /proc/self/smaps_rollup")


def anonymous_bytes() -> int:
    """Memory of this process that is no file's, in microseconds."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("no RssAnon in /proc/self/status")


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
