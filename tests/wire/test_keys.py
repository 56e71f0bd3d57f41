"""Keys: their names sort by step, can be read back, and are never anything but plain names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, SERVER, Key

operations = st.from_regex(r"[a-z][a-z0-9-]{0,39}", fullmatch=True)
parties = st.integers(SERVER, 10**6)
keys = st.builds(Key, st.integers(0, FOREVER), operations, parties, parties)


def test_how_a_key_reads() -> None:
    key = Key(12, "grad-part", 3, EVERYONE)
    assert key.mailbox == "to-everyone"
    assert key.name == "000000012.grad-part.3"
    assert str(key) == "grad-part of step 12 from 3 to everyone"
    assert Key(0, "stop", COORDINATOR, 3).name == "000000000.stop.coordinator"
    assert Key(0, "stop", COORDINATOR, 3).mailbox == "to-3"


@given(keys)
def test_a_name_is_read_back(key: Key) -> None:
    assert Key.parse(key.name, key.destination) == key


@given(keys)
def test_a_name_is_one_plain_part_of_a_path(key: Key) -> None:
    for part in (key.name, key.mailbox):
        assert part.isascii()
        assert "/" not in part
        assert part.strip(".") == part


@given(st.text() | st.from_regex(r"\d{9}\.[a-z][a-z0-9-]*\.(\d+|everyone)", fullmatch=True))
def test_what_is_read_is_a_name(text: str) -> None:
    key = Key.parse(text, 0)
    assert key is None or key.name == text


STRANGE = [
    "",
    "1.a.1",
    "0000000001.a.1",
    "000000001.A.1",
    "000000001.a.nobody",
    "000000001.a.01",
    "000000001.a.-1",
    "000000001.a.1\n",
    "000000001.a.1.tmp",
    "00000000٣.a.1",
    "000000001.a.٣",
    "000000001." + "a" * 41 + ".1",
]


@pytest.mark.parametrize("name", STRANGE)
def test_another_name_is_no_key(name: str) -> None:
    assert Key.parse(name, 0) is None


@given(keys, keys)
def test_keys_and_names_sort_by_step(one: Key, other: Key) -> None:
    if one.step != other.step:
        assert (one < other) == (one.name < other.name) == (one.step < other.step)


@given(st.sets(keys, min_size=2))
@pytest.mark.long
def test_different_keys_have_different_places(some: set[Key]) -> None:
    assert len({(key.mailbox, key.name) for key in some}) == len(some)


@pytest.mark.parametrize("step", [-1, FOREVER + 1])
def test_a_step_has_nine_digits(step: int) -> None:
    with pytest.raises(ValueError, match=f"step {step}"):
        Key(step, "a", 0, 1)


@pytest.mark.parametrize("operation", ["", "A", "../x", "a/b", "a.b", "a b", "1a", "a\n", "a" * 41])
def test_an_operation_is_never_a_path(operation: str) -> None:
    with pytest.raises(ValueError, match="operation"):
        Key(0, operation, 0, 1)


@pytest.mark.parametrize("parties", [(SERVER - 1, 0), (0, SERVER - 1)])
def test_unknown_parties_are_refused(parties: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no such party"):
        Key(0, "a", *parties)
