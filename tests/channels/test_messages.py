"""What is put is what is got, bit for bit; what is not as its reader expects is refused."""

from __future__ import annotations

import pytest
import torch

from dayfly.errors import WaitTimeout, WireError
from dayfly.wire.channels.base import Channel
from dayfly.wire.header import HEADER_BYTES
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, Key
from dayfly.wire.message import DTYPES, Header
from dayfly.wire.tensors import as_bytes
from tests.channels.conftest import Connect
from tests.channels.places import NAMESPACE, SOON_S, Place, put, tensor

KEY = Key(7, "grad-part", 1, 0)
SHAPES = [(), (0,), (1,), (5,), (3, 0, 2), (2, 3), (1, 2, 1, 2, 1, 2, 1, 2), (70_001,)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_arrives_with_the_same_bits(connect: Connect, dtype: torch.dtype) -> None:
    sent = tensor((3, 50), dtype)
    assert put(connect(1), KEY, sent)
    got = torch.zeros_like(sent)
    connect(0).get(KEY, got, SOON_S)
    assert as_bytes(got) == as_bytes(sent)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_arrives(connect: Connect, shape: tuple[int, ...]) -> None:
    sent = tensor(shape)
    assert put(connect(1), KEY, sent)
    got = torch.full(shape, -1.0)
    connect(0).get(KEY, got, SOON_S)
    assert torch.equal(got, sent)


def test_bits_that_are_no_numbers_arrive(connect: Connect) -> None:
    bits = torch.tensor([0x7FC00001, 0x7F800001, -(2**31), 1], dtype=torch.int32)
    put(connect(1), KEY, bits.view(torch.float32))
    got = torch.zeros(4)
    connect(0).get(KEY, got, SOON_S)
    assert torch.equal(got.view(torch.int32), bits)


@pytest.mark.parametrize("data", [b"", b"x", b"{}" * 40_000])
def test_bytes_of_unknown_size_arrive(connect: Connect, data: bytes) -> None:
    key = Key(0, "report", 3, COORDINATOR)
    assert connect(3).put_bytes(key, data)
    assert connect(COORDINATOR).get_bytes(key, SOON_S) == data


@pytest.mark.parametrize("destination", [0, 5, EVERYONE, COORDINATOR])
@pytest.mark.parametrize("step", [0, FOREVER])
def test_any_reader_and_step(connect: Connect, destination: int, step: int) -> None:
    key = Key(step, "note", COORDINATOR, destination)
    connect(COORDINATOR).put_bytes(key, b"hello")
    assert connect(max(destination, 0)).get_bytes(key, SOON_S) == b"hello"


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *((shape, torch.float32) for shape in SHAPES),
        ((2, 3), torch.bfloat16),
        ((70_001,), torch.uint8),
    ],
    ids=str,
)
def test_what_is_held_is_the_message(
    connect: Connect, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    sent = tensor(shape, dtype)
    assert put(connect(1), KEY, sent)
    reader = connect(0)
    held, _ = reader.hold(KEY, Header(KEY.operation, dtype, shape), SOON_S)
    assert held.dtype == dtype
    assert torch.equal(held, sent)
    assert reader.traffic.bytes_down == HEADER_BYTES + sent.nbytes
    if reader.abilities.direct:  # freed, as its one reader has read it
        assert reader.stored([KEY]) == set()
        assert put(connect(1), KEY, sent)
    by_copy, _ = Channel.hold(reader, KEY, Header(KEY.operation, dtype, shape), SOON_S)
    assert torch.equal(by_copy, sent)


def test_what_cannot_be_held_is_named(connect: Connect) -> None:
    channel = connect(0)
    header = Header(KEY.operation, torch.float32, (4,))
    with pytest.raises(WaitTimeout, match=f"{KEY} .*0.01 s"):
        channel.hold(KEY, header, 0.01)
    put(connect(1), KEY, tensor((5,)))
    with pytest.raises(WireError, match=rf"^{KEY}: expected .*\[4\], found .*\[5\]"):
        channel.hold(KEY, header, SOON_S)


def test_a_message_stays_after_it_was_read(connect: Connect) -> None:
    """Until it is dropped; where workers talk directly, until all of its readers have read it."""
    reader = connect(0)
    put(connect(1), KEY, tensor((4,)))
    for _ in range(1 if reader.abilities.direct else 2):
        got = torch.zeros(4)
        reader.get(KEY, got, SOON_S)
        assert torch.equal(got, tensor((4,)))
    assert reader.stored([KEY]) == (set() if reader.abilities.direct else {KEY})


@pytest.mark.parametrize("timeout_s", [0, 0.01])
def test_a_missing_message_is_named_with_the_time(connect: Connect, timeout_s: float) -> None:
    channel = connect(0)
    with pytest.raises(WaitTimeout, match=f"{KEY} .*{timeout_s:g} s"):
        channel.get(KEY, torch.zeros(4), timeout_s)
    with pytest.raises(WaitTimeout, match=f"{KEY} .*{timeout_s:g} s"):
        channel.get_bytes(KEY, timeout_s)


@pytest.mark.parametrize(
    ("sent", "operation", "found"),
    [
        (tensor((4,)), "other", r"other float32\[4\]"),
        (tensor((4,), torch.int32), "grad-part", r"grad-part int32\[4\]"),
        (tensor((2, 2)), "grad-part", r"grad-part float32\[2, 2\]"),
        (tensor((5,)), "grad-part", r"grad-part float32\[5\]"),
        (tensor(()), "grad-part", r"grad-part float32\[\]"),
    ],
)
def test_another_message_is_refused(
    connect: Connect, sent: torch.Tensor, operation: str, found: str
) -> None:
    put(connect(1), KEY, sent, operation)
    expected = rf"{KEY}: expected grad-part float32\[4\], found {found}"
    with pytest.raises(WireError, match=expected):
        connect(0).get(KEY, torch.zeros(4), SOON_S)


@pytest.mark.parametrize(
    ("sent", "operation"),
    [
        (tensor((4,)), "grad-part"),
        (tensor((2, 2), torch.uint8), "grad-part"),
        (tensor((4,), torch.uint8), "other"),
    ],
)
def test_get_bytes_refuses_what_is_not_bytes(
    connect: Connect, sent: torch.Tensor, operation: str
) -> None:
    put(connect(1), KEY, sent, operation)
    with pytest.raises(WireError, match=f"{KEY}: expected grad-part of bytes, found {operation} "):
        connect(0).get_bytes(KEY, SOON_S)


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


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("way", ["get", "get_bytes", "hold"])
def test_a_damaged_message_is_refused(
    connect: Connect, place: Place, damage: str, way: str
) -> None:
    writer, reader = connect(1), connect(0)
    sent = tensor((8,), torch.uint8)
    put(writer, KEY, sent)
    whole = place.raw(NAMESPACE, KEY)
    writer.drop([KEY])
    assert writer.stored([KEY]) == set()  # now it is gone, also for others
    place.plant(NAMESPACE, KEY, DAMAGE[damage](whole))
    read = {
        "get": lambda: reader.get(KEY, torch.zeros_like(sent), SOON_S),
        "get_bytes": lambda: reader.get_bytes(KEY, SOON_S),
        "hold": lambda: reader.hold(KEY, Header(KEY.operation, torch.uint8, (8,)), SOON_S),
    }
    with pytest.raises(WireError, match=f"^{KEY}: ") as refused:
        read[way]()
    said = str(refused.value)
    # Either what was expected and found, or that its seal is wrong.
    sealed = "not authentic" if reader.abilities.authenticated else "checksum"
    assert ("expected" in said and "found" in said) or said.count(sealed) == 1, said
    assert not isinstance(refused.value, WaitTimeout)
