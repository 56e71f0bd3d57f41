"""The significance filter: what changes its parameter noticeably travels, the rest adds up."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.specs.compression import compression
from dayfly.training.compression import check_rates
from dayfly.training.compression.significance import Significance, significant
from dayfly.training.flat import FlatBuffer

RATE = 0.5


def made(threshold: float) -> tuple[nn.Linear, FlatBuffer, Significance]:
    """Weights (1, 4) of 2, 2, 0 and -2, and a bias of 2, which goes out in front of them."""
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[2.0, 2.0, 0.0, -2.0]]))
        model.bias.fill_(2.0)
    flat = FlatBuffer(model, tail=3, bucket_bytes=(4, 100), apart=True)
    flat.reached = [True, True]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    return model, flat, Significance(flat, threshold, optimizer)


def step(flat: FlatBuffer, exchange: Significance, gradients: list[float]) -> list[float]:
    """What travels of (bias, weights)."""
    exchange.begin()
    flat.data[:5] = torch.tensor(gradients)
    for number in range(2):
        exchange.contribute(number)
    found: list[float] = flat.data[:5].tolist()
    return found


def test_the_rule_literally() -> None:
    """|rate x accumulated| / |parameter| > V / sqrt(t), so of 2 at t = 1: more than 0.4."""
    values = torch.tensor([0.4, 0.41, 1e-9, -0.41])
    parameter = torch.tensor([[2.0, 2.0], [0.0, -2.0]])
    found = significant(values, parameter, RATE, 0.1)
    assert torch.equal(found, torch.tensor([0.0, 0.41, 1e-9, -0.41]))
    assert torch.equal(significant(values, parameter, 0.0, 0.1), values), "as in a warm-up"


def test_what_is_held_back_adds_up_until_it_is_significant() -> None:
    _, flat, exchange = made(0.1)
    assert [len(one) for one in exchange.buffers] == [1, 4]
    assert step(flat, exchange, [0.3, 0.5, 0.25, 0.0, 0.1]) == [0.0, 0.5, 0.0, 0.0, 0.0]
    # At t = 2 the bound is 0.1 / sqrt(2): more than 0.283.
    assert step(flat, exchange, [0.0, 0.1, 0.25, 0.0, -0.2]) == pytest.approx(
        [0.3, 0.0, 0.5, 0.0, 0.0]
    )
    assert exchange.residual_G.tolist() == pytest.approx([0.0, 0.1, 0.0, 0.0, -0.1])


def test_rates_and_parameters_are_those_of_the_step() -> None:
    model, flat, exchange = made(0.1)
    assert step(flat, exchange, [0.3, 0.0, 0.0, 0.0, 0.3])[0] == 0.0
    with torch.no_grad():
        model.bias.fill_(0.1)
    exchange._optimizer.param_groups[0]["lr"] = 5.0
    assert step(flat, exchange, [0.0] * 5) == pytest.approx([0.3, 0.0, 0.0, 0.0, 0.3])


def test_of_threshold_0_everything_travels() -> None:
    _, flat, exchange = made(0.0)
    assert step(flat, exchange, [1e-9, 0.0, 1.0, 0.0, -1e9]) == pytest.approx(
        [1e-9, 0.0, 1.0, 0.0, -1e9]
    )
    assert not exchange.residual_G.any()


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_travels_once(wrong: float) -> None:
    _, flat, exchange = made(100.0)
    found = step(flat, exchange, [0.0, wrong, 1.0, 1.0, 1.0])
    assert not math.isfinite(found[1])
    assert exchange.residual_G.tolist() == [0.0, 0.0, 1.0, 0.0, 1.0]


def test_steps_are_counted_on_from_a_checkpoint() -> None:
    _, flat, exchange = made(0.1)
    for _ in range(3):
        assert not any(step(flat, exchange, [0.07, 0.0, 0.0, 0.0, 0.0]))
    shared, own = exchange.state()
    _, again, other = made(0.1)
    other.load_state({"model.weight": torch.ones(1), **shared}, [own])
    # At t = 4: more than 0.2.
    for one, its in ((flat, exchange), (again, other)):
        assert step(one, its, [0.0, 0.21, 0.19, 0.0, 0.0]) == pytest.approx(
            [0.21, 0.21, 0.0, 0.0, 0.0]
        )


def test_an_optimizer_without_learning_rates_is_refused() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    check_rates(compression("significance:0.7"), [optimizer])
    optimizer.param_groups[0]["lr"] = None
    check_rates(compression("topk:0.1"), [optimizer])
    with pytest.raises(RequestError, match="of which SGD has none: use --compress topk"):
        check_rates(compression("significance:0.7"), [optimizer])
