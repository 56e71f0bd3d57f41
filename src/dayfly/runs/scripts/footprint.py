"""A bounded look at the directories of a script, which tells whether it has written anything."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Entries that are looked at, of each place. Those near its top come first.
MOST_ENTRIES = 10_000
#: What running a script leaves behind by itself.
_NOT_THE_SCRIPTS = ("__pycache__",)


@dataclass(frozen=True, slots=True)
class Footprint:
    """State of a directory that changes when something is written below it.

    Attributes:
        entries: files and directories that were seen.
        newest_ns: time of the latest change, in Unix nanoseconds.
    """

    entries: int
    newest_ns: int


def footprint(
    places: Sequence[Path], *, without: Collection[Path] = (), most: int = MOST_ENTRIES
) -> tuple[Footprint, ...]:
    """Of each place, as of now; two that are equal mean that nothing was written in between.

    Hidden entries are passed over, and so are those of `without`, with what is below, and files to
    which this process's own output goes. A place that is not there has no entries.
    """
    passed: set[str | tuple[int, int]] = {os.path.abspath(path) for path in without}
    for fd in (1, 2):
        with suppress(OSError):
            status = os.fstat(fd)
            passed.add((status.st_dev, status.st_ino))
    return tuple(_look(place, passed, most) for place in places)


def _look(place: Path, passed: Collection[str | tuple[int, int]], most: int) -> Footprint:
    entries, newest_ns = 0, 0
    ahead = deque([os.path.abspath(place)])
    while ahead:
        try:
            with os.scandir(ahead.popleft()) as found:
                here = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue  # removed meanwhile, or not ours to read
        for entry in here:
            if entry.name.startswith(".") or entry.name in _NOT_THE_SCRIPTS:
                continue
            if entry.path in passed:
                continue
            if entries >= most:
                return Footprint(entries, newest_ns)
            try:
                status = entry.stat(follow_symlinks=False)
                below = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue
            if (status.st_dev, status.st_ino) in passed:
                continue
            entries += 1
            if below:
                ahead.append(entry.path)
            else:
                newest_ns = max(newest_ns, status.st_mtime_ns)
    return Footprint(entries, newest_ns)
