"""CPU time of processes, by the kernel's clock of each: to the nanosecond, all threads together."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path


def cpu_s(pids: Iterable[int]) -> float:
    """Returns the CPU seconds of these processes so far, of those that still run."""
    return sum(map(_one_cpu_s, pids))


def others(ranks: Sequence[int]) -> tuple[int, ...]:
    """Returns this process and all that descend from it, but for the ranks and their own."""
    found, left = [], [os.getpid()]
    while left:
        pid = left.pop()
        if pid not in ranks:
            found.append(pid)
            left += _children(pid)
    return tuple(found)


def _one_cpu_s(pid: int) -> float:
    try:
        # CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) computes it.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:
        return []  # it ended
