"""Schedules as data: what is valid, what reads the buffer, how a buffer is split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.schedule import Kind, Lane, Name, Op, Schedule, Span, split

A, B = Span(0, 2), Span(2, 4)
PART, SUM = Name("part", 0, 1), Name("sum", 0)


@given(st.integers(0, 10**9), st.integers(1, 200))
def test_splits_cover_the_length_and_differ_by_one_at_most(length: int, parts: int) -> None:
    spans = split(length, parts)
    assert len(spans) == parts
    assert spans[0].start == 0
    assert spans[-1].stop == length
    assert all(one.stop == other.start for one, other in pairwise(spans))
    sizes = [len(span) for span in spans]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_a_split_drawn() -> None:
    """8 elements in 3: |0 1 2|3 4 5|6 7|, and 2 in 3: |0|1||."""
    assert split(8, 3) == (Span(0, 3), Span(3, 6), Span(6, 8))
    assert split(2, 3) == (Span(0, 1), Span(1, 2), Span(2, 2))


@pytest.mark.parametrize("after", [(1,), (2,), (-1,), (0, 1)])
def test_an_operation_waits_for_earlier_ones_only(after: tuple[int, ...]) -> None:
    ops = (Op(Kind.PUT, A, PART), Op(Kind.GET, A, SUM, after=after))
    with pytest.raises(ValueError, match=r"operation 1 waits for one that is not before it.*sum"):
        Schedule(ops)


def test_the_lanes() -> None:
    lanes = {kind: Op(kind, A).lane for kind in Kind}
    assert lanes == {
        Kind.PUT: Lane.UPLINK,
        Kind.GET: Lane.DOWNLINK,
        Kind.FETCH: Lane.DOWNLINK,
        Kind.REDUCE: Lane.COMPUTE,
        Kind.DROP: Lane.COMPUTE,
        Kind.COMPUTE: Lane.COMPUTE,
    }


READS = {
    "nothing": ((), False),
    "put": ((Op(Kind.PUT, A, PART),), True),
    "put of nothing": ((Op(Kind.PUT, Span(2, 2), PART),), False),
    "get": ((Op(Kind.GET, A, SUM),), False),
    "get, put the same": ((Op(Kind.GET, A, SUM), Op(Kind.PUT, A, PART)), False),
    "get, put another": ((Op(Kind.GET, A, SUM), Op(Kind.PUT, B, PART)), True),
    "reduce others'": ((Op(Kind.FETCH, A, PART), Op(Kind.REDUCE, A, terms=(PART,))), False),
    "reduce own": ((Op(Kind.FETCH, A, PART), Op(Kind.REDUCE, A, terms=(PART, None))), True),
    "reduce others', put": ((Op(Kind.REDUCE, A, terms=(PART,)), Op(Kind.PUT, A, SUM)), False),
    "fetch, put": ((Op(Kind.FETCH, A, PART), Op(Kind.PUT, A, SUM)), True),
}


@pytest.mark.parametrize("case", READS)
def test_who_reads_the_buffer(case: str) -> None:
    ops, expected = READS[case]
    assert Schedule(ops).reads_buffer is expected
