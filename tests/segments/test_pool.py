"""The pool: pages are there before they are used, within the budget, whoever uses how much."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dayfly.errors import WireError
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.segments import layout
from dayfly.wire.segments.pool import PagePool, make_segments, mark_gone, segment_path
from dayfly.wire.segments.segment import Segment
from dayfly.wire.segments.writer import SegmentWriter
from tests.segments import kit

MIB = 2**20
SOON_S = 30.0


def soon(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def taken_bytes(place: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in place.iterdir())


def asking_writer(place: Path, source: int) -> tuple[Segment, SegmentWriter]:
    """A writer that can ask for pages."""
    segment, own = Segment(segment_path(place, source)), Segment(segment_path(place, COORDINATOR))
    return segment, SegmentWriter(segment, lambda: own.bells.ring(layout.BELL_WANTED))


def test_pages_are_touched_ahead_of_their_use(tmp_path: Path) -> None:
    place = tmp_path / "segments"
    make_segments(place, 2, 64 * MIB)
    with PagePool(place, 2, ahead_bytes=4 * MIB):
        segment, writer = asking_writer(place, 0)
        words = segment.words
        for step in range(12):
            ahead = min(words[layout.W_USED_BYTES] + 2 * MIB, segment.layout.arena_bytes // 3)
            soon(lambda ahead=ahead: words[layout.W_TOUCHED_BYTES] >= ahead)  # type: ignore[misc]
            # Who uses more than half of what is ready wakes who makes more ready.
            assert kit.put(writer, segment, Key(step, "a", 0, 1), bytes([step]) * MIB)
        for step in range(12):
            assert kit.get(segment, Key(step, "a", 0, 1)) == bytes([step]) * MIB
        writer.close()
    assert 12 * MIB < taken_bytes(place) <= 64 * MIB


def test_one_may_need_more_than_its_share_and_none_more_than_there_is(tmp_path: Path) -> None:
    """Its share of 16 MiB is a third: it gets more as long as there is any, waiting for it."""
    place = tmp_path / "segments"
    make_segments(place, 2, 16 * MIB)
    with PagePool(place, 2, ahead_bytes=MIB):
        segment, writer = asking_writer(place, 0)
        with pytest.raises(WireError, match=rf"{place}: .* fill their 15\.\d MiB; .*--log-budget"):
            put_for_ever(writer, segment)
        stored = len(list(segment.addresses(1)))
        assert stored >= 10
        other, others = asking_writer(place, 1)
        assert kit.put(others, other, Key(0, "a", 1, 0), bytes(60_000)), "what it had is its own"
        for step in range(stored):
            assert kit.get(segment, Key(step, "a", 0, 1)) == bytes([step]) * MIB
        segment.trim(stored, COORDINATOR)
        for step in range(stored):  # room that was freed needs nobody's help
            assert kit.put(writer, segment, Key(stored + step, "a", 0, 1), bytes(MIB))
        writer.close()
        others.close()
    assert taken_bytes(place) <= 16 * MIB


def put_for_ever(writer: SegmentWriter, segment: Segment) -> None:
    for step in itertools.count():
        kit.put(writer, segment, Key(step, "a", 0, 1), bytes([step]) * MIB)


def test_many_entries_are_touched_too(tmp_path: Path) -> None:
    place = tmp_path / "segments"
    make_segments(place, 1, 64 * MIB)
    with PagePool(place, 1, ahead_bytes=MIB):
        segment, writer = asking_writer(place, 0)
        assert segment.layout.slots > 1000
        for step in range(1000):
            assert kit.put(writer, segment, Key(step, "a", 0, 1), b"x")
        assert segment.words[layout.W_TOUCHED_SLOTS] >= 1000
        writer.close()


def test_whoever_has_a_removed_segment_open_is_told(tmp_path: Path) -> None:
    segment = kit.make(tmp_path)
    writer = kit.writer(segment)
    mark_gone(segment.path.parent)
    mark_gone(tmp_path / "none")
    assert segment.gone
    with pytest.raises(WireError, match=f"messages at {segment.path.parent} were removed"):
        kit.put(writer, segment, Key(0, "a", 0, 1), b"x")
    writer.close()


def test_a_pool_whose_thread_failed_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the coordinator with its traceback, and to a writer that waits."""
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    place = tmp_path / "segments"
    make_segments(place, 1, 64 * MIB)
    began = time.monotonic()
    with PagePool(place, 1, ahead_bytes=0) as pool:
        segment, writer = asking_writer(place, 0)
        monkeypatch.setattr(pool, "_serve", lambda source: [].remove(source))
        with pytest.raises(WireError, match="its thread failed"):
            kit.put(writer, segment, Key(0, "a", 0, 1), bytes(8 * MIB))
        with pytest.raises(WireError, match=r"makes room at .* failed: ValueError") as failure:
            pool.check()
        cause = failure.value.__cause__
        assert cause is not None
        assert isinstance(cause.__cause__, ValueError)
        assert cause.__cause__.__traceback__ is not None
        writer.close()
    assert time.monotonic() - began < SOON_S
