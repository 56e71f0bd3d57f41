"""The index against a dict, whoever writes; and that no damage is taken for an index."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.errors import WireError
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, Key
from dayfly.wire.segments import layout
from dayfly.wire.segments.layout import SegmentLayout, address_of, digested, key_of, room_for
from dayfly.wire.segments.segment import Segment
from tests.segments import kit

keys = st.builds(
    Key,
    st.integers(0, 9) | st.just(FOREVER),
    st.sampled_from(["a", "b", "c" * 40]),
    st.just(0),
    st.sampled_from([COORDINATOR, EVERYONE, 0, 1, 300]),
)
PUT, DROP, TRIM, TAKE_OVER = "put", "drop", "trim", "take over"
steps = st.lists(
    st.tuples(st.just(PUT), keys, st.binary(max_size=300))
    | st.tuples(st.just(DROP), keys)
    | st.tuples(st.just(TRIM), st.integers(0, 10))
    | st.tuples(st.just(TAKE_OVER)),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_it_holds_what_a_dict_would(plan: list[tuple]) -> None:  # type: ignore[type-arg]
    model: dict[Key, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="dayfly-test-", dir="/dev/shm") as root:
        segment = kit.make(Path(root))
        writer = kit.writer(segment)
        for what, *more in plan:
            if what == PUT:
                key, data = more
                assert kit.put(writer, segment, key, data) is (key not in model)
                model.setdefault(key, data)
            elif what == DROP:
                kit.drop(segment, more[0])
                model.pop(more[0], None)
            elif what == TRIM:
                segment.trim(more[0], except_to=COORDINATOR)
                kept = {k for k in model if k.step >= more[0] or k.destination == COORDINATOR}
                model = {key: model[key] for key in kept}
            else:
                writer.close()
                writer = kit.writer(segment)
            assert {key: kit.get(segment, key) for key in model} == model
            assert segment.size_bytes() == sum(map(len, model.values()))
        for box in (COORDINATOR, EVERYONE, 0, 1, 300):
            found = {key_of(address) for address in segment.addresses(box)}
            assert found == {key for key in model if key.destination == box}
        for key in model:
            kit.drop(segment, key)
        # Two writers come and go: one takes back all room, and the table is as good as new.
        for _ in range(2):
            writer.close()
            writer = kit.writer(segment)
            last = Key(1, "last", 0, 0)
            assert kit.put(writer, segment, last, bytes(segment.words[layout.W_TOUCHED_BYTES]))
            kit.drop(segment, last)
        writer.close()


def test_room_and_entries_are_used_again(tmp_path: Path) -> None:
    """A thousand messages pass through room for one, and leave the hash table empty."""
    segment = kit.make(tmp_path)
    writer = kit.writer(segment)
    for step in range(1000):
        key = Key(step, "a", 0, 1)
        assert kit.put(writer, segment, key, bytes([step % 256]) * 60_000)
        kit.drop(segment, key)
    assert segment.words[layout.W_USED_BYTES] <= 2**16
    used = sum(number != layout.EMPTY for number in segment._buckets)
    assert used <= 64, "what was dropped since the writer last looked"
    writer.close()


def test_a_full_index_is_named_with_the_remedy(tmp_path: Path) -> None:
    segment = kit.make(tmp_path, 4 * kit.BUDGET_BYTES)
    writer = kit.writer(segment)
    slots = segment.layout.slots
    for step in range(slots):
        assert kit.put(writer, segment, Key(step, "a", 0, 1), b"x")
    with pytest.raises(WireError, match=rf"{segment.path.parent}.*{slots} messages.*--log-budget"):
        kit.put(writer, segment, Key(slots, "a", 0, 1), b"x")
    segment.trim(1, COORDINATOR)
    assert kit.put(writer, segment, Key(slots, "a", 0, 1), b"x")
    assert len(list(segment.addresses(1))) == slots
    writer.close()


@given(keys)
def test_addresses_are_keys(key: Key) -> None:
    address, digest = address_of(key)
    assert key_of(address) == key
    assert digested(address) == (address, digest)


@pytest.mark.parametrize("senders", [1, 2, 3, 64])
@pytest.mark.parametrize("budget_bytes", [2**24, 2**28, 10**9, 2**30 + 5])
def test_all_segments_together_keep_within_the_budget(senders: int, budget_bytes: int) -> None:
    made = SegmentLayout.of(senders, budget_bytes)
    fixed = (senders + 1) * made.arena_at
    assert fixed + made.arena_bytes <= budget_bytes < fixed + made.arena_bytes + 4096
    assert fixed < 0.1 * budget_bytes or budget_bytes < 2**25
    assert made.slots >= 16 * senders


def test_a_budget_that_holds_no_message_is_named() -> None:
    with pytest.raises(WireError, match=r"0\.1 MiB are too few for .* 4 workers.*--log-budget"):
        SegmentLayout.of(4, 100_000)


def test_room_is_a_multiple_of_64() -> None:
    assert [room_for(size) for size in (0, 1, 64, 65, 128, 2**31 + 1)] == [
        64, 64, 64, 128, 128, 2**31 + 64,
    ]  # fmt: skip


def _word(number: int, value: int) -> Callable[[Segment], None]:
    def damage(segment: Segment) -> None:
        segment.words[number] = value

    return damage


def _entry(field: str, value: int) -> Callable[[Segment], None]:
    def damage(segment: Segment) -> None:
        segment.entries[field][0] = value

    return damage


def _bucket(segment: Segment) -> None:
    for at, number in enumerate(segment._buckets):
        if number == 1:
            segment._buckets[at] = segment.layout.slots + 1


def _twice(segment: Segment) -> None:
    for at, number in enumerate(segment._buckets):
        if number == layout.EMPTY:
            segment._buckets[at] = 1


KEY = Key(3, "a", 0, 1)


@pytest.mark.parametrize(
    "damage",
    [
        _entry("offset", 2**40),
        _entry("offset", 32),
        _entry("size", 2**63),
        _word(layout.W_USED_SLOTS, 2**20),
        _bucket,
        _twice,
    ],
)
def test_a_damaged_index_is_named(tmp_path: Path, damage: Callable[[Segment], None]) -> None:
    segment = kit.make(tmp_path)
    writer = kit.writer(segment)
    kit.put(writer, segment, KEY, b"x")
    damage(segment)
    with pytest.raises(WireError, match=f"^{segment.path} is damaged: "):
        use(segment)
    writer.close()


def use(segment: Segment) -> None:
    kit.get(segment, KEY)
    segment.size_bytes()
    kit.put(kit.writer(segment), segment, Key(4, "a", 0, 1), b"x")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_word(layout.W_MAGIC, 1), "is no segment of version 1"),
        (_word(layout.W_VERSION, 7), "is no segment of version 1"),
        (_word(layout.W_SLOTS, 255), "is damaged: its sizes"),
        (_word(layout.W_SLOTS, 2**62), "is damaged: its sizes"),
        (_word(layout.W_BUCKETS, 3), "is damaged: its sizes"),
        (_word(layout.W_ARENA_BYTES, 2**50), "is damaged: its sizes"),
    ],
)
def test_what_is_no_segment_is_named(
    tmp_path: Path, damage: Callable[[Segment], None], text: str
) -> None:
    segment = kit.make(tmp_path)
    damage(segment)
    with pytest.raises(WireError, match=f"^{segment.path} {text}"):
        Segment(segment.path)
    segment.path.write_bytes(b"short")
    with pytest.raises(WireError, match=f"^{segment.path} is no segment"):
        Segment(segment.path)
    segment.path.unlink()
    with pytest.raises(WireError, match=f"^{segment.path} cannot be opened"):
        Segment(segment.path)
