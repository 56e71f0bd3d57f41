"""A trim and a put at the same time: what is dropped is old, whatever entry it lay in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dayfly.wire.keys import COORDINATOR, EVERYONE, Key
from dayfly.wire.segments.layout import address_of
from dayfly.wire.segments.segment import Segment
from tests.segments import kit

OLD, KEPT = Key(1, "old", 0, 1), Key(1, "sum", 0, EVERYONE)
NEW = [Key(7, "new", 0, 1), Key(7, "new", 0, EVERYONE), Key(0, "report-0", 0, COORDINATOR)]


class Interrupted:
    """The entries of a segment; `act` happens before their field is looked up for the n-th time."""

    def __init__(self, entries: Any, look: int, act: Callable[[], None]) -> None:
        self._entries, self._look, self._act = entries, look, act

    def __getitem__(self, field: str) -> Any:
        if self._look == 0:
            self._act()
        self._look -= 1
        return self._entries[field]


@pytest.mark.parametrize("new", NEW, ids=str)
@pytest.mark.parametrize("taken_back", ["before", "meanwhile"])
@pytest.mark.parametrize("look", range(4))
def test_a_message_that_is_put_into_the_entry_of_an_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: int, taken_back: str, new: Key
) -> None:
    """The coordinator may be held up within its trim for as long as a writer takes for a put."""
    segment = kit.make(tmp_path)
    writer = kit.writer(segment)
    kit.put(writer, segment, OLD, b"o" * 100)
    kit.put(writer, segment, KEPT, b"k" * 100)
    put: list[bool] = []

    def take_back() -> None:
        kit.drop(segment, OLD)
        writer._take_back()

    def interrupt() -> None:
        monkeypatch.undo()
        if taken_back == "meanwhile":
            take_back()
        put.append(kit.put(writer, segment, new, b"n" * 100))

    if taken_back == "before":
        take_back()
    entries = Interrupted(segment._used(), look, interrupt)
    monkeypatch.setattr(Segment, "_used", lambda self: entries)
    segment.trim(5, except_to=COORDINATOR)

    assert put == [True]
    assert kit.get(segment, new) == b"n" * 100
    assert kit.get(segment, KEPT) is None
    writer.close()


def test_a_late_drop_leaves_a_later_message_of_the_entry_dropped(tmp_path: Path) -> None:
    """Two readers drop a message; one is held up until its entry has another, dropped, too."""
    segment = kit.make(tmp_path)
    writer = kit.writer(segment)
    kit.put(writer, segment, OLD, b"o" * 100)
    late = segment.find(*address_of(OLD))
    kit.drop(segment, OLD)
    writer._take_back()
    kit.put(writer, segment, KEPT, b"k" * 100)
    later = segment.find(*address_of(KEPT))
    assert late is not None
    assert later is not None
    assert late.word == later.word
    kit.drop(segment, KEPT)
    segment.drop(late)
    assert kit.get(segment, KEPT) is None
    assert segment.size_bytes() == 0
    writer.close()
