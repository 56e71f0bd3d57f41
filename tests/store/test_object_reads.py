"""Which requests read what of an object, and where the bytes of an answer go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.stores.object_client import GAP_BYTES, READ_BYTES, Read, plan_reads, scatter


def planned(*ranges: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Start, stop and number of ranges of each request."""
    memory = [(offset, memoryview(bytearray(size))) for offset, size in ranges]
    return [(read.start, read.stop, len(read.into)) for read in plan_reads(memory)]


def test_which_requests_read_what() -> None:
    whole, gap = READ_BYTES, GAP_BYTES
    assert planned() == planned((5, 0)) == []
    assert planned((0, 10), (10, 5), (15 + gap, 1)) == [(0, 16 + gap, 3)]
    assert planned((0, 10), (11 + gap, 1)) == [(0, 10, 1), (11 + gap, 12 + gap, 1)]
    assert planned((7, whole + 3)) == [(7, 7 + whole, 1), (7 + whole, 10 + whole, 1)]
    assert planned((8, 10), (0, 10)) == [(0, 10, 1), (8, 18, 1)], "overlapping ones apart"


@settings(max_examples=50)
@given(
    ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=6),
    chunk=st.integers(1, 30),
    length=st.integers(0, 90),
)
def test_every_byte_gets_to_its_place(
    ranges: list[tuple[int, int]], chunk: int, length: int
) -> None:
    data = bytes(range(1, length + 1))
    memory = [(offset, memoryview(bytearray(size))) for offset, size in ranges]
    whole = True
    for read in plan_reads(memory):
        answer = data[read.start : read.stop]
        chunks = [memoryview(answer[at : at + chunk]) for at in range(0, len(answer), chunk)]
        end = scatter(chunks, Read(read.start, read.stop, read.into))
        assert end == max(read.start, min(read.stop, length))
        whole = whole and end == read.stop
    if whole:
        for offset, into in memory:
            assert bytes(into) == data[offset : offset + into.nbytes]
