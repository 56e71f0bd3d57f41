"""Error feedback: nothing of a gradient is lost for ever, and nothing comes twice."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dayfly.training.compression.exchange import Exchange, Feedback, contributed
from dayfly.training.flat import FlatBuffer
from dayfly.wire.codec import CODECS, Codec
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span, split

INT8 = CODECS["int8"]()
SCATTER_REDUCE = COLLECTIVES["scatter-reduce"]
RANK, WORLD = 1, 3


def schedule(buffer: torch.Tensor) -> Schedule:
    return SCATTER_REDUCE.schedule(RANK, WORLD, buffer.numel())


def flat_buffer() -> FlatBuffer:
    """Buckets of 800, 40 and 3 + 20 gradients, and then 4 + 3 others."""
    model = nn.Sequential(
        nn.Linear(20, 1, bias=False), nn.Linear(1, 3, bias=False), nn.Linear(40, 1, bias=False),
        nn.Linear(40, 20, bias=False),
    )  # fmt: skip
    flat = FlatBuffer(model, tail=3, bucket_bytes=(64, 100), apart=True)
    assert [len(span) for span in flat.buckets] == [800, 40, 23, 7]
    flat.reached = [True] * 4
    return flat


def made() -> tuple[FlatBuffer, Feedback]:
    flat = flat_buffer()
    return flat, Feedback(flat, INT8, schedule)


def assert_tail_is_behind_the_last(flat: FlatBuffer, exchange: Exchange, codec: Codec) -> None:
    """Gradients by the codec, and what is none in the messages of the last bucket."""
    assert [len(one) for one in exchange.buffers] == [800, 40, 23]
    packings = [one for one in exchange.packings if one is not None]
    assert len(packings) == 3
    assert all(type(one.codec) is type(codec) for one in packings)
    assert packings[0].tail is packings[1].tail is None
    assert packings[2].tail is not None
    assert packings[2].tail.data_ptr() == flat.data[863:].data_ptr()
    assert len(packings[2].tail) == 7
    assert exchange.early == 2, "it waits for the loss"


def sent(exchange: Feedback, number: int) -> torch.Tensor:
    """What of a bucket others or this rank itself add up: decoded, where it travels."""
    own = exchange.buffers[number]
    for span in contributed(schedule(own)):
        part = own[span.start : span.stop]
        INT8.decode(INT8.encode(part, span, total=False), part)
    return own.clone()


def test_a_rank_sends_what_it_is_not_in_charge_of() -> None:
    zero, _, two = split(10, WORLD)
    assert contributed(SCATTER_REDUCE.schedule(1, WORLD, 10)) == [zero, two]
    assert contributed(SCATTER_REDUCE.schedule(0, 1, 10)) == []


def test_sums_and_what_came_from_others_are_no_contribution() -> None:
    span, other = Span(0, 4), Span(4, 8)
    ops = (
        Op(Kind.PUT, other, Name("part", 0, 1)),
        Op(Kind.PUT, other, Name("part", 0, 2)),
        Op(Kind.FETCH, span, Name("part", 1, 0)),
        Op(Kind.REDUCE, span, terms=(None, Name("part", 1, 0))),
        Op(Kind.PUT, Span(2, 4), Name("sum", 0)),
        Op(Kind.GET, other, Name("sum", 1)),
        Op(Kind.PUT, other, Name("next", 0, 1)),
    )
    assert contributed(Schedule(ops)) == [other]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 6))
def test_what_was_sent_and_the_residual_are_the_gradients(seed: int, steps: int) -> None:
    random = torch.Generator().manual_seed(seed)
    flat, exchange = made()
    gradients = torch.zeros(863, dtype=torch.float64)
    arrived = torch.zeros(863, dtype=torch.float64)
    for _ in range(steps):
        gradient = torch.randn(863, generator=random) * 10 ** torch.rand(863, generator=random)
        flat.data[:863] = gradient
        gradients += gradient
        for number, bucket in enumerate(flat.buckets[:-1]):
            exchange.contribute(number)
            arrived[bucket.start : bucket.stop] += sent(exchange, number)
        assert exchange.residual_G.abs().max() <= 0.5 * flat.data.abs().max() / 127 * 1.001
    assert torch.allclose(arrived + exchange.residual_G, gradients, rtol=0, atol=1e-4)


def test_what_does_not_travel_has_no_residual_and_the_rest_is_exact() -> None:
    flat, exchange = made()
    assert_tail_is_behind_the_last(flat, exchange, INT8)
    flat.data.normal_()
    before = flat.data.clone()
    for number in range(3):
        exchange.contribute(number)
    assert torch.equal(flat.data, before), "there is no residual yet"
    mine = split(800, WORLD)[RANK]
    assert not exchange.residual_G[mine.start : mine.stop].any()
    assert exchange.residual_G[: mine.start].any()


def test_a_parameter_that_was_not_reached_keeps_its_residual() -> None:
    """If no worker reaches it, its gradient is left alone, and what was sent would be lost."""
    flat, exchange = made()
    exchange.residual_G.fill_(0.5)
    flat.data.zero_()
    flat.reached = [True, False, True, False]
    assert flat.unreached(0) == [Span(0, 800)]
    assert flat.unreached(1) == []
    assert flat.unreached(2) == [Span(840, 843)]
    for number in range(3):
        exchange.contribute(number)
    assert not flat.data[:800].any()
    assert (exchange.residual_G[:800] == 0.5).all()
    assert (flat.data[800:840] == 0.5).all()
    assert not flat.data[840:843].any()
    assert (flat.data[843:863] == 0.5).all()
    assert (exchange.residual_G[840:843] == 0.5).all()


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_travels_once(wrong: float) -> None:
    flat, exchange = made()
    flat.data.fill_(1.0)
    flat.data[0] = wrong
    exchange.contribute(0)
    assert not sent(exchange, 0)[0].isfinite()
    assert exchange.residual_G.isfinite().all()


def test_the_state_goes_on_with_the_same_bits() -> None:
    one, other = made(), made()
    for flat, _ in (one, other):
        flat.data.copy_(torch.randn(len(flat.data), generator=torch.Generator().manual_seed(1)))
    for number in range(3):
        one[1].contribute(number)
    shared, own = one[1].state()
    assert shared == {}
    own = {name: tensor.clone() for name, tensor in own.items()}
    own["residual"][5] = -0.0
    other[1].load_state({"model.weight": torch.ones(1)}, [own])
    assert other[1].residual_G.numpy().tobytes() == own["residual"].numpy().tobytes()


def test_who_takes_over_from_several_has_the_sum_of_their_residuals() -> None:
    _, exchange = made()
    parts = [{"residual": torch.full((863,), value)} for value in (1.0, 2.0)]
    exchange.load_state({}, parts)
    assert (exchange.residual_G == 3.0).all()
    exchange.load_state({}, [])
    assert not exchange.residual_G.any()


def test_bf16_has_no_state() -> None:
    exchange = Exchange(flat_buffer(), CODECS["bf16"]())
    assert not exchange.remembers
    assert exchange.state() == ({}, {})
    assert_tail_is_behind_the_last(exchange.flat, exchange, CODECS["bf16"]())
