"""Which bytes of an arena are free. Pure: it knows numbers, not memory.

The lowest address that fits is given: pages that were used before are in the processor's cache and
are touched, where fresh ones cost a page fault each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class Arena:
    """Free space in 0 to `size`, kept as gaps that never touch each other.

    taken: (start, stop) of what is not free. Raises ValueError if two of these overlap.
    """

    def __init__(self, size: int, taken: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        reached = 0
        for start, stop in sorted(taken):
            if not reached <= start < stop <= size:
                raise ValueError(
                    f"{start} to {stop} overlaps another, or is not within 0 to {size}"
                )
            self._append(reached, start)
            reached = stop
        self._append(reached, size)

    def allocate(self, size: int) -> int | None:
        """The start of `size` free bytes, which are taken now; None if no gap is so large."""
        for at, start in enumerate(self._starts):
            stop = self._stops[at]
            if stop - start >= size:
                if stop - start == size:
                    del self._starts[at], self._stops[at]
                else:
                    self._starts[at] = start + size
                return start
        return None

    def free(self, start: int, size: int) -> None:
        """Give back what was taken. Raises ValueError if any of it is free already."""
        stop = start + size
        at = bisect_left(self._starts, start)
        starts, stops = self._starts, self._stops
        if (at and stops[at - 1] > start) or (at < len(starts) and starts[at] < stop):
            raise ValueError(f"{start} to {stop} is free already, at least in part")
        joins_before = at > 0 and stops[at - 1] == start
        joins_after = at < len(starts) and starts[at] == stop
        if joins_before and joins_after:
            stops[at - 1] = stops[at]
            del starts[at], stops[at]
        elif joins_before:
            stops[at - 1] = stop
        elif joins_after:
            starts[at] = start
        else:
            starts.insert(at, start)
            stops.insert(at, stop)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """(start, stop) of the free space, in order."""
        return list(zip(self._starts, self._stops, strict=True))

    def _append(self, start: int, stop: int) -> None:
        if start < stop:
            self._starts.append(start)
            self._stops.append(stop)
