"""Sparse buffers on the wire: nothing is lost, the smallest form travels, and damage is seen."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.errors import WireError
from dayfly.wire.codec import CHUNK, CODECS, sparse_bytes
from dayfly.wire.schedule import Span
from dayfly.wire.sparse import BITMAP, DENSE, LISTED

SPARSE = CODECS["sparse"]()
RAW = 255


def sent(values: torch.Tensor, start: int = 0) -> torch.Tensor:
    return SPARSE.encode(values, Span(start, start + len(values)), total=False)


def read(message: torch.Tensor, length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    into = torch.full((length,), 7.0, dtype=dtype)
    SPARSE.decode(message, into)
    return into


def some(length: int, count: int, seed: int, magnitudes: int | None = None) -> torch.Tensor:
    """So many values that are not 0, of a few magnitudes or of any."""
    random = torch.Generator().manual_seed(seed)
    values = torch.zeros(length)
    at = torch.randperm(length, generator=random)[:count]
    if magnitudes is None:
        values[at] = torch.randn(len(at), generator=random)
    else:
        sizes = torch.rand(magnitudes, generator=random) + 0.5
        signs = 2.0 * torch.randint(2, (len(at),), generator=random) - 1
        values[at] = sizes[torch.randint(magnitudes, (len(at),), generator=random)] * signs
    return values


def head(message: torch.Tensor) -> tuple[int, int]:
    """Form of places, and bits of a number or RAW."""
    return int(message[0]), int(message[1])


def test_a_message_of_two_chunks_literally() -> None:
    """Elements 4095 to 4098 of a buffer: the last of one chunk, and three of the next."""
    values = torch.tensor([1.5, 0.0, -1.5, 2.0])
    # As so few bits are a bitmap, and as one table of two magnitudes is more than two numbers.
    assert sent(values, 4095).tolist() == [
        *(BITMAP, RAW, 0xFF, 0x0F),
        0b1101,
        *np.array([1.5, -1.5, 2.0], "<f4").tobytes(),
    ]
    wide = torch.zeros(CHUNK)
    wide[[1, 100, 300, 4000]] = torch.tensor([1.5, -1.5, 2.0, 1.5])
    assert sent(wide).tolist() == [
        *(LISTED, 1, 0, 0),
        *(4, 0),  # four in the chunk
        *(1 | 100 << 12 | 300 << 24 | 4000 << 36).to_bytes(6, "little"),
        *(2, 0),  # two magnitudes
        *np.array([1.5, 2.0], "<f4").tobytes(),
        0b00_10_01_00,  # from the right: 1.5, -1.5, 2.0, 1.5
    ]


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(0, 3 * CHUNK),
    start=st.integers(0, 2 * CHUNK),
    share=st.sampled_from([0.0, 0.001, 0.02, 0.2, 0.6, 1.0]),
    magnitudes=st.sampled_from([None, 1, 2, 30]),
    double=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_nothing_is_lost(
    length: int, start: int, share: float, magnitudes: int | None, double: bool, seed: int
) -> None:
    values = some(length, round(share * length), seed, magnitudes)
    values = values.double() / 3 if double else values
    message = sent(values, start)
    found = read(message, length, values.dtype)
    assert found.numpy().tobytes() == values.numpy().tobytes()
    assert len(message) <= 4 + values.nbytes, "never more than all of it"


def test_what_is_no_number_keeps_its_bits_and_zeros_are_positive() -> None:
    values = torch.zeros(5000)
    odd = np.array([0x7FC00001, 0xFF800000, 0x7F800000, 0x80000000, 0x00000001], np.uint32)
    values[[3, 999, 1000, 4500, 4999]] = torch.from_numpy(odd.view(np.float32))
    found = read(sent(values), 5000).numpy().view(np.uint32)
    assert found[[3, 999, 1000, 4500, 4999]].tolist() == [*odd[:3], 0, 1]
    assert np.count_nonzero(found) == 4


def test_the_smallest_form_travels() -> None:
    assert head(sent(some(CHUNK, 41, 0, 2))) == (LISTED, 1)
    assert head(sent(some(CHUNK, 41, 0))) == (LISTED, RAW)
    assert head(sent(some(CHUNK, 800, 0, 2))) == (BITMAP, 1)
    assert head(sent(some(CHUNK, 3000, 0))) == (BITMAP, RAW)
    assert head(sent(some(CHUNK, 4096, 0))) == (DENSE, RAW)
    # A hundredth in 2 bits each: 12 bits of a place, and 12 bytes a chunk.
    assert len(sent(some(CHUNK, 41, 0, 2))) == 4 + 2 + 62 + 2 + 8 + 11


@settings(max_examples=60, deadline=None)
@given(
    chunks=st.integers(1, 4),
    count=st.integers(1, CHUNK),
    magnitudes=st.sampled_from([None, 2, 12]),
    seed=st.integers(0, 2**32),
)
def test_sizes_are_at_most_as_predicted(
    chunks: int, count: int, magnitudes: int | None, seed: int
) -> None:
    parts = [some(CHUNK, count, seed + one, magnitudes) for one in range(chunks)]
    found = len(sent(torch.cat(parts)))
    assert found <= sparse_bytes(chunks * CHUNK, count, magnitudes)


FORMS = {
    "listed, by table": some(2 * CHUNK, 80, 1, 3),
    "listed, raw": some(2 * CHUNK, 80, 1),
    "bitmap, by table": some(CHUNK, 600, 1, 3),
    "bitmap, raw": some(CHUNK, 2500, 1),
    "dense": some(60, 60, 1),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_message_that_is_cut_or_goes_on_is_refused(form: str) -> None:
    values = FORMS[form]
    message = sent(values)
    for wrong in (message[:-1], message[:3], message[:0], torch.cat([message, message[:1]])):
        with pytest.raises(WireError, match=f"no sparse message of {len(values)} elements"):
            read(wrong.clone(), len(values))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damage_is_seen_or_harmless(form: str, data: Any) -> None:
    """It raises WireError or gives as many other numbers, and nothing else, whatever is changed."""
    values = FORMS[form]
    message = sent(values)
    for _ in range(3):
        at = data.draw(st.integers(0, min(len(message) - 1, 300)))
        message[at] = data.draw(st.integers(0, 255))
    length = data.draw(st.sampled_from([len(values), len(values) - 1, 3 * CHUNK]))
    with contextlib.suppress(WireError):
        assert len(read(message, length)) == length


def test_places_and_magnitudes_outside_are_named() -> None:
    message = sent(some(CHUNK, 41, 0, 2))
    with pytest.raises(WireError, match="places of form 9"):
        read(torch.cat([torch.tensor([9], dtype=torch.uint8), message[1:]]), CHUNK)
    with pytest.raises(WireError, match="a place outside"):
        read(message, CHUNK // 2)
    doubled = message.clone()
    doubled[6:9] = torch.tensor([5, 0x50, 0])  # the first two places are both 5
    with pytest.raises(WireError, match="places that do not ascend"):
        read(doubled, CHUNK)
    few = sent(some(CHUNK, 41, 0, 3))
    few[-1] = 0xFF  # number 3 of a table of 3
    with pytest.raises(WireError, match="a magnitude that no table has"):
        read(few, CHUNK)
