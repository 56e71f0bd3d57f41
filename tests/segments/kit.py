"""One segment in a directory, and messages whose bytes tell their keys."""

from __future__ import annotations

from pathlib import Path

from dayfly.wire.keys import Key
from dayfly.wire.segments.layout import address_of
from dayfly.wire.segments.pool import make_segments, segment_path
from dayfly.wire.segments.segment import Segment
from dayfly.wire.segments.writer import SegmentWriter

BUDGET_BYTES = 2**20


def make(root: Path, budget_bytes: int = BUDGET_BYTES) -> Segment:
    """Rank 0's new segment, of two."""
    place = root / "segments"
    make_segments(place, 2, budget_bytes)
    return Segment(segment_path(place, 0))


def writer(segment: Segment) -> SegmentWriter:
    """Nobody touches more pages than were touched at first."""
    return SegmentWriter(segment, lambda: None)


def put(writer: SegmentWriter, segment: Segment, key: Key, data: bytes) -> bool:
    def copy(at: int) -> None:
        segment.map[at : at + len(data)] = data

    return writer.put(*address_of(key), len(data), copy)


def get(segment: Segment, key: Key) -> bytes | None:
    found = segment.find(*address_of(key))
    return None if found is None else segment.map[found.at : found.at + found.size]


def drop(segment: Segment, key: Key) -> None:
    found = segment.find(*address_of(key))
    if found is not None:
        segment.drop(found)
