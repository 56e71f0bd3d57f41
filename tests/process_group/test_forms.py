"""The chunks of a message: all of its elements once, and a first one that tells them all."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.process_group.p2p_context import BufferForm, Chunk
from dayfly.wire.schedule import MOST_CHUNKS, Span

lengths = st.integers(0, 5000)
#: In bytes, of four-byte elements.
chunks = st.integers(1, 40)


def test_the_first_message_has_what_is_left_over() -> None:
    assert BufferForm(torch.float32, 21).parts(16) == (
        Chunk(Span(0, 5), (1, 5, 1)),
        *(Chunk(Span(at, at + 4), (4,)) for at in (5, 9, 13, 17)),
    )


@given(lengths, chunks)
def test_every_element_is_in_one_message(length: int, chunk_bytes: int) -> None:
    parts = BufferForm(torch.int32, length).parts(chunk_bytes)
    assert 1 <= len(parts) <= MOST_CHUNKS
    stop = 0
    for part in parts:
        assert part.span.start == stop
        stop = part.span.stop
        assert torch.Size(part.shape).numel() == len(part.span)
        assert len(part.shape) <= 8
    assert stop == length


@given(lengths, lengths, chunks)
def test_no_two_lengths_begin_alike(one: int, other: int, chunk_bytes: int) -> None:
    first, second = (
        BufferForm(torch.int32, length).parts(chunk_bytes)[0] for length in (one, other)
    )
    assert (first.shape == second.shape) == (one == other)


def test_over_memory_all_is_one_message() -> None:
    assert BufferForm(torch.float32, 10**6).parts(None) == (Chunk(Span(0, 10**6), (10**6,)),)
    assert str(BufferForm(torch.bfloat16, 3)) == "bfloat16[3]"
