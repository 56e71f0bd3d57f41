"""What this machine has for functions: memory and cores, and whether they suffice for all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dayfly.errors import RequestError


def machine_mib() -> int:
    """Memory of this machine with its swap, in MiB."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("MemTotal", "SwapTotal")) // 1024


def check_machine(memory_mib: int, machine: int) -> None:
    """Raise RequestError for a function's limit above the memory of the machine, both in MiB."""
    if memory_mib > machine:
        raise RequestError(
            f"functions of {memory_mib} MiB are larger than this machine, which has {machine} MiB: "
            "lower --memory, or --stage-memory of that stage"
        )


def overcommitted(sizes_mib: Sequence[int | None], machine: int) -> str | None:
    """Says it if this machine has less memory than all functions may take; None: not limited."""
    wanted = sum(size for size in sizes_mib if size is not None)
    if wanted <= machine:
        return None
    return (
        f"{len(sizes_mib)} functions may take {wanted} MiB together, and this machine has "
        f"{machine}: it runs out of memory before they reach their limits"
    )


def crowding(shares: Sequence[float | None]) -> str | None:
    """Says it if this machine has too few cores for all shares at once; None: not limited."""
    cores = len(os.sched_getaffinity(0))
    known = [share for share in shares if share is not None]
    if sum(known) <= cores:
        return None
    each = " and ".join(f"{share:.3g}" for share in dict.fromkeys(known))
    return (
        f"{len(known)} functions of {each} CPUs want {sum(known):.3g} cores, and "
        f"this machine has {cores}: they may be slower than asked for"
    )
