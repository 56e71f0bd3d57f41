"""A cut model's loss with a denominator of its own: micro-batches are combined by it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dayfly.training.forward import Weighting
from dayfly.training.replica import build_model
from tests.pipelines import nets
from tests.pipelines.trained import boundaries, pipelining, train_cut
from tests.training.jobs import Pairs

WEIGHTS = torch.tensor([5.0, 1.0, 0.2], dtype=torch.float64)


def net() -> nn.Module:
    layers = [nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)]
    return nn.Sequential(*layers).double()


def weighted(outputs: Any, targets: Any) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, weight=WEIGHTS, ignore_index=9)


@pytest.mark.parametrize("replicas", [1, 2])
def test_training_and_validation_are_those_of_one_process(replicas: int) -> None:
    torch.manual_seed(1)
    data, unseen = (
        Pairs(torch.randn(n, 6, dtype=torch.float64), torch.randint(0, 3, (n,))) for n in (12, 41)
    )
    data.y[::3] = 9
    data.y[4:8] = 9  # all of some micro-batches
    asked = nets.job_of(net, loss=weighted, batch_size=12, clip_norm=0.01)
    line = pipelining(boundaries(asked, data), [1], replicas, 4, "1f1b")
    ranks, measured = train_cut(asked, data, unseen, 1, line, weighting=Weighting("torch", 0.5))
    model = build_model(asked)
    loss = weighted(model(data.x), data.y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    asked.optimizer(list(model.parameters())).step()
    whole = {name: value.detach() for name, value in model.state_dict().items()}
    for (taken,) in ranks:
        assert taken.loss == pytest.approx(loss.item(), rel=1e-12)
        for name, value in taken.tensors.items():
            torch.testing.assert_close(value, whole[name], rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        right = weighted(model.eval()(unseen.x), unseen.y).item()
    for found in measured:
        assert found["val_loss"] == pytest.approx(right, rel=1e-12)
