"""Watches the machine while functions are measured: what others took of it, and how fast it is.

    /proc/stat          | busy, of all processes | stolen by the host | idle |
    /proc/PID/stat      | dayfly's own | others' |

This process adopts the functions that it invokes (`life.platforms.processes.Subreaper`), so its
descendants, with those that it has waited for, are all of dayfly's.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from dayfly.planning.conditions import Conditions

#: The fixed piece of work: how often it is done, on how many bytes, and how long after each other.
#: A virtual processor may be a third faster for some tenths of a second, which is not its pace.
_TIMES, _WORK, _APART_S = 20, bytes(2**21), 0.1
#: Columns of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; see proc(5).
_IDLE, _STOLEN = (3, 4), 7


def pace_s(times: int = _TIMES) -> float:
    """Returns the mean CPU time of a fixed piece of work, some milliseconds, in seconds.

    Args:
        times: that it is done, ten a second.
    """
    found = []
    for number in range(times):
        if number:
            time.sleep(_APART_S)
        began = time.thread_time()
        hashlib.blake2b(_WORK).digest()
        found.append(time.thread_time() - began)
    return mean(found)


@dataclass(frozen=True, slots=True)
class _Ticks:
    """CPU time since the machine started, and the time when it was read, all in seconds."""

    at: float
    busy: float
    stolen: float
    own: float


class MachineWatch:
    """What others took of the machine's CPU time since this was made, and the machine's pace.

    Args:
        proc: where the kernel tells; another place in tests.
        pid: of the process whose descendants are dayfly's.
        times: as of `pace_s`.
    """

    def __init__(
        self, proc: Path = Path("/proc"), pid: int | None = None, times: int = _TIMES
    ) -> None:
        self._proc = proc
        self._pid = os.getpid() if pid is None else pid
        self._times = times
        self._paces = [pace_s(times)]
        self._other_cores: float | None = None
        self._began = self._read()

    def before_messages(self) -> None:
        """From now on others do not count: a server of the channel may be anybody's process."""
        self._other_cores = self.other_cores()
        self._paces.append(pace_s(self._times))

    def conditions(self, spread: float) -> Conditions:
        """Returns what was watched.

        Args:
            spread: of passes, as `Conditions` has it.
        """
        paces = (*self._paces, pace_s(self._times))
        return Conditions(
            stolen=self.stolen(), other_cores=self._other_cores, pace_s=paces, spread=spread
        )

    def stolen(self) -> float | None:
        """Returns the share of the CPU time that was wanted which the host gave to others; None: it
        is not known."""
        began, now = self._began, self._read()
        if began is None or now is None:
            return None
        stolen, busy = now.stolen - began.stolen, now.busy - began.busy
        return stolen / (stolen + busy) if stolen + busy > 0 else 0.0

    def other_cores(self) -> float | None:
        """Returns the cores on which processes computed that are not dayfly's; None as above."""
        began, now = self._began, self._read()
        if began is None or now is None or now.at <= began.at:
            return None
        others = (now.busy - began.busy) - (now.own - began.own)
        return max(0.0, others / (now.at - began.at))

    def _read(self) -> _Ticks | None:
        try:
            words = (self._proc / "stat").read_text().splitlines()[0].split()[1:9]
        except (OSError, IndexError):
            return None
        if len(words) <= _STOLEN:
            return None
        ticks = [int(word) / _HERTZ for word in words]
        busy = sum(ticks) - ticks[_STOLEN] - sum(ticks[at] for at in _IDLE)
        return _Ticks(time.monotonic(), busy, ticks[_STOLEN], self._own())

    def _own(self) -> float:
        """Of this process, its descendants, and those that these have waited for."""
        children: dict[int, list[int]] = defaultdict(list)
        used: dict[int, float] = {}
        for place in self._proc.glob("[0-9]*/stat"):
            try:
                text = place.read_text()
            except OSError:  # it has ended meanwhile
                continue
            # The name, in parentheses, may hold anything; after it: state, parent, ...
            fields = text.rpartition(")")[2].split()
            pid = int(place.parent.name)
            children[int(fields[1])].append(pid)
            used[pid] = sum(map(int, fields[11:15])) / _HERTZ
        total, left = 0.0, [self._pid]
        while left:
            pid = left.pop()
            total += used.get(pid, 0.0)
            left += children[pid]
        return total


_HERTZ = os.sysconf("SC_CLK_TCK")
