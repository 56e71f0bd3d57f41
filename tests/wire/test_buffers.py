"""Memory that is lent: never twice at once, and never more of it than was needed at once."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.buffers import BufferPool


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
