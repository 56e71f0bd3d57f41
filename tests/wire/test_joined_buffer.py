"""Several tensors as one buffer: views of each, and none of two at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.buffers import JoinedBuffer


def three() -> list[torch.Tensor]:
    return [torch.tensor([0.0, 1, 2]), torch.tensor([3.0, 4]), torch.tensor([5.0, 6, 7, 8])]


def test_a_span_is_a_view_of_the_tensor_in_which_it_lies() -> None:
    tensors = three()
    pieces = JoinedBuffer(tensors)
    assert (len(pieces), pieces.numel(), pieces.itemsize, pieces.nbytes) == (9, 9, 4, 36)
    assert pieces.dtype is torch.float32
    pieces[3:5].fill_(9)
    pieces[6:8].fill_(10)
    assert [one.tolist() for one in tensors] == [[0, 1, 2], [9, 9], [5, 10, 10, 8]]


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    start=st.integers(0, 20),
    stop=st.integers(0, 20),
)
def test_it_is_as_if_they_were_one(lengths: list[int], start: int, stop: int) -> None:
    tensors = [torch.randn(length) for length in lengths]
    whole, pieces = torch.cat(tensors), JoinedBuffer(tensors)
    ends = torch.tensor([0, *lengths]).cumsum(0).tolist()
    start, stop = min(start, len(whole)), min(stop, len(whole))
    if start < stop and any(start < end < stop for end in ends):
        with pytest.raises(ValueError, match=f"elements {start} to {stop} lie in several pieces"):
            pieces[start:stop]
    else:
        assert pieces[start:stop].dtype is torch.float32
        assert torch.equal(pieces[start:stop], whole[start:stop])


def test_what_is_no_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="give one tensor at least"):
        JoinedBuffer([])
    for odd in (torch.zeros(2, 2), torch.zeros(4)[::2], torch.zeros(2, dtype=torch.int32)):
        with pytest.raises(ValueError, match="give flat, contiguous ones of one type"):
            JoinedBuffer([torch.zeros(1), odd])
    with pytest.raises(ValueError, match="every 2th element"):
        JoinedBuffer(three())[0:2:2]
