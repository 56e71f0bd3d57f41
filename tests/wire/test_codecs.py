"""Codecs: how much they lose, that every reader gets the same, and that nothing wrong is hidden."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.wire.codec import CODECS, Codec
from dayfly.wire.codecs import BLOCK
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.collectives.conformance_world import (
    World,
    random_inputs,
    same_bits,
    sum_in_order,
    world,
)
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import Span

EVERY = pytest.mark.parametrize("codec", [make() for make in CODECS.values()], ids=CODECS)
INT8 = CODECS["int8"]()
LENGTHS = st.integers(0, 3 * BLOCK + 1)
#: Collectives whose sums all ranks read as they are stored.
STORING = {name: one for name, one in COLLECTIVES.items() if one.sums(2, 1, 1)}


def travelled(codec: Codec, values: torch.Tensor) -> torch.Tensor:
    encoded = codec.encode(values, Span(0, len(values)), total=False)
    decoded = torch.full_like(values, 7.0)
    codec.decode(encoded, decoded)
    return decoded


@EVERY
@settings(deadline=None)
@given(length=LENGTHS, seed=st.integers(0, 2**32))
def test_the_form_is_what_travels(codec: Codec, length: int, seed: int) -> None:
    (values,) = random_inputs(1, length, seed)
    before = values.clone()
    encoded = codec.encode(values, Span(0, length), total=False)
    sent = encoded.dtype, tuple(encoded.shape)
    assert sent == (codec.form(length) or (torch.uint8, (len(encoded),)))
    assert same_bits(values, before), "it is only read"
    again = codec.encode(values, Span(0, length), total=True)
    assert same_bits(encoded, again)
    one, other = torch.empty_like(values), torch.empty_like(values)
    codec.decode(encoded, one)
    codec.decode(encoded.clone(), other)
    assert same_bits(one, other)


@settings(deadline=None)
@given(length=LENGTHS, seed=st.integers(0, 2**32))
def test_bf16_is_off_by_a_256th_at_most(length: int, seed: int) -> None:
    (values,) = random_inputs(1, length, seed)
    lost = (travelled(CODECS["bf16"](), values) - values).abs()
    assert (lost <= values.abs() / 256).all()
    assert CODECS["bf16"]().form(length) == (torch.bfloat16, (length,))


@settings(deadline=None)
@given(length=LENGTHS, seed=st.integers(0, 2**32))
def test_int8_is_off_by_half_a_scale_at_most(length: int, seed: int) -> None:
    (values,) = random_inputs(1, length, seed)
    lost = (travelled(INT8, values) - values).abs()
    for start in range(0, length, BLOCK):
        block = slice(start, start + BLOCK)
        scale = values[block].abs().max() / 127
        assert (lost[block] <= scale / 2 * (1 + 1e-5)).all()


@settings(deadline=None)
@given(length=LENGTHS, seed=st.integers(0, 2**32))
def test_int4_is_off_by_half_a_scale_at_most(length: int, seed: int) -> None:
    """Half a byte an element, and 4 bytes for 128."""
    (values,) = random_inputs(1, length, seed)
    lost = (travelled(CODECS["int4"](), values) - values).abs()
    for start in range(0, length, 128):
        block = slice(start, start + 128)
        scale = values[block].abs().max() / 7
        assert (lost[block] <= scale / 2 * (1 + 1e-5)).all()
    blocks = -(-length // 128)
    assert CODECS["int4"]().form(length) == (torch.uint8, (4 * blocks + (length + 1) // 2,))


@pytest.mark.parametrize("length", [BLOCK, 1000, 100_000])
def test_int8_is_a_quarter_of_float32(length: int) -> None:
    dtype, (travelling,) = INT8.form(length)
    assert dtype.itemsize * travelling <= (1.016 * length) + 4


def test_blocks_do_not_know_of_each_other() -> None:
    """However many there are: they are worked on a thousand at once."""
    (values,) = random_inputs(1, 2100 * BLOCK + 5, 3)
    whole = travelled(INT8, values)
    for block in (0, 1, 1023, 1024, 2047, 2048, 2100):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        assert same_bits(whole[part], travelled(INT8, values[part]))


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeros_stay_zeros(codec: Codec, dtype: torch.dtype) -> None:
    zeros = torch.zeros(BLOCK + 3, dtype=dtype)
    assert torch.equal(travelled(codec, zeros), zeros)
    assert travelled(codec, zeros).dtype is dtype


def test_the_greatest_of_a_block_is_kept() -> None:
    values = torch.linspace(-3.0, 5.0, BLOCK)
    assert travelled(INT8, values)[-1].item() == pytest.approx(5.0, rel=1e-6)


@pytest.mark.parametrize("tiny", [1e-45, 1e-43, 1e-40, 1e-38])
def test_numbers_at_the_edge_of_nothing_come_out_finite(tiny: float) -> None:
    """A scale that is smaller than any number is 0; the residual keeps what is lost then."""
    values = torch.tensor([tiny, -tiny, 0.0, tiny / 2])
    found = travelled(INT8, values)
    assert found.isfinite().all()
    assert (found.abs() <= 2 * tiny).all()


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_seen_by_all_readers(wrong: float) -> None:
    values = torch.ones(2 * BLOCK)
    values[3] = wrong
    for codec in (CODECS["bf16"](), INT8, CODECS["int4"]()):
        found = travelled(codec, values)
        assert not found[3].isfinite()
        assert torch.allclose(found[BLOCK:], values[BLOCK:]), "other blocks are as they were"


@pytest.fixture(scope="module", params=[2, 3], ids=["immediate", "distant"])
def three(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(COLLECTIVES["scatter-reduce"], request.param) as made:
        yield made


def all_reduce(here: World, inputs: list[torch.Tensor], codec: Codec) -> list[torch.Tensor]:
    here.step += 1
    buffers = [one.clone() for one in inputs]
    with ThreadPoolExecutor(here.size) as pool:
        calls = [
            pool.submit(engine.all_reduce, buffer, here.step, "grad", None, Packing(codec))
            for engine, buffer in zip(here.engines, buffers, strict=True)
        ]
        for call in calls:
            call.result(60)
    return buffers


@EVERY
@settings(max_examples=25, deadline=None)
@given(length=st.integers(0, 1500), seed=st.integers(0, 2**32))
def test_sums_are_added_up_exactly_and_rounded_once(
    three: World, codec: Codec, length: int, seed: int
) -> None:
    """Rank r is in charge of split r: its own part of it does not travel."""
    inputs = random_inputs(three.size, length, seed)
    expected = torch.empty(length)
    at = 0
    for owner in range(three.size):
        size = length // three.size + (owner < length % three.size)
        mine = [one[at : at + size] for one in inputs]
        terms = [one if rank == owner else travelled(codec, one) for rank, one in enumerate(mine)]
        expected[at : at + size] = travelled(codec, sum_in_order(terms, range(len(terms))))
        at += size
    for found in all_reduce(three, inputs, codec):
        assert same_bits(found, expected)


@EVERY
@pytest.mark.parametrize("name", STORING)
@pytest.mark.parametrize("size", [5])
def test_every_rank_holds_the_same_bits(name: str, size: int, codec: Codec) -> None:
    inputs = random_inputs(size, 5000, 1)
    with world(STORING[name], size) as here:
        first, *others = all_reduce(here, inputs, codec)
        assert all(same_bits(first, other) for other in others)
        stored = here.engines[0].stored_sums(inputs[0], here.step, "grad")
        again = inputs[1].clone()
        here.engines[1].all_reduce(again, here.step, "grad", stored, Packing(codec))
        assert same_bits(again, first), "who starts again reads the same"
    # int4 rounds contributions, and then their sum, by a fourteenth of a block's greatest.
    fine = 7 if codec.form(256) == CODECS["int4"]().form(256) else 100
    rounding = sum(one.abs() for one in inputs) / 100
    rounding += sum(one.abs().max() / fine for one in inputs)
    assert ((first - sum_in_order(inputs, range(len(inputs)))).abs() <= rounding).all()
