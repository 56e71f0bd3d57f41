"""Makes the segments of a channel, and touches their pages before anybody uses them.

The kernel charges a page of memory to the function that touches it first, and it takes ten times as
long as using a page again. So the coordinator touches all pages: a few at once, the rest in a
thread, always ahead of what is in use. All segments together keep within one budget.

Huge pages of 2 MiB, made by `MADV_COLLAPSE`, would spare whoever maps them a fault for each 4 KiB.
But while all processors compute, making one took 6 ms, and small ones of the same size took 1 ms;
steps took longer by as much.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from array import array
from contextlib import ExitStack
from pathlib import Path

from dayfly.closing import Closing
from dayfly.errors import WireError
from dayfly.threads import start_thread
from dayfly.wire.keys import COORDINATOR, party_name
from dayfly.wire.segments import layout
from dayfly.wire.segments.layout import ENTRY_BYTES, PAGE_BYTES, SegmentLayout
from dayfly.wire.segments.segment import LOOK_AGAIN_S, Segment
from dayfly.wire.segments.writer import no_space

#: Written at once.
_PIECE_BYTES = 2**20


def touch(fd: int, at: int, size: int) -> None:
    """Give a part of a file that was never used its pages. Raises OSError on a full disk.

    By writing: a page of a file that is only mapped would kill its user on a full disk.
    """
    zeros = memoryview(bytes(min(size, _PIECE_BYTES)))
    for start in range(at, at + size, _PIECE_BYTES):
        write(fd, start, zeros[: at + size - start])


def write(fd: int, at: int, data: bytes | memoryview) -> None:
    """Write all of it at a place in a file. Raises OSError on a full disk."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


#: Touched at once, of every segment.
_FIRST_SLOTS, _FIRST_BYTES = 256, 64 * 1024
#: Touched before looking whether somebody else needs something more urgently.
_SLICE_BYTES = 2**20
#: The coordinator itself says little.
_COORDINATOR_AHEAD_BYTES = 64 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)


def segment_path(place: Path, source: int) -> Path:
    """The file with the messages of a rank, or of the coordinator."""
    return place / f"from-{party_name(source)}"


def make_segments(place: Path, senders: int, budget_bytes: int) -> None:
    """Make the directory `place` with an empty segment a sender, all of it or nothing.

    Raises WireError if it cannot be made, or the budget is too small.
    """
    made = SegmentLayout.of(senders, budget_bytes)
    making = place.with_name(f"{place.name}.{secrets.token_hex(4)}.making")
    try:
        making.mkdir(parents=True, mode=0o700)
        for source in (COORDINATOR, *range(senders)):
            _make(segment_path(making, source), made)
        os.rename(making, place)
    except OSError as error:
        shutil.rmtree(making, ignore_errors=True)
        raise failure(error, place) from error
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def mark_gone(place: Path) -> None:
    """Tells every process that has a segment of `place` open that the messages are removed."""
    for path in place.glob("from-*"):
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            if os.fstat(fd).st_size >= PAGE_BYTES:
                os.pwrite(fd, (1).to_bytes(8, "little"), 8 * layout.W_GONE)
        finally:
            os.close(fd)


class PagePool(Closing):
    """Keeps the pages of a channel's segments touched, in a thread, until it is closed.

    Args:
        ahead_bytes: how far ahead of a sender's use, as long as its share of the budget lasts.
    """

    def __init__(self, place: Path, senders: int, ahead_bytes: int) -> None:
        self._place = place
        self._ahead_bytes = ahead_bytes
        self._closed = False
        self._failure: WireError | None = None
        with ExitStack() as stack:
            self._fds: dict[int, int] = {}
            self._segments: dict[int, Segment] = {}
            for source in (COORDINATOR, *range(senders)):
                path = segment_path(place, source)
                self._fds[source] = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                stack.callback(os.close, self._fds[source])
                self._segments[source] = Segment(path)
            self._closing = stack.pop_all()
        self._left = self._own.layout.arena_bytes - sum(
            segment.words[layout.W_TOUCHED_BYTES] for segment in self._segments.values()
        )
        self._share = self._own.layout.arena_bytes // len(self._segments)
        self._thread = start_thread(self._run, name="dayfly-pool", failed=self._failed)

    def check(self) -> None:
        """Raise what went wrong in the thread, such as a full disk."""
        if self._failure is not None:
            raise WireError(str(self._failure)) from self._failure

    def close(self) -> None:
        """End the thread; nothing more is touched."""
        self._closed = True
        if self._thread.is_alive():
            self._own.bells.ring(layout.BELL_WANTED)
            self._thread.join()
        self._closing.close()
        self._segments.clear()

    @property
    def _own(self) -> Segment:
        return self._segments[COORDINATOR]

    def _run(self) -> None:
        own = self._own
        while not self._closed:
            seen = own.bells.seen(layout.BELL_WANTED)
            try:
                # One slice at a time: somebody may begin to wait meanwhile.
                served = sum(self._serve(source) for source in self._fds)
                worked = served or any(self._work_ahead(source) for source in self._fds)
            except OSError as error:
                self._failure = failure(error, self._place)
                return
            if not worked:
                own.bells.wait(layout.BELL_WANTED, seen, LOOK_AGAIN_S)

    def _failed(self, error: BaseException) -> None:
        """Nobody makes room any more: the coordinator raises it, and so do writers that wait."""
        said = f"file channel: the thread that makes room at {self._place} failed: {error!r}"
        self._failure = WireError(said)
        self._failure.__cause__ = error
        for segment in self._segments.values():
            segment.words[layout.W_REFUSED] = layout.REFUSED_FAILED
            segment.bells.ring(layout.BELL_TOUCHED)

    def _serve(self, source: int) -> bool:
        """Touch what a writer waits for, or tell it why not; whether one waits."""
        segment, words = self._segments[source], self._segments[source].words
        slots = min(words[layout.W_WANTED_SLOTS], segment.layout.slots)
        stop = min(words[layout.W_WANTED_BYTES], segment.layout.arena_bytes)
        refused = words[layout.W_REFUSED]
        try:
            missing = stop - words[layout.W_TOUCHED_BYTES]
            if refused or (missing <= 0 and slots <= words[layout.W_TOUCHED_SLOTS]):
                return False
            if missing <= 0:
                self._touch_slots(source)
            elif _pages(missing) > self._left:
                words[layout.W_REFUSED] = layout.REFUSED_BUDGET
            else:
                self._touch_bytes(source, missing)
        except OSError as error:
            self._failure = failure(error, self._place)
            words[layout.W_REFUSED] = layout.REFUSED_DISK
        segment.bells.ring(layout.BELL_TOUCHED)
        return True

    def _work_ahead(self, source: int) -> bool:
        """Touch some more pages before they are needed; whether there was anything to do."""
        segment, words = self._segments[source], self._segments[source].words
        ahead = self._ahead_bytes if source != COORDINATOR else _COORDINATOR_AHEAD_BYTES
        goal = min(words[layout.W_USED_BYTES] + ahead, self._share)
        missing = goal - words[layout.W_TOUCHED_BYTES]
        try:
            if missing > 0 and self._left >= PAGE_BYTES:
                self._touch_bytes(source, min(missing, self._left))
                done = words[layout.W_TOUCHED_BYTES]
                words[layout.W_ASK_BYTES] = max(0, done - ahead // 2)
                return True
            touched = words[layout.W_TOUCHED_SLOTS]
            if touched < min(2 * words[layout.W_USED_SLOTS], segment.layout.slots):
                self._touch_slots(source)
                return True
        except OSError as error:
            if error.errno not in _FULL:
                raise
            # Nobody needs it yet: there may be room when somebody does.
        if missing > 0 or goal >= self._share:
            words[layout.W_ASK_BYTES] = segment.layout.arena_bytes
        return False

    def _touch_bytes(self, source: int, least: int) -> None:
        """Touches the next pages of an arena: those of `least` bytes, at most one slice."""
        words = self._segments[source].words
        done = words[layout.W_TOUCHED_BYTES]
        size = min(_pages(least), _SLICE_BYTES)
        touch(self._fds[source], self._own.layout.arena_at + done, size)
        self._left -= size
        words[layout.W_TOUCHED_BYTES] = done + size

    def _touch_slots(self, source: int) -> None:
        words = self._segments[source].words
        done = words[layout.W_TOUCHED_SLOTS]
        slots = min(_SLICE_BYTES // ENTRY_BYTES, self._own.layout.slots - done)
        at = self._own.layout.entries_at + done * ENTRY_BYTES
        touch(self._fds[source], at, slots * ENTRY_BYTES)
        words[layout.W_TOUCHED_SLOTS] = done + slots


def _make(path: Path, made: SegmentLayout) -> None:
    """A new segment's file, with its first pages touched."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, made.file_bytes)
        first_bytes = min(_FIRST_BYTES, made.arena_bytes // (made.senders + 1))
        first_bytes -= first_bytes % PAGE_BYTES
        words = [0] * (PAGE_BYTES // 8)
        words[layout.W_MAGIC], words[layout.W_VERSION] = layout.MAGIC, layout.VERSION
        words[layout.W_SENDERS], words[layout.W_SLOTS] = made.senders, made.slots
        words[layout.W_BUCKETS], words[layout.W_ARENA_BYTES] = made.buckets, made.arena_bytes
        words[layout.W_TOUCHED_SLOTS] = _FIRST_SLOTS
        words[layout.W_TOUCHED_BYTES] = first_bytes
        touch(fd, 0, made.entries_at + _FIRST_SLOTS * ENTRY_BYTES)
        touch(fd, made.arena_at, first_bytes)
        write(fd, 0, array("Q", words).tobytes())
    finally:
        os.close(fd)


def failure(error: OSError, place: Path) -> WireError:
    """The error of a channel that cannot be made."""
    if error.errno in _FULL:
        return no_space(place)
    return WireError(f"file channel: cannot make {place}: {error.strerror}")


def _pages(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES
