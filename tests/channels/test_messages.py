"""What is put is what is got, bit for bit; what is not as its reader expects is refused.

A place costs a server's connections or a directory of its own, so that cases which need nothing of
each other share one, each under the key of another step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, HEADER_BYTES, Key
from dayfly.wire.message import DTYPES, Header, as_bytes
from tests.channels.conftest import Connect
from tests.channels.places import NAMESPACE, SOON_S, Place, put, tensor

KEY = Key(7, "grad-part", 1, 0)


def at(step: int) -> Key:
    """The same key in another step."""
    return replace(KEY, step=step)


SHAPES = [(), (0,), (1,), (5,), (3, 0, 2), (2, 3), (1, 2, 1, 2, 1, 2, 1, 2), (70_001,)]


def test_every_dtype_arrives_with_the_same_bits(connect: Connect) -> None:
    writer, reader = connect(1), connect(0)
    for step, dtype in enumerate(DTYPES):
        key, sent = at(step), tensor((3, 50), dtype)
        assert put(writer, key, sent)
        got = torch.zeros_like(sent)
        reader.get(key, got, SOON_S)
        assert as_bytes(got) == as_bytes(sent), dtype


def test_every_shape_arrives(connect: Connect) -> None:
    writer, reader = connect(1), connect(0)
    for step, shape in enumerate(SHAPES):
        key, sent = at(step), tensor(shape)
        assert put(writer, key, sent)
        got = torch.full(shape, -1.0)
        reader.get(key, got, SOON_S)
        assert torch.equal(got, sent), shape


def test_bits_that_are_no_numbers_arrive(connect: Connect) -> None:
    bits = torch.tensor([0x7FC00001, 0x7F800001, -(2**31), 1], dtype=torch.int32)
    put(connect(1), KEY, bits.view(torch.float32))
    got = torch.zeros(4)
    connect(0).get(KEY, got, SOON_S)
    assert torch.equal(got.view(torch.int32), bits)


def test_bytes_of_unknown_size_arrive(connect: Connect) -> None:
    worker, coordinator = connect(3), connect(COORDINATOR)
    for step, data in enumerate([b"", b"x", b"{}" * 40_000]):
        key = Key(step, "report", 3, COORDINATOR)
        assert worker.put_bytes(key, data)
        assert coordinator.get_bytes(key, SOON_S) == data


def test_any_reader_and_step(connect: Connect) -> None:
    coordinator = connect(COORDINATOR)
    for destination in (0, 5, EVERYONE, COORDINATOR):
        reader = connect(max(destination, 0))
        for step in (0, FOREVER):
            key = Key(step, "note", COORDINATOR, destination)
            coordinator.put_bytes(key, b"hello")
            assert reader.get_bytes(key, SOON_S) == b"hello", key


def test_what_is_held_is_the_message(connect: Connect) -> None:
    writer, reader = connect(1), connect(0)
    messages = [tensor(shape) for shape in SHAPES]
    messages += [tensor((2, 3), torch.bfloat16), tensor((70_001,), torch.uint8)]
    for step, sent in enumerate(messages):
        key, header = at(step), Header(KEY.operation, sent.dtype, tuple(sent.shape))
        assert put(writer, key, sent)
        before = reader.traffic.bytes_down
        held, _ = reader.fetch(key, header, SOON_S)
        assert held.dtype == sent.dtype
        assert torch.equal(held, sent), header
        assert reader.traffic.bytes_down - before == HEADER_BYTES + sent.nbytes
        if reader.abilities.direct:  # freed, as its one reader has read it
            assert reader.stored([key]) == set()
            assert put(writer, key, sent)
        by_copy, _ = Channel.fetch(reader, key, header, SOON_S)
        assert torch.equal(by_copy, sent), header


def test_what_cannot_be_held_is_named(connect: Connect) -> None:
    channel = connect(0)
    header = Header(KEY.operation, torch.float32, (4,))
    with pytest.raises(WaitTimeout, match=f"{KEY} .*0.01 s"):
        channel.fetch(KEY, header, 0.01)
    put(connect(1), KEY, tensor((5,)))
    with pytest.raises(WireError, match=rf"^{KEY}: expected .*\[4\], found .*\[5\]"):
        channel.fetch(KEY, header, SOON_S)


def test_a_message_stays_after_it_was_read(connect: Connect) -> None:
    """Until it is dropped; where workers talk directly, until all of its readers have read it."""
    reader = connect(0)
    put(connect(1), KEY, tensor((4,)))
    for _ in range(1 if reader.abilities.direct else 2):
        got = torch.zeros(4)
        reader.get(KEY, got, SOON_S)
        assert torch.equal(got, tensor((4,)))
    assert reader.stored([KEY]) == (set() if reader.abilities.direct else {KEY})


def test_a_missing_message_is_named_with_the_time(connect: Connect) -> None:
    channel = connect(0)
    for timeout_s in (0, 0.01):
        with pytest.raises(WaitTimeout, match=f"{KEY} .*{timeout_s:g} s"):
            channel.get(KEY, torch.zeros(4), timeout_s)
        with pytest.raises(WaitTimeout, match=f"{KEY} .*{timeout_s:g} s"):
            channel.get_bytes(KEY, timeout_s)


def test_another_message_is_refused(connect: Connect) -> None:
    writer, reader = connect(1), connect(0)
    others = [
        (tensor((4,)), "other", "other float32[4]"),
        (tensor((4,), torch.int32), "grad-part", "grad-part int32[4]"),
        (tensor((2, 2)), "grad-part", "grad-part float32[2, 2]"),
        (tensor((5,)), "grad-part", "grad-part float32[5]"),
        (tensor(()), "grad-part", "grad-part float32[]"),
    ]
    for step, (sent, operation, found) in enumerate(others):
        put(writer, at(step), sent, operation)
        expected = f"{at(step)}: expected grad-part float32[4], found {found}"
        with pytest.raises(WireError, match=re.escape(expected)):
            reader.get(at(step), torch.zeros(4), SOON_S)


def test_get_bytes_refuses_what_is_not_bytes(connect: Connect) -> None:
    writer, reader = connect(1), connect(0)
    others = [
        (tensor((4,)), "grad-part"),
        (tensor((2, 2), torch.uint8), "grad-part"),
        (tensor((4,), torch.uint8), "other"),
    ]
    for step, (sent, operation) in enumerate(others):
        put(writer, at(step), sent, operation)
        expected = f"{at(step)}: expected grad-part of bytes, found {operation} "
        with pytest.raises(WireError, match=expected):
            reader.get_bytes(at(step), SOON_S)


DAMAGE = {
    "payload": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
    "seal": lambda raw: raw[:120] + bytes([raw[120] ^ 1]) + raw[121:],
    "kind of seal": lambda raw: raw[:7] + bytes([raw[7] ^ 1]) + raw[8:],
    "unused byte": lambda raw: raw[:97] + b"\1" + raw[98:],
    "cut by one": lambda raw: raw[:-1],
    "payload gone": lambda raw: raw[:HEADER_BYTES],
    "header cut": lambda raw: raw[: HEADER_BYTES - 1],
    "nothing": lambda raw: b"",
    "garbage": lambda raw: b"\xa5" * len(raw),
    "another version": lambda raw: raw[:4] + b"\1" + raw[5:],
}


@pytest.mark.parametrize("way", ["get", "get_bytes", "fetch"])
def test_a_damaged_message_is_refused(connect: Connect, place: Place, way: str) -> None:
    writer, reader = connect(1), connect(0)
    sent = tensor((8,), torch.uint8)
    header = Header(KEY.operation, torch.uint8, (8,))
    read: dict[str, Callable[[Key], object]] = {
        "get": lambda key: reader.get(key, torch.zeros_like(sent), SOON_S),
        "get_bytes": lambda key: reader.get_bytes(key, SOON_S),
        "fetch": lambda key: reader.fetch(key, header, SOON_S),
    }
    for step, (damage, damaged) in enumerate(DAMAGE.items()):
        key = at(step)
        put(writer, key, sent)
        whole = place.raw(NAMESPACE, key)
        writer.drop([key])
        assert writer.stored([key]) == set()  # now it is gone, also for others
        place.plant(NAMESPACE, key, damaged(whole))
        with pytest.raises(WireError, match=f"^{key}: ") as refused:
            read[way](key)
        said = str(refused.value)
        # Either what was expected and found, or that its seal is wrong.
        sealed = "not authentic" if reader.abilities.authenticated else "checksum"
        named = ("expected" in said and "found" in said) or said.count(sealed) == 1
        assert named, f"{damage}: {said}"
        assert not isinstance(refused.value, WaitTimeout), damage
