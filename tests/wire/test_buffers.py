"""Memory that is lent: never twice at once, and never more of it than was needed at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.buffers import BufferPool, TermsBuffer


def test_what_was_given_back_is_lent_again() -> None:
    buffers = BufferPool()
    first = buffers.take(torch.float32, 1000)
    place = first.data_ptr()
    buffers.give(first)
    again = buffers.take(torch.bfloat16, 1500)  # smaller, but not by half
    assert again.data_ptr() == place
    assert again.shape == (1500,)
    buffers.give(again)
    assert buffers.take(torch.uint8, 1000).data_ptr() != place


def test_nothing_is_lent_too() -> None:
    buffers = BufferPool()
    empty = buffers.take(torch.float32, 0)
    buffers.give(empty)
    assert empty.shape == (0,)
    assert buffers.held_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5)), max_size=60))
def test_lent_blocks_do_not_overlap_and_none_is_kept_beyond_the_most(
    asked: list[tuple[int, int]],
) -> None:
    """Each is filled with its number; up to five are out at once, of ever other sizes."""
    buffers, out, most = BufferPool(), [], 0
    for number, (length, place) in enumerate(asked):
        tensor = buffers.take(torch.int32, length).fill_(number)
        out.append((number, tensor))
        most = max(most, 2 * sum(one.nbytes for _, one in out))
        assert buffers.held_bytes <= most
        if len(out) > 5:
            expected, given_back = out.pop(place)
            assert (given_back == expected).all()
            buffers.give(given_back)
            assert buffers.held_bytes <= most


def test_terms_are_one_behind_another_and_the_sum_is_as_long_as_one() -> None:
    terms = [torch.arange(3.0) + 10 * number for number in range(3)]
    buffer = TermsBuffer(terms)
    assert (buffer.numel(), buffer.dtype, buffer.itemsize) == (3, torch.float32, 4)
    assert buffer[4:6].tolist() == [11.0, 12.0]
    buffer[6:9].zero_()
    assert terms[2].tolist() == [0.0] * 3
    assert len(buffer[9:9]) == 0
    with pytest.raises(ValueError, match=r"terms of \[3, 2\] elements"):
        TermsBuffer([terms[0], terms[1][:2]])
