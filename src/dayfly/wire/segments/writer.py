"""Puts messages into a segment: one writer at a time, whichever it is, killed at any moment.

    lock     of the file, by the kernel, which releases it when a writer dies
    look     is the address there already? Then the first put has won
    room     the lowest free place in the arena, and a free entry
    copy     payload and header
    commit   fill the entry, make it findable, and write its commit word last

A message without its commit word does not count. A writer that finds another's number in the header
rebuilds what it knows from the committed entries, and so takes back what a killed one left.

The lowest free address that fits is given: pages that were used before are in the processor's cache
and have memory, where fresh ones cost a page fault each.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import secrets
import shutil
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from pathlib import Path

from dayfly.errors import MessagesRemoved, NoRoom, WireError
from dayfly.wire.segments import layout
from dayfly.wire.segments.layout import ENTRY_BYTES, ENTRY_WORDS
from dayfly.wire.segments.segment import Segment


class Arena:
    """Free space in 0 to `size`, kept as gaps that never touch each other.

    Args:
        taken: (start, stop) of what is not free.

    Raises:
        ValueError: two of these overlap.
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


#: How long a writer waits for the coordinator to touch fresh pages, in seconds.
ROOM_TIMEOUT_S = 60.0
#: Dropped messages are looked for after so many bytes or messages, if not for want of room.
_TIDY_BYTES, _TIDY_MESSAGES = 2**20, 64


class SegmentWriter:
    """Writes into one segment.

    Args:
        ask: called when fresh pages are needed, to wake who touches them.
    """

    def __init__(self, segment: Segment, ask: Callable[[], None]) -> None:
        self._segment = segment
        self._ask = ask
        self._fd = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._pid = os.getpid()
        self._id = secrets.randbits(63) | 1
        self._lock = threading.Lock()
        # What is known of the segment, as long as nobody else wrote and nothing went wrong.
        self._sure = False
        self._arena = Arena(0)
        self._free_slots: list[int] = []
        self._next_slot = 0
        #: slot -> digest, and place and room in the arena
        self._taken: dict[int, tuple[int, int, int]] = {}
        self._drops_seen = 0
        self._bytes_since = self._messages_since = 0

    def put(self, address: bytes, digest: int, size: int, copy: Callable[[int], None]) -> bool:
        """Stores a message.

        Args:
            size: of the message, in bytes.
            copy: copies it to its place in the file.

        Returns:
            False if the address is taken.

        Raises:
            NoRoom: there is room only once messages are dropped.
            WireError: there is no room at all.
        """
        if os.getpid() != self._pid:
            raise WireError(f"the channel was opened by process {self._pid}: open it in this one")
        with self._lock:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                return self._put(address, digest, size, copy)
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _put(self, address: bytes, digest: int, size: int, copy: Callable[[int], None]) -> bool:
        segment = self._segment
        words = segment.words
        if words[layout.W_GONE]:
            raise self._gone()
        if not self._sure or words[layout.W_WRITER] != self._id:
            self._take_over()
        if segment.find(address, digest) is not None:
            return False
        self._sure = False  # until all is done: an exception may come at any place
        room = layout.room_for(size)
        offset = self._allocate(room)
        slot = self._allocate_slot()
        copy(segment.arena_at + offset)
        self._fill(slot, layout.pack_entry(address, digest, offset, size))
        segment.insert(digest, slot)
        self._taken[slot] = digest, offset, room
        self._commit(slot)
        self._sure = True
        return True

    def _fill(self, slot: int, entry: bytes) -> None:
        at = self._segment.entries_at + slot * ENTRY_BYTES
        self._segment.map[at : at + ENTRY_BYTES] = entry

    def _commit(self, slot: int) -> None:
        words = self._segment.words
        words[layout.W_SEQUENCE] = sequence = words[layout.W_SEQUENCE] + 1
        words[self._word(slot)] = sequence

    def _word(self, slot: int) -> int:
        return self._segment.first_entry_word + slot * ENTRY_WORDS

    def _allocate(self, room: int) -> int:
        """A place in the arena whose pages are touched."""
        words = self._segment.words
        self._bytes_since += room
        self._messages_since += 1
        if self._bytes_since >= _TIDY_BYTES or self._messages_since >= _TIDY_MESSAGES:
            self._take_back()
        if room > self._segment.layout.arena_bytes:
            raise self._too_large()
        offset = self._arena.allocate(room)
        if offset is None or offset + room > words[layout.W_TOUCHED_BYTES]:
            if offset is not None:
                self._arena.free(offset, room)
            self._take_back()
            offset = self._arena.allocate(room)
        if offset is None:
            raise self._full(self._over_budget)
        stop = offset + room
        # First of all, as it may be refused, and the next one is then to ask again.
        if stop > words[layout.W_TOUCHED_BYTES]:
            self._await_touched(layout.W_TOUCHED_BYTES, layout.W_WANTED_BYTES, stop)
        if stop > words[layout.W_USED_BYTES]:
            words[layout.W_USED_BYTES] = stop
            if stop > words[layout.W_ASK_BYTES]:
                self._ask()
        return offset

    def _allocate_slot(self) -> int:
        words = self._segment.words
        if not self._free_slots and self._next_slot == self._segment.layout.slots:
            self._take_back()
            if not self._free_slots:
                raise self._full(f"{self._next_slot} messages of one worker wait there")
        if self._free_slots:
            slot = heapq.heappop(self._free_slots)
        else:
            slot = self._next_slot
            self._next_slot += 1
        if slot >= words[layout.W_USED_SLOTS]:
            if slot >= words[layout.W_TOUCHED_SLOTS]:
                self._await_touched(layout.W_TOUCHED_SLOTS, layout.W_WANTED_SLOTS, slot + 1)
            words[layout.W_USED_SLOTS] = slot + 1
        return slot

    def _await_touched(self, touched: int, wanted: int, least: int) -> None:
        """Wait until the word `touched` says that `least` may be used; ask for it by `wanted`."""
        segment, words = self._segment, self._segment.words
        words[layout.W_REFUSED] = 0
        words[wanted] = least
        until = time.monotonic() + ROOM_TIMEOUT_S
        try:
            self._ask()
            while True:
                seen = segment.bells.seen(layout.BELL_TOUCHED)
                if words[touched] >= least:
                    return
                if words[layout.W_GONE]:
                    raise self._gone()
                if words[layout.W_REFUSED] == layout.REFUSED_BUDGET:
                    raise self._full(self._over_budget)
                if words[layout.W_REFUSED] == layout.REFUSED_DISK:
                    raise no_space(segment.path.parent)
                if words[layout.W_REFUSED] == layout.REFUSED_FAILED:
                    raise WireError(
                        f"the coordinator makes no room at {segment.path} any more: its thread "
                        "failed, and its own error says why"
                    )
                left = until - time.monotonic()
                if left <= 0:
                    raise WireError(
                        f"the coordinator made no room at {segment.path} within "
                        f"{ROOM_TIMEOUT_S:g} s; is it alive?"
                    )
                segment.bells.wait(layout.BELL_TOUCHED, seen, left)
        finally:
            words[wanted] = 0

    def _take_back(self) -> None:
        """Free what the dropped messages take."""
        segment, words = self._segment, self._segment.words
        self._bytes_since = self._messages_since = 0
        dropped_at = words[layout.W_DROPPED_AT]
        if dropped_at == self._drops_seen:
            return
        for slot in segment.slots()[1].tolist():
            words[self._word(slot)] = 0  # first of all, so that readers notice
            digest, offset, room = self._taken.pop(slot)
            segment.remove(digest, slot)
            self._arena.free(offset, room)
            heapq.heappush(self._free_slots, slot)
        words[layout.W_USED_SLOTS] = segment.highest_slot() + 1
        self._drops_seen = dropped_at

    def _take_over(self) -> None:
        """Learn what the segment holds, and let go of what a killed writer left half done."""
        segment, words = self._segment, self._segment.words
        words[layout.W_WRITER] = self._id
        self._drops_seen = words[layout.W_DROPPED_AT]
        live, dropped = segment.slots()
        for slot in dropped.tolist():
            words[self._word(slot)] = 0
            segment.remove(words[self._word(slot) + 2], slot)
        segment.repair(live)
        chosen = segment.entries[live]
        offsets, digests = chosen["offset"].tolist(), chosen["digest"].tolist()
        rooms = [layout.room_for(size) for size in chosen["size"].tolist()]
        slots = live.tolist()
        self._taken = dict(zip(slots, zip(digests, offsets, rooms, strict=True), strict=True))
        taken = [(offset, offset + room) for offset, room in zip(offsets, rooms, strict=True)]
        try:
            self._arena = Arena(segment.layout.arena_bytes, taken)
        except ValueError as error:
            raise segment.corrupt(str(error)) from error
        self._next_slot = words[layout.W_USED_SLOTS]
        self._free_slots = sorted(set(range(self._next_slot)) - set(slots))
        self._bytes_since = self._messages_since = 0

    @property
    def _over_budget(self) -> str:
        budget_mib = self._segment.layout.arena_bytes / 2**20
        return f"the messages fill their {budget_mib:.1f} MiB"

    def _gone(self) -> WireError:
        return MessagesRemoved(f"the run's messages at {self._segment.path.parent} were removed")

    def _full(self, what: str) -> WireError:
        if self._taken:
            return NoRoom(f"no room at {self._segment.path.parent}: {what}; raise --log-budget")
        return self._too_large()  # with nothing to wait for: other segments keep their pages

    def _too_large(self) -> WireError:
        return WireError(
            f"no room at {self._segment.path.parent}: the message is larger than what is left for "
            f"its sender of {self._segment.layout.arena_bytes / 2**20:.1f} MiB; raise --log-budget"
        )


def no_space(place: Path) -> WireError:
    """The error of a place on a full disk."""
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        free = 0
    return WireError(
        f"no space left for messages at {place} ({free / 2**20:.0f} MiB free): "
        "free some, or name another place with --channel file:///path"
    )
