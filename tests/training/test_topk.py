"""Top-k by chunks: which values travel, as what, and that the rest comes later."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dayfly.specs.compression import kept_of
from dayfly.training.compression.exchange import feed_back
from dayfly.training.compression.topk import TopK, top_k, two_magnitudes
from dayfly.training.flat import FlatBuffer
from dayfly.wire.codec import CHUNK, CODECS
from dayfly.wire.schedule import Span
from tests.training.test_feedback import assert_tail_is_behind_the_last

LENGTH = 2 * CHUNK + 100


def normal(seed: int, length: int = LENGTH) -> torch.Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(seed))


def test_how_many_of_a_chunk_travel() -> None:
    assert [kept_of(CHUNK, one) for one in (0.01, 0.001, 1e-6, 1.0)] == [41, 5, 1, CHUNK]
    assert [kept_of(100, 0.07), kept_of(101, 0.07), kept_of(1, 0.01)] == [7, 8, 1]


def test_of_each_chunk_the_largest_travel_and_of_equal_ones_the_first() -> None:
    values = torch.zeros(LENGTH)
    values[[5, 9, 4000]] = torch.tensor([-3.0, 1.0, 1.0])
    values[[5000, 6000, 7000]] = torch.tensor([0.1, -0.1, 0.1])
    values[2 * CHUNK :] = 0.01
    found = top_k(values, 2 / CHUNK, exact=True)
    assert found.nonzero().flatten().tolist() == [5, 9, 5000, 6000, 2 * CHUNK]
    assert torch.equal(found[found != 0], torch.tensor([-3.0, 1.0, 0.1, -0.1, 0.01]))


def test_two_bits_are_a_sign_and_the_means_above_and_below_the_mean() -> None:
    chosen = torch.tensor([[4.0, -3.0, 2.0, -1.0], [5.0, -5.0, 5.0, 5.0]])
    found = two_magnitudes(chosen)
    assert found.tolist() == [[3.5, -3.5, 1.5, -1.5], [5.0, -5.0, 5.0, 5.0]]


@pytest.mark.parametrize("exact", [False, True])
def test_chunks_do_not_know_of_each_other(exact: bool) -> None:
    """However many there are: they are worked on some at once."""
    values = normal(0, 130 * CHUNK + 7)
    whole = top_k(values, 0.01, exact=exact)
    for chunk in (0, 1, 63, 64, 65, 127, 128, 130):
        part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        assert torch.equal(whole[part], top_k(values[part], 0.01, exact=exact))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    fraction=st.sampled_from([1e-6, 0.01, 0.3, 1.0]),
    exact=st.booleans(),
    steps=st.integers(1, 5),
)
def test_what_was_sent_and_the_residual_are_the_gradients(
    seed: int, fraction: float, exact: bool, steps: int
) -> None:
    gradients, arrived = torch.zeros(LENGTH).double(), torch.zeros(LENGTH).double()
    residual = torch.zeros(LENGTH)
    for step in range(steps):
        own = normal(seed + step)
        gradients += own
        feed_back(own, residual, lambda values: top_k(values, fraction, exact=exact))
        assert own.count_nonzero() <= 2 * kept_of(CHUNK, fraction) + kept_of(100, fraction)
        arrived += own
    assert torch.allclose(arrived + residual, gradients, rtol=0, atol=1e-4)
    if fraction == 1.0 and exact:
        assert not residual.any()


def test_a_hundredth_in_two_bits_takes_a_hundred_and_eightieth_of_the_bytes() -> None:
    values = top_k(normal(1, 8 * CHUNK), 0.01)
    message = CODECS["sparse"]().encode(values, Span(0, len(values)), total=False)
    assert values.nbytes / len(message) > 180


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, -math.nan])
def test_what_is_no_number_travels_once(wrong: float, exact: bool) -> None:
    own, residual = normal(2), torch.zeros(LENGTH)
    own[17] = wrong
    feed_back(own, residual, lambda values: top_k(values, 0.01, exact=exact))
    assert not own[17].isfinite()
    assert own[CHUNK:].isfinite().all(), "other chunks are as they were"
    assert residual.isfinite().all()


def made() -> tuple[FlatBuffer, TopK]:
    """Buckets of 800, 40 and 3 + 20 gradients, and then 4 + 3 others."""
    model = nn.Sequential(
        nn.Linear(20, 1, bias=False), nn.Linear(1, 3, bias=False), nn.Linear(40, 1, bias=False),
        nn.Linear(40, 20, bias=False),
    )  # fmt: skip
    flat = FlatBuffer(model, tail=3, bucket_bytes=(64, 100), apart=True)
    flat.reached = [True] * 4
    return flat, TopK(flat, 0.1, exact=True)


def test_buckets_become_what_travels_and_the_rest_is_exact() -> None:
    flat, exchange = made()
    assert_tail_is_behind_the_last(flat, exchange, CODECS["sparse"]())
    assert exchange.remembers
    flat.data.copy_(normal(3, len(flat.data)))
    before = flat.data.clone()
    for number in range(3):
        exchange.contribute(number)
    assert [int(one.count_nonzero()) for one in exchange.buffers] == [80, 4, 3]
    assert torch.equal(flat.data[:863] + exchange.residual_G, before[:863])
    assert torch.equal(flat.data[863:], before[863:])


def test_a_parameter_that_was_not_reached_keeps_its_residual() -> None:
    flat, exchange = made()
    exchange.residual_G.fill_(0.5)
    flat.data.zero_()
    flat.reached = [True, False, True, True]
    exchange.contribute(2)
    assert not flat.data[840:843].any()
    assert (exchange.residual_G[840:843] == 0.5).all()
    assert flat.data[843:863].count_nonzero() == 3


def test_the_state_goes_on_and_is_taken_over_as_a_sum() -> None:
    one, other = made(), made()
    one[0].data.copy_(normal(4, len(one[0].data)))
    for number in range(3):
        one[1].contribute(number)
    shared, own = one[1].state()
    assert shared == {}
    other[1].load_state({}, [own, own])
    assert torch.equal(other[1].residual_G, 2 * one[1].residual_G)
