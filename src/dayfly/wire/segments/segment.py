"""One sender's segment, mapped: find a message, check whether it is still there, wait for one.

Readers take no lock. They note the commit word, use the message, and check that the word is still
the same: if not, the message was dropped meanwhile and its place is being used for another.

A waiter sleeps on a doorbell, a 32-bit number in the segment, by Linux's futex. It reads it, looks
for the message, and sleeps only if the number is still the same, so no ring is missed. Where there
is no futex (another system, or a processor whose system call is not known here) it looks again
every `POLL_S`.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dayfly.errors import WireError
from dayfly.wire.segments import layout
from dayfly.wire.segments.layout import ENTRY_WORDS, SegmentLayout

#: Longest sleep between two looks, in seconds, whether or not it rang.
LOOK_AGAIN_S = 0.2
#: Sleep between two looks where there is no futex, in seconds.
POLL_S = 0.0005

_WAIT, _WAKE = 0, 1
_EVERYBODY = 2**31 - 1
_NUMBERS = {"x86_64": 202, "aarch64": 98}
#: What a wait says that slept, or need not sleep, or was woken by a signal.
_SLEPT = (errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_FIRST = (ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
# While one waits other threads run; waking takes no time, so it does not let go of the interpreter.
_wait = ctypes.CDLL(None, use_errno=True).syscall
_wait.argtypes = (*_FIRST, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
_wake = ctypes.PyDLL(None).syscall
_wake.argtypes = _FIRST
_wait.restype = _wake.restype = ctypes.c_long


def futex_number() -> int | None:
    """The number of the system call; None if it is not to be had here."""
    known = sys.platform == "linux" and ctypes.sizeof(ctypes.c_long) == 8
    return _NUMBERS.get(platform.machine()) if known else None


class Doorbells:
    """All doorbells of one mapped file.

    Args:
        numbers: the file as 32-bit numbers.
        address: where in memory its first byte is. The file stays mapped as long as this is used.
        futex: the system call's number; None: look again instead.
    """

    def __init__(self, numbers: memoryview, address: int, futex: int | None) -> None:
        self._numbers = numbers
        self._address = address
        self._futex = futex

    def seen(self, bell: int) -> int:
        """Read it before looking, pass it to `wait`: no ring is missed."""
        return int(self._numbers[bell])

    def ring(self, bell: int) -> None:
        """Change the number and wake who waits for it. Anybody may, at any time."""
        # The time, as two who count up at once would count one ring.
        self._numbers[bell] = time.monotonic_ns() & 0xFFFFFFFF
        if self._futex is not None:
            _wake(self._futex, self._address + 4 * bell, _WAKE, _EVERYBODY)

    def wait(self, bell: int, seen: int, timeout_s: float) -> None:
        """Return once the number is not `seen`, or after the lesser of timeout and look."""
        some_s = min(timeout_s, LOOK_AGAIN_S)
        if self._futex is not None:
            seconds = int(some_s)
            span = _Timespec(seconds, int((some_s - seconds) * 1e9))
            place = self._address + 4 * bell
            failed = _wait(self._futex, place, _WAIT, seen, ctypes.byref(span), None, 0)
            if not failed or ctypes.get_errno() in _SLEPT:
                return
        time.sleep(min(some_s, POLL_S))


#: Buckets that a killed writer leaves wrong, at most; it is one or two.
_MOST_REPAIRS = 16


@dataclass(frozen=True, slots=True)
class Found:
    """A message that counted when it was looked up.

    Args:
        word: number of the entry's commit word.
        sequence: what that was.
        at: where in the file the message begins.
        size: in bytes, header and payload.
    """

    word: int
    sequence: int
    at: int
    size: int


class Segment:
    """The file at `path`. Raises WireError if it is not there or is no whole segment.

    Attributes:
        map, bytes: the file.
        words, numbers: as 64-bit and 32-bit numbers.
        address: where in memory it begins. Whoever has any of them keeps the file mapped, even when
            it was removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise WireError(f"{path} cannot be opened: {error.strerror}") from error
        try:
            size = os.fstat(fd).st_size
            if size < layout.PAGE_BYTES:
                raise WireError(f"{path} is no segment of a channel: it has {size} bytes")
            try:
                self.map = mmap.mmap(fd, size)
            except OSError as error:
                raise WireError(f"{path} cannot be mapped: {error.strerror}") from error
        finally:
            os.close(fd)
        self.bytes = memoryview(self.map)
        self.words: memoryview = self.bytes.cast("Q")
        self.numbers: memoryview = self.bytes.cast("I")
        self.layout = self._checked_layout()
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self.map, np.uint8)
        self.address = int(self.array.ctypes.data)
        self.entries = np.frombuffer(
            self.map, layout.ENTRY, self.layout.slots, self.layout.entries_at
        )
        self.bells = Doorbells(self.numbers, self.address, futex_number())
        self.first_entry_word = self.layout.entries_at // 8
        self._buckets = self.numbers[layout.PAGE_BYTES // 4 :][: self.layout.buckets]
        self.entries_at, self.arena_at = self.layout.entries_at, self.layout.arena_at
        self._arena_bytes = self.layout.arena_bytes

    @property
    def gone(self) -> bool:
        """Whether the run's messages were removed."""
        return bool(self.words[layout.W_GONE])

    def find(self, address: bytes, digest: int) -> Found | None:
        """The message of an address, if it is there now."""
        words, buckets, slots = self.words, self._buckets, self.layout.slots
        mask = len(buckets) - 1
        first = digest & mask
        while True:
            moves = words[layout.W_MOVES]
            for bucket in range(first, first + mask + 1):
                number = buckets[bucket & mask]
                if number == layout.EMPTY:
                    break
                if number > slots:
                    raise self.corrupt(f"there is no entry {number}")
                word = self.first_entry_word + (number - 1) * ENTRY_WORDS
                sequence = words[word]
                if words[word + 2] != digest or not sequence or words[word + 1] == sequence:
                    continue
                at = 8 * word + layout.ADDRESS_AT
                if self.map[at : at + layout.ADDRESS_BYTES] != address:
                    continue
                offset, size = words[word + 3], words[word + 4]
                if words[word] != sequence:
                    continue
                if offset % layout.ALIGN_BYTES or offset + size > self._arena_bytes:
                    raise self.corrupt(f"entry {number} says {size} bytes at {offset}")
                return Found(word, sequence, self.arena_at + offset, size)
            if words[layout.W_MOVES] == moves:
                return None
            # It may have been moved from where the search was yet to come to where it had been.

    def counts(self, found: Found) -> bool:
        """Whether a message's bytes are still those of that message."""
        return bool(self.words[found.word] == found.sequence)

    def drop(self, found: Found) -> None:
        """Let a message go. Anybody may; the writer takes its place back when it needs some."""
        # A word of its own, so that a late drop of an earlier message never hits a later one; nor
        # must it make one live again that was dropped there.
        if not self.counts(found):
            return
        self.words[found.word + 1] = found.sequence
        self.words[layout.W_DROPPED_AT] = time.monotonic_ns()

    def trim(self, before_step: int, except_to: int) -> None:
        """Drop all messages of steps below `before_step`, but for those to one destination."""
        entries = self._used()
        # The sequence numbers are read once, and before the rest: a writer may put a new message
        # into an entry meanwhile, and what is dropped then is only what the entry held before.
        sequences = entries["sequence"].copy()
        live = (sequences != 0) & (sequences != entries["dropped"])
        old = (entries["step"] < before_step) & (entries["destination"] != except_to)
        chosen = np.flatnonzero(live & old)
        if len(chosen):
            entries["dropped"][chosen] = sequences[chosen]
            self.words[layout.W_DROPPED_AT] = time.monotonic_ns()

    def addresses(self, destination: int) -> Iterator[bytes]:
        """The addresses of all messages to a destination."""
        entries = self._used()
        for slot in np.flatnonzero(_live(entries) & (entries["destination"] == destination)):
            word = self.first_entry_word + int(slot) * ENTRY_WORDS
            sequence = self.words[word]
            at = 8 * word + layout.ADDRESS_AT
            address = self.map[at : at + layout.ADDRESS_BYTES]
            if sequence and self.words[word] == sequence:
                yield address

    def size_bytes(self) -> int:
        """Bytes of all messages, headers and payloads."""
        entries = self._used()
        return int(entries["size"][_live(entries)].sum())

    def slots(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Numbers of the entries whose messages count, and of those dropped and not taken back.

        Of one moment: a message that is dropped meanwhile is in one of the two.
        """
        entries = self._used()
        there, live = entries["sequence"] != 0, _live(entries)
        return np.flatnonzero(live), np.flatnonzero(there & ~live)

    def highest_slot(self) -> int:
        """Number of the last entry in use; -1 if there is none."""
        chosen = np.flatnonzero(self._used()["sequence"])
        return int(chosen[-1]) if len(chosen) else -1

    def insert(self, digest: int, slot: int) -> None:
        """Let `find` come upon an entry. The writer's, as is `remove`."""
        buckets = self._buckets
        mask = len(buckets) - 1
        first = digest & mask
        for bucket in range(first, first + mask + 1):
            if buckets[bucket & mask] == layout.EMPTY:
                buckets[bucket & mask] = slot + 1
                return
        raise self.corrupt("its hash table is full")

    def remove(self, digest: int, slot: int) -> None:
        """Undo `insert`."""
        buckets = self._buckets
        mask = len(buckets) - 1
        first = digest & mask
        for bucket in range(first, first + mask + 1):
            number = buckets[bucket & mask]
            if number == slot + 1:
                self._empty(bucket & mask)
                return
            if number == layout.EMPTY:
                break
        raise self.corrupt(f"entry {slot + 1} is not in its hash table")

    def repair(self, live: npt.NDArray[np.intp]) -> None:
        """Let the hash table list these entries, each once: a killed writer may have left more."""
        for _ in range(_MOST_REPAIRS):
            table = np.frombuffer(self.map, np.uint32, self.layout.buckets, layout.PAGE_BYTES)
            used = np.flatnonzero(table != layout.EMPTY)
            slots = table[used].astype(np.intp) - 1
            wrong = ~np.isin(slots, live)
            _, first = np.unique(slots, return_index=True)
            wrong[np.setdiff1d(np.arange(len(slots)), first)] = True
            if not wrong.any():
                break
            self._empty(int(used[wrong][0]))
        else:
            raise self.corrupt("its hash table is full of what is not there")
        if len(slots) != len(live):
            raise self.corrupt("its hash table does not list each message")

    def _empty(self, hole: int) -> None:
        """Empty a bucket, moving others so that no search ends at it that has to go on.

        An entry is at its new place before it is gone from the old one. A search that passed the
        one too early and the other too late finds that the number of moves has changed.
        """
        words, buckets, mask = self.words, self._buckets, len(self._buckets) - 1
        for bucket in range(hole + 1, hole + mask + 1):
            number = buckets[bucket & mask]
            if number == layout.EMPTY:
                break
            if number > self.layout.slots:
                raise self.corrupt(f"there is no entry {number}")
            home = words[self.first_entry_word + (number - 1) * ENTRY_WORDS + 2]
            if (bucket - home) & mask >= (bucket - hole) & mask:
                words[layout.W_MOVES] += 1
                buckets[hole] = number
                hole = bucket & mask
        words[layout.W_MOVES] += 1
        buckets[hole] = layout.EMPTY

    def _used(self) -> npt.NDArray[np.void]:
        used = self.words[layout.W_USED_SLOTS]
        if used > self.layout.slots:
            raise self.corrupt(f"it says that {used} of {self.layout.slots} entries are used")
        return self.entries[:used]

    def _checked_layout(self) -> SegmentLayout:
        words = self.words
        found = words[layout.W_MAGIC], words[layout.W_VERSION]
        if found != (layout.MAGIC, layout.VERSION):
            raise WireError(f"{self.path} is no segment of version {layout.VERSION}")
        senders, slots, buckets, arena_bytes = words[layout.W_SENDERS : layout.W_ARENA_BYTES + 1]
        made = SegmentLayout(senders, slots, arena_bytes)
        if slots & (slots - 1) or made.buckets != buckets or made.file_bytes != self.bytes.nbytes:
            raise self.corrupt("its sizes contradict each other")
        return made

    def corrupt(self, what: str) -> WireError:
        """The error of a segment that holds what no writer writes."""
        return WireError(f"{self.path} is damaged: {what}; start the run again with --resume")


def _live(entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    sequences = entries["sequence"]
    live: npt.NDArray[np.bool_] = (sequences != 0) & (sequences != entries["dropped"])
    return live
