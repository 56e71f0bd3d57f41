"""The header: read back as packed; any byte that changes on the way is noticed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import WireError
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.message import DTYPES, Header, as_bytes, checksum, verify

operations = st.from_regex(r"[a-z][a-z0-9-]{0,39}", fullmatch=True)
shapes = st.lists(st.integers(0, 3), max_size=8).map(tuple)
headers = st.builds(Header, operations, st.sampled_from(DTYPES), shapes)


def payload_of(header: Header) -> memoryview:
    return memoryview(bytes(number % 251 for number in range(header.nbytes)))


def packed(header: Header, payload: memoryview) -> bytes:
    """The header of a message with a checksum."""
    first, seed = header.summed(payload.nbytes)
    return first + checksum(payload, seed).to_bytes(8, "little")


def test_the_layout() -> None:
    payload = memoryview(b"\1\0\0\0\2\0\0\0")
    raw = packed(Header("sum", torch.int32, (2, 1)), payload)
    assert raw[:8] == b"dfly" + bytes([2, 7, 2, 0])
    assert raw[8:48] == b"sum".ljust(40, b"\0")
    assert raw[48:96] == b"\2".ljust(6, b"\0") + b"\1".ljust(42, b"\0")
    assert raw[96:120] == bytes(24)
    assert raw[120:].hex() == "8507fe3d556d2278"
    assert len(raw) == HEADER_BYTES == 128


def test_a_type_keeps_its_number_for_ever() -> None:
    assert [str(dtype).removeprefix("torch.") for dtype in DTYPES] == [
        *("uint8", "float32", "float64", "float16", "bfloat16"),
        *("int8", "int16", "int32", "int64", "bool"),
        *("complex64", "complex128", "uint16", "uint32", "uint64"),
        *("float8_e4m3fn", "float8_e5m2", "complex32"),
        *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    ]


@given(headers)
def test_a_header_is_read_back(header: Header) -> None:
    payload = payload_of(header)
    raw = packed(header, payload)
    assert len(raw) == HEADER_BYTES
    assert Header.unpack(raw) == header
    verify(raw, payload)


@given(headers, st.data())
def test_a_payload_of_another_size_is_not_packed(header: Header, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 2 * header.nbytes + 1).filter(lambda n: n != header.nbytes))
    with pytest.raises(WireError, match=f"payload has {size} bytes, not {header.nbytes}"):
        packed(header, memoryview(bytes(size)))


def accepted(raw: bytes, payload: bytes, expected: Header) -> bool:
    """What every channel does with a message: read, compare, verify."""
    try:
        found = Header.unpack(raw)
        verify(raw, memoryview(payload))
    except WireError:
        return False
    return found == expected


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)], ids=str)
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_any_single_byte_that_changes_is_noticed(shape: tuple[int, ...], flip: int) -> None:
    header = Header("grad-part", torch.float32, shape)
    payload = payload_of(header)
    whole = packed(header, payload) + bytes(payload)
    assert accepted(whole[:HEADER_BYTES], whole[HEADER_BYTES:], header)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= flip
        raw, rest = bytes(damaged[:HEADER_BYTES]), bytes(damaged[HEADER_BYTES:])
        assert not accepted(raw, rest, header), f"byte {position}"
        # `verify` alone notices too, for readers that cannot compare.
        with pytest.raises(WireError, match="checksum"):
            verify(raw, memoryview(rest))


def test_the_checksum_is_of_header_and_payload_together() -> None:
    """A whole payload under another message's whole header is not accepted."""
    one, other = Header("a", torch.uint8, (4,)), Header("b", torch.uint8, (4,))
    payload = payload_of(one)
    raw_one, raw_other = packed(one, payload), packed(other, payload)
    with pytest.raises(WireError, match="checksum"):
        verify(raw_other[:120] + raw_one[120:], payload)


@given(st.binary(max_size=200))
def test_garbage_is_no_header(raw: bytes) -> None:
    with pytest.raises(WireError, match=r"shorter than its header|no dayfly message"):
        Header.unpack(raw)


@pytest.mark.parametrize(
    "header",
    [
        Header("a", torch.uint8, (1,) * 9),
        Header("a", torch.uint8, (0, 2**48)),
        Header("a", torch.quint8, ()),
        Header("a" * 41, torch.uint8, ()),
        Header("é", torch.uint8, ()),
    ],
    ids=["9 dims", "long dim", "quantized", "long", "not ASCII"],
)
def test_what_does_not_fit_the_layout_is_refused(header: Header) -> None:
    with pytest.raises(WireError, match="at most"):
        packed(header, memoryview(bytes(header.nbytes)))


def test_as_bytes_is_the_tensor_itself() -> None:
    whole = torch.arange(6, dtype=torch.int16)
    part = as_bytes(whole[2:4])
    assert bytes(part) == b"\2\0\3\0"
    part[0] = 7
    assert whole.tolist() == [0, 1, 7, 3, 4, 5]
    assert as_bytes(torch.tensor(3.0, requires_grad=True)).nbytes == 4
    assert as_bytes(torch.zeros(2, 0, 3)).nbytes == 0


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(4, 4).T[:, :2], torch.zeros(8)[::2], torch.zeros(4, device="meta")],
    ids=["columns", "strided", "meta"],
)
def test_as_bytes_refuses_what_is_not_contiguous_memory(tensor: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=str(tensor.device)):
        as_bytes(tensor)
