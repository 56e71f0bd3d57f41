"""The dictionary of a store does what torch's own do."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.errors import WireError
from dayfly.wire.process_group.store import LATE, OK, WRONG, Entries, pack, unpack

NAMES = ("a", "b", "ä c")
names = st.sampled_from(NAMES)
numbers = st.integers(-(10**12), 10**12)
texts = st.sampled_from(["", "x", "7", "long " * 99])
requests = st.one_of(
    st.tuples(st.just("set"), names, texts),
    st.tuples(st.just("add"), names, numbers),
    st.tuples(st.just("compare"), names, texts, texts),
    st.tuples(st.just("append"), names, texts),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("set-all"), names, texts, names, texts),
    st.tuples(st.just("check"), names, names),
    st.tuples(st.just("get"), names, names),
    st.tuples(st.just("count")),
)


def asked_of_torch(store: dist.Store, operation: str, *about: object) -> list[bytes] | None:
    """The same request, of torch's own store."""
    match operation:
        case "set":
            store.set(*about)
            return [OK]
        case "append":
            store.append(*about)
            return [OK]
        case "set-all":
            store.multi_set(list(about[::2]), list(about[1::2]))
            return [OK]
        case "add":
            try:
                return [OK, str(store.add(*about)).encode()]
            except (RuntimeError, ValueError):
                return [WRONG, b"what is there is no number"]
        case "compare":
            return [OK, store.compare_set(*about)]
        case "delete":
            return [OK, b"1" if store.delete_key(*about) else b"0"]
        case "check":
            return [OK, b"1" if store.check(list(about)) else b"0"]
        case "count":
            return [OK, str(store.num_keys()).encode()]
        case "get" if store.check(list(about)):
            return [OK, *store.multi_get(list(about))]
    return None


@settings(deadline=None)
@given(st.lists(requests, max_size=30))
def test_all_is_as_in_a_hash_store(asked: list[tuple[object, ...]]) -> None:
    theirs, ours = dist.HashStore(), Entries()
    theirs.set_timeout(timedelta(seconds=1))
    for operation, *about in asked:
        if operation == "add" and not _counts(theirs, about[0]):
            continue  # torch reads the number that a text begins with; see below
        fields = [str(field).encode() for field in about]
        assert ours.answer(str(operation).encode(), fields) == asked_of_torch(
            theirs, str(operation), *about
        ), (operation, about)


def _counts(store: dist.Store, name: object) -> bool:
    return not store.check([name]) or store.get(name).lstrip(b"-").isdigit()


def test_what_is_no_number_is_not_counted() -> None:
    entries = Entries()
    assert entries.answer(b"set", [b"a", b"7 apples"]) == [OK]
    assert entries.answer(b"add", [b"a", b"1"]) == [WRONG, b"what is there is no number"]
    assert entries.answer(b"get", [b"a"]) == [OK, b"7 apples"]


def test_some_wait_and_others_do_not() -> None:
    entries = Entries()
    assert entries.answer(b"wait", [b"a", b"b"]) is None
    assert entries.answer(b"set", [b"b", b"\0\xff"]) == [OK]
    assert entries.answer(b"wait", [b"a", b"b"]) is None
    assert entries.answer(b"get", [b"b"]) == [OK, b"\0\xff"]
    assert entries.answer(b"add", [b"a", b"0"]) == [OK, b"0"]
    assert entries.answer(b"wait", [b"a", b"b"]) == [OK]
    assert entries.answer(b"wait", []) == [OK]


@pytest.mark.parametrize(
    ("operation", "about"), [(b"pop", [b"a"]), (b"set", [b"a"]), (b"set-all", [b"a"] * 3)]
)
def test_what_is_not_known_is_refused(operation: bytes, about: list[bytes]) -> None:
    with pytest.raises(WireError, match=r"asked for .* unknown to it"):
        Entries().answer(operation, about)


def test_a_message_is_laid_out_so() -> None:
    assert pack([LATE, b""]) == b"\4\0\0\0\0\0\0\0late\0\0\0\0\0\0\0\0"


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20)), st.integers(1, 9))
def test_fields_arrive_and_what_is_cut_short_is_refused(fields: list[bytes], cut: int) -> None:
    message = pack(fields)
    assert unpack(message) == fields
    if fields and cut <= 8 + len(fields[-1]):
        whole = pack(fields[:-1])
        if len(message) - cut != len(whole):
            with pytest.raises(WireError, match="cut short"):
                unpack(message[: len(message) - cut])
