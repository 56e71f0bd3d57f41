"""The protocol of Redis: what is sent, literally; what is read, however it comes and whatever."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.redis import resp
from dayfly.wire.redis.resp import ProtocolError, Reader, Receive, ReplyError, Value

texts = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=20)
errors = st.builds(ReplyError, texts)
flat = st.one_of(
    st.none(), st.binary(max_size=100), texts, st.integers(-(2**63), 2**63 - 1), errors
)
values = st.recursive(flat, lambda inner: st.lists(inner, max_size=5), max_leaves=20)


def encoded(value: Value) -> bytes:
    """A reply as a server sends it."""
    match value:
        case None:
            return b"$-1\r\n"
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case str():
            return b"+%b\r\n" % value.encode()
        case int():
            return b":%d\r\n" % value
        case ReplyError():
            return b"-%b\r\n" % value.text.encode()
        case list():
            return b"*%d\r\n" % len(value) + b"".join(map(encoded, value))


def coming(data: bytes, cuts: Iterable[int] = ()) -> Receive:
    """A connection on which these bytes come, so many at a time, and then the end."""
    left, sizes = memoryview(data), list(cuts)

    def receive(into: Sequence[memoryview], whole: bool) -> int:
        nonlocal left
        most = min(len(left), sizes.pop(0) if sizes else len(left))
        done = 0
        for view in into:
            size = min(len(view), most - done)
            view[:size] = left[:size]
            left = left[size:]
            done += size
        return done

    return receive


def read_all(reader: Reader, nbytes: int) -> None:
    """As many values as there may be in so many bytes, and one more."""
    for _ in range(nbytes + 1):
        reader.value()


def depth(value: Value) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(st.lists(values, min_size=1, max_size=4), st.lists(st.integers(1, 30), max_size=60))
def test_replies_are_read_however_they_come(replies: list[Value], cuts: list[int]) -> None:
    reader = Reader(coming(b"".join(map(encoded, replies)), cuts))
    for reply in replies:
        if depth(reply) > resp._DEPTH:
            with pytest.raises(ProtocolError):
                reader.value()
            return
        assert reader.value() == reply
    with pytest.raises(EOFError):
        reader.value()


@given(st.binary(max_size=200))
def test_whatever_comes_ends_in_a_value_or_an_error(data: bytes) -> None:
    reader = Reader(coming(data))
    with pytest.raises((ProtocolError, EOFError)):
        read_all(reader, len(data))


@given(values, st.data())
def test_a_reply_that_is_cut_or_changed_does_no_harm(reply: Value, data: st.DataObject) -> None:
    raw = bytearray(encoded(reply))
    at = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        del raw[at:]
    else:
        raw[at] = data.draw(st.integers(0, 255))
    reader = Reader(coming(bytes(raw)))
    with pytest.raises((ProtocolError, EOFError)):
        read_all(reader, len(raw))


@given(st.binary(max_size=70_000), st.lists(st.integers(1, 40_000), max_size=8))
def test_a_long_value_is_read_into_place(payload: bytes, cuts: list[int]) -> None:
    reader = Reader(coming(b"*1\r\n" + encoded(payload) + b":7\r\n", cuts))
    assert reader.count() == 1
    size = reader.length()
    into = bytearray(size)
    last = max(0, size - 9_000)
    for start in range(0, last, 9_000):
        reader.fill(memoryview(into)[start : min(start + 9_000, last)])
    reader.finish(memoryview(into)[last:])
    assert into == payload
    assert reader.value() == 7


@pytest.mark.parametrize(
    "raw",
    [
        b"$99999999999999999\r\nabc",
        b"$1048577\r\n" + bytes(1000),
        b"$1048576\r\n" + bytes(1000),
        b"*9999999999999\r\n:1\r\n:2\r\n",
        b"*1\r\n" * 100_000,
        b"+" + b"x" * 10**6,
        b":" + b"1" * 10_000 + b"\r\n",
    ],
)
def test_lies_about_lengths_take_no_memory(raw: bytes) -> None:
    reader = Reader(coming(raw))
    tracemalloc.start()
    try:
        with pytest.raises((ProtocolError, EOFError)):
            reader.value()
        assert tracemalloc.get_traced_memory()[1] < 2**19
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("raw", [b"$-1\r\n", b"$x\r\n", b"*1\r\n", b"-ERR\r\n", b"HTTP/1.1\r\n"])
def test_what_is_no_value_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        Reader(coming(raw)).length()


@pytest.mark.parametrize("raw", [b"*-2\r\n", b"*x\r\n", b":1\r\n", b"\r\n"])
def test_what_is_no_list_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        Reader(coming(raw)).count()


def test_the_beginning_of_a_list_may_be_nothing_or_an_error() -> None:
    reader = Reader(coming(b"*-1\r\n-ERR no\r\n*0\r\n"))
    assert [reader.count() for _ in range(3)] == [None, ReplyError("ERR no"), 0]
    assert ReplyError("OOM it is full").code == "OOM"


def test_commands_literally() -> None:
    assert resp.command("SET", b"a\r\n", 12) == b"*3\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$2\r\n12\r\n"
    assert resp.short("SET", 12) == b"$3\r\nSET\r\n$2\r\n12\r\n"


def test_a_value_that_goes_on_beyond_its_end_is_refused() -> None:
    reader = Reader(coming(b"$3\r\nabcd\r\n"))
    assert reader.length() == 3
    with pytest.raises(ProtocolError, match="longer than was said"):
        reader.finish(memoryview(bytearray(3)))


@given(st.lists(st.integers(1, 5), max_size=12), st.binary(max_size=12), st.binary(max_size=12))
def test_what_is_known_is_read_at_once_and_all_else_stays(
    cuts: list[int], known: bytes, then: bytes
) -> None:
    raw = b"+" + known.replace(b"\r", b"").replace(b"\n", b"") + b"\r\n"
    reader = Reader(coming(raw + b":7\r\n" + then, cuts))
    assert not reader.begins(raw[:-2] + b"?\r\n")
    assert not reader.begins(b"*-1\r\n")
    assert reader.begins(raw)
    assert reader.value() == 7


def test_no_more_is_waited_for_than_tells_what_comes() -> None:
    came: list[bytes] = [b"*-1\r\n"]

    def receive(into: Sequence[memoryview], whole: bool) -> int:
        raw = came.pop()  # the other side says no more
        into[0][: len(raw)] = raw
        return len(raw)

    reader = Reader(receive)
    assert not reader.begins(b"*1\r\n*2\r\n$100\r\n")
    assert reader.count() is None
    assert not reader.begins(b"x" * 10**5)  # more than is ever read at once
