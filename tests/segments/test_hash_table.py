"""The hash table where everything collides: whoever dies in the middle, whoever searches meanwhile.

Digests are chosen, so that entries lie one after another and have to move when one goes.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.keys import Key
from dayfly.wire.segments import layout
from dayfly.wire.segments.layout import address_of
from dayfly.wire.segments.segment import Segment
from dayfly.wire.segments.writer import SegmentWriter
from tests.segments import kit

SOON_S = 30.0
#: The first four want the same bucket, the next two the one after it, and so on; the last two want
#: the table's last bucket, after which it goes on at its beginning.
HOMES = (0, 0, 0, 0, 1, 1, 2, 5, 3, -1, -1)


def address(number: int) -> bytes:
    return address_of(Key(number, "a", 0, 1))[0]


def digest(number: int) -> int:
    """Equal in what chooses the bucket, different beyond."""
    return number << 32 | HOMES[number] & 0xFFFF


def put(writer: SegmentWriter, number: int) -> None:
    assert writer.put(address(number), digest(number), 10, lambda at: None)


def drop(segment: Segment, number: int) -> None:
    found = segment.find(address(number), digest(number))
    assert found is not None
    segment.drop(found)


def there(segment: Segment) -> set[int]:
    numbers = range(len(HOMES))
    return {one for one in numbers if segment.find(address(one), digest(one)) is not None}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(HOMES) - 1), st.booleans()), max_size=60))
def test_colliding_entries_are_found_as_in_a_set(plan: list[tuple[int, bool]]) -> None:
    model: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="dayfly-test-", dir="/dev/shm") as root:
        segment = kit.make(Path(root))
        writer = kit.writer(segment)
        for number, take_back in plan:
            if number in model:
                drop(segment, number)
            else:
                put(writer, number)
            model ^= {number}
            if take_back:
                writer._take_back()
                assert used(segment) == len(model)
            assert there(segment) == model
        writer.close()


def used(segment: Segment) -> int:
    """Buckets that are not empty."""
    return sum(number != layout.EMPTY for number in segment._buckets)


class Watched:
    """The buckets, with something done at a certain reading or writing of one."""

    def __init__(self, buckets: memoryview, act: Callable[[str, int], None]) -> None:
        self._buckets = buckets
        self._act = act

    def __len__(self) -> int:
        return len(self._buckets)

    def __getitem__(self, bucket: int) -> int:
        self._act("read", bucket)
        return self._buckets[bucket]

    def __setitem__(self, bucket: int, number: int) -> None:
        self._act("write", bucket)
        self._buckets[bucket] = number


def _drop_and_die(path: Path, victim: int, writes: int) -> None:
    segment = Segment(path)
    writer = kit.writer(segment)
    assert not writer.put(address(0), digest(0), 0, lambda at: None)  # it knows what is there
    drop(segment, victim)
    left = [writes]

    def die(what: str, bucket: int) -> None:
        left[0] -= what == "write"
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    segment._buckets = Watched(segment._buckets, die)  # type: ignore[assignment]
    writer._take_back()
    os._exit(7)


@pytest.mark.parametrize("victim", [1, 3, 4, 9])
@pytest.mark.long
def test_a_death_between_two_moves_loses_nothing(tmp_path: Path, victim: int) -> None:
    """Killed before each of the writes in turn, until there are no more."""
    context = multiprocessing.get_context("fork")
    codes = []
    for writes in range(len(HOMES) + 1):
        (tmp_path / str(writes)).mkdir()
        segment = kit.make(tmp_path / str(writes))
        first = kit.writer(segment)
        for number in range(len(HOMES)):
            put(first, number)
        process = context.Process(
            target=_drop_and_die, args=(segment.path, victim, writes), daemon=True
        )
        process.start()
        process.join(SOON_S)
        codes.append(process.exitcode)
        rest = set(range(len(HOMES))) - {victim}
        assert there(segment) == rest
        successor = kit.writer(segment)
        put(successor, victim)
        assert there(segment) == rest | {victim}
        assert used(segment) == len(HOMES)
        for number in range(len(HOMES)):
            drop(segment, number)
        successor._take_back()
        assert used(segment) == 0
        for writer in (first, successor):
            writer.close()
        if process.exitcode == 7:
            break
    assert codes[-1] == 7
    assert codes[:-1] == [-signal.SIGKILL] * (len(codes) - 1)
    assert len(codes) > 2 or victim == 3, "there were several writes to die at"


class Stopped(Exception):
    """Injected."""


@pytest.mark.parametrize("victim", [0, 1, 4, 9])
@pytest.mark.parametrize("stop", [0, 1, 2, 3, 99])
def test_who_searches_while_others_move_finds(tmp_path: Path, victim: int, stop: int) -> None:
    """The reader has read some buckets when an entry goes and those behind it move up.

    They move as far as `stop` writes go, then the reader reads on.
    """
    wanted = sorted(set(range(len(HOMES))) - {victim})
    for round_, (at, number) in enumerate(itertools.product(range(7), wanted)):
        (tmp_path / str(round_)).mkdir()
        segment = kit.make(tmp_path / str(round_))
        writer = kit.writer(segment)
        for one in range(len(HOMES)):
            put(writer, one)
        reader = Segment(segment.path)
        reads, writes = [at], [stop]

        def halt(what: str, bucket: int, writes: list[int] = writes) -> None:
            writes[0] -= what == "write"
            if writes[0] < 0:
                raise Stopped

        def move(
            what: str,
            bucket: int,
            segment: Segment = segment,
            writer: SegmentWriter = writer,
            reads: list[int] = reads,
        ) -> None:
            reads[0] -= 1
            if reads[0] == -1:
                drop(segment, victim)
                with suppress(Stopped):
                    writer._take_back()

        segment._buckets = Watched(segment._buckets, halt)  # type: ignore[assignment]
        reader._buckets = Watched(reader._buckets, move)  # type: ignore[assignment]
        assert reader.find(address(number), digest(number)) is not None
        writer.close()


def test_the_table_stays_as_full_as_it_has_to_be(tmp_path: Path) -> None:
    """5000 messages of random lifetimes, 150 at once: no search gets long."""
    segment = kit.make(tmp_path)
    writer = kit.writer(segment)
    chance = random.Random(3)
    living: list[Key] = []
    for step in range(5000):
        key = Key(step, "a", 0, step % 7)
        assert kit.put(writer, segment, key, b"")
        living.append(key)
        if len(living) > 150:
            kit.drop(segment, living.pop(chance.randrange(len(living))))
    writer._take_back()
    assert used(segment) == 150
    assert all(kit.get(segment, key) == b"" for key in living)
    writer.close()
