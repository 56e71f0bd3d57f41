"""Scales of fp16's losses, batches and outputs that are dicts, frozen layers."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dayfly.training.forward import forward
from dayfly.training.precision import FIRST_SCALE, GROWS_AFTER, Scaler
from dayfly.training.replica import Replica
from dayfly.training.state import Tensors
from tests.training.jobs import bits, clusters, job


def test_a_scale_halves_at_an_overflow_and_doubles_in_time() -> None:
    scaler = Scaler()
    scaler.update(finite=False)
    assert scaler == Scaler(FIRST_SCALE / 2, 0)
    for _ in range(GROWS_AFTER - 1):
        scaler.update(finite=True)
    assert scaler == Scaler(FIRST_SCALE / 2, GROWS_AFTER - 1)
    scaler.update(finite=True)
    assert scaler == Scaler(FIRST_SCALE, 0)
    for _ in range(100):
        scaler.update(finite=False)
    assert scaler.scale == 2.0**-14


@pytest.mark.parametrize("wrong", [float("inf"), float("-inf"), float("nan")])
def test_gradients_are_unscaled_and_overflow_is_found(wrong: float) -> None:
    gradients = [torch.tensor([1.0, -3.0]), torch.tensor([[0.5]]), torch.zeros(0)]
    expected = [gradient.clone() for gradient in gradients]
    scaled = [gradient * FIRST_SCALE for gradient in gradients]
    assert Scaler().unscale(scaled)
    assert all(torch.equal(one, two) for one, two in zip(scaled, expected, strict=True))
    scaled[0][1] = wrong
    assert not Scaler().unscale(scaled)
    assert Scaler().unscale([])


class Output(OrderedDict[str, Any]):
    """As Hugging Face's ModelOutput."""


class OfKeywords(nn.Module):
    """Takes keywords and returns an output, with its loss if it is given labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> Output:
        logits = self.layer(inputs)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return Output(loss=loss, logits=logits, hidden_states=(inputs,))


def test_batches_and_outputs_may_be_dicts() -> None:
    points = clusters(8)
    model, batch = OfKeywords(), {"inputs": points.x, "labels": points.y}
    by_loss = forward(job(model=OfKeywords), model, batch)
    own = job(model=OfKeywords, loss=None, step=lambda model, batch: model(**batch))
    by_step = forward(own, model, batch)
    assert torch.equal(by_loss.loss, by_step.loss)
    for passed in (by_loss, by_step):
        assert torch.equal(passed.outputs, model.layer(points.x))
        assert torch.equal(passed.targets, points.y)


def partly_frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    model[0].requires_grad_(False)
    return model


def trained(replica: Replica) -> tuple[Any, Tensors]:
    points = clusters(8)
    for _ in range(2):
        replica.model.zero_grad()
        F.cross_entropy(replica.model(points.x), points.y).backward()
        replica.step()
        replica.end_step()
    tree, tensors = replica.state()
    return tree, {name: tensor.clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize("frozen_first", [True, False])
def test_a_run_may_go_on_with_other_layers_frozen(frozen_first: bool) -> None:
    jobs = [job(ema=0.5), job(model=partly_frozen, ema=0.5)]
    then, now = jobs[::-1] if frozen_first else jobs
    before = Replica(then)
    after = Replica(now)
    after.load_state(*trained(before))
    assert bits(after.model) == bits(before.model)
    kept, going = before.optimizers[""].state, after.optimizers[""].state
    head = [replica.model[2].weight for replica in (before, after)]  # type: ignore[index]
    assert torch.equal(kept[head[0]]["momentum_buffer"], going[head[1]]["momentum_buffer"])
    assert len(going) == 2
    assert after.average is not None
    assert before.average is not None
    assert torch.equal(after.average["2.weight"], before.average["2.weight"])
    if frozen_first:  # its average begins with the weights
        assert torch.equal(after.average["0.weight"], after.model[0].weight)  # type: ignore[index]
    trained(after)
