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

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dayfly.life.platforms.cgroups import Cgroup

#: Between two looks at a function, in seconds. They are for what the mark does not tell, and that
#: changes slowly.
LOOK_EVERY_S = 0.1

_SIZE = re.compile(r"^(VmHWM|VmRSS|RssAnon):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident memory of a process, in bytes. most: ever. anonymous: without what is a file's."""

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
    """What one function needs beside what it shares with its zygote, from looks at it.

    anonymous_bytes: what it had when it was forked, all of it the zygote's. cgroup: its memory's,
    if it has one; without, what it shares at first and writes to later is not counted.
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
        """The most that it needed. most_resident_bytes: the mark when it ended."""
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
        """rose: what it had more, for a moment."""
        self._most_bytes = max(self._most_bytes, self._needed_bytes + max(0, rose))

    def _needed(self, resident: Resident) -> int:
        if self._cgroup is not None:
            with suppress(OSError):  # somebody removed it
                return self._cgroup.kept_bytes()
        return max(0, resident.anonymous - self._shared_bytes)
