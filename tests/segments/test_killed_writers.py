"""A writer is killed at any point: nobody sees half a message, and its successor goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dayfly.wire.keys import Key
from dayfly.wire.segments import layout
from dayfly.wire.segments.layout import address_of
from dayfly.wire.segments.segment import Segment
from dayfly.wire.segments.writer import SegmentWriter
from tests.segments import kit

pytestmark = pytest.mark.long

BEFORE, KEY = Key(0, "a", 0, 1), Key(1, "a", 0, 1)
SOON_S = 30.0

#: Where to kill: the method, and whether once it is done; and whether the message counts then.
POINTS = [
    (SegmentWriter, "_take_over", True, False),
    (SegmentWriter, "_allocate", True, False),
    (SegmentWriter, "_allocate_slot", True, False),
    (Segment, "copied in part", True, False),
    (SegmentWriter, "_fill", True, False),
    (Segment, "insert", True, False),
    (SegmentWriter, "_commit", False, False),
    (SegmentWriter, "_commit", True, True),
]


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(method: Callable[..., Any], done: bool) -> Callable[..., Any]:
    """The method, at whose begin or end the process is killed."""

    def wrapped(*arguments: Any) -> None:
        if done:
            method(*arguments)
        die()

    return wrapped


def put_and_die(path: Path, owner: type, name: str, done: bool) -> None:
    segment = Segment(path)
    if hasattr(owner, name):
        setattr(owner, name, dying(getattr(owner, name), done))

    def copy(at: int) -> None:
        segment.map[at : at + 50] = b"y" * 50
        if not hasattr(owner, name):
            die()
        segment.map[at + 50 : at + 100] = b"y" * 50

    kit.writer(segment).put(*address_of(KEY), 100, copy)


def take_back_and_die(path: Path, owner: type, name: str, done: bool) -> None:
    segment = Segment(path)
    writer = kit.writer(segment)
    kit.put(writer, segment, KEY, b"y" * 100)
    kit.drop(segment, KEY)
    setattr(owner, name, dying(getattr(owner, name), done))
    writer._take_back()


def killed(target: Callable[..., None], *arguments: Any) -> None:
    """Run this in a process of its own, which kills itself."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=target, args=arguments, daemon=True)
    process.start()
    process.join(SOON_S)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(("owner", "name", "done", "counts"), POINTS)
def test_a_successor_takes_over(
    tmp_path: Path, owner: type, name: str, done: bool, counts: bool
) -> None:
    segment = kit.make(tmp_path)
    first = kit.writer(segment)
    assert kit.put(first, segment, BEFORE, b"a" * 1000)
    killed(put_and_die, segment.path, owner, name, done)
    assert kit.get(segment, BEFORE) == b"a" * 1000
    assert kit.get(segment, KEY) == (b"y" * 100 if counts else None)
    successor = kit.writer(segment)
    assert kit.put(successor, segment, KEY, b"z" * 200) is not counts
    assert kit.get(segment, KEY) == (b"y" * 100 if counts else b"z" * 200)
    assert segment.size_bytes() == (1100 if counts else 1200)
    assert_all_comes_back(segment, successor)
    first.close()


@pytest.mark.parametrize(
    ("owner", "name", "done"),
    [
        (Segment, "slots", True),
        (Segment, "remove", False),
        (Segment, "_empty", False),
        (Segment, "remove", True),
        (Segment, "highest_slot", True),
    ],
)
def test_a_successor_takes_back_the_rest(
    tmp_path: Path, owner: type, name: str, done: bool
) -> None:
    segment = kit.make(tmp_path)
    first = kit.writer(segment)
    assert kit.put(first, segment, BEFORE, b"a" * 1000)
    killed(take_back_and_die, segment.path, owner, name, done)
    successor = kit.writer(segment)
    assert kit.put(successor, segment, KEY, b"z" * 200)
    assert kit.get(segment, KEY) == b"z" * 200
    assert segment.size_bytes() == 1200
    assert_all_comes_back(segment, successor)
    first.close()


def assert_all_comes_back(segment: Segment, writer: SegmentWriter) -> None:
    """Nothing but BEFORE and KEY is there: once they are gone there is room for all that fits."""
    for key in (BEFORE, KEY):
        kit.drop(segment, key)
    last = bytes(segment.words[layout.W_TOUCHED_BYTES])
    assert kit.put(writer, segment, BEFORE, last)
    assert kit.get(segment, BEFORE) == last
    assert sum(number != layout.EMPTY for number in segment._buckets) == 1
    writer.close()


def test_an_exception_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    """Such as a signal's: the next put of the same writer knows what is free."""
    segment = kit.make(tmp_path)
    writer = kit.writer(segment)
    assert kit.put(writer, segment, BEFORE, bytes(64))
    size = segment.words[layout.W_TOUCHED_BYTES] - 64

    def copy(at: int) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            writer.put(*address_of(KEY), size, copy)
        assert kit.get(segment, KEY) is None
    assert kit.put(writer, segment, KEY, bytes(size))
    writer.close()


def test_a_message_that_is_dropped_while_a_writer_takes_over_is_taken_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as there or as dropped, and not once as the one and once as the other."""
    segment = kit.make(tmp_path)
    first, successor = kit.writer(segment), kit.writer(segment)
    keys = [Key(step, "a", 0, 1) for step in range(80)]
    for key in keys:
        assert kit.put(first, segment, key, bytes(64))
    for key in keys[:75]:
        kit.drop(segment, key)
    remove = Segment.remove

    def remove_and_drop(one: Segment, digest: int, slot: int) -> None:
        remove(one, digest, slot)
        kit.drop(segment, keys[-1])

    monkeypatch.setattr(Segment, "remove", remove_and_drop)
    for step in range(100, 170):  # so many that it looks for dropped ones in between
        assert kit.put(successor, segment, Key(step, "a", 0, 1), bytes(64))
    assert segment.size_bytes() == 64 * (4 + 70)
    for one in (first, successor):
        one.close()


def test_a_successor_takes_back_whatever_was_dropped(tmp_path: Path) -> None:
    """Its predecessor never came to it, and half of it is to be kept."""
    segment = kit.make(tmp_path)
    first, successor = kit.writer(segment), kit.writer(segment)
    keys = [Key(step, "a", 0, 1) for step in range(200)]
    for key in keys:
        assert kit.put(first, segment, key, key.name.encode())
    for key in keys[::2]:
        kit.drop(segment, key)
    assert kit.put(successor, segment, Key(0, "last", 0, 1), b"")
    assert {key for key in keys if kit.get(segment, key) == key.name.encode()} == set(keys[1::2])
    assert sum(number != layout.EMPTY for number in segment._buckets) == 101
    for writer in (first, successor):
        writer.close()


def test_the_one_who_was_thought_dead_finds_out(tmp_path: Path) -> None:
    """Two write in turns, each by what the other left; a key that one has put is the other's."""
    segment = kit.make(tmp_path)
    writers = [kit.writer(segment), kit.writer(segment)]
    for step in range(20):
        key = Key(step, "a", 0, 1)
        data = bytes([step]) * 20_000
        assert kit.put(writers[step % 2], segment, key, data)
        assert not kit.put(writers[1 - step % 2], segment, key, b"")
        assert kit.get(segment, key) == data
        if step % 3:
            kit.drop(segment, key)
            kit.drop(segment, Key(step - step % 3, "a", 0, 1))
    for writer in writers:
        writer.close()
