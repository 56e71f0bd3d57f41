"""Bytes of layers, told apart by hooks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.runs.profiling.layers import layer_bytes
from tests.profiling.jobs import Whole, job, listed, samples


def test_a_list_of_layers() -> None:
    flatten, first, relu, last = layer_bytes(job(), listed(), samples())
    assert [layer.name for layer in (flatten, first, relu, last)] == [
        "0 Flatten",
        "1 Linear",
        "2 ReLU",
        "3 Linear",
    ]
    assert (first.parameters, first.trained) == (4 * (64 * 32 + 32),) * 2
    # ReLU keeps what it puts out, the loss its logarithms; samples are nobody's.
    assert [layer.activations for layer in (flatten, first, relu, last)] == [0, 0, 128, 40]
    assert [layer.output for layer in (flatten, first, relu, last)] == [256, 128, 128, 40]
    # Nothing before the first layer with weights needs a gradient.
    assert [layer.gradient for layer in (flatten, first, relu, last)] == [0, 0, 128, 128]


def test_buffers_and_frozen_weights() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, 10))
    model[1].requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = layer_bytes(job(), model, samples())
    assert (found[1].parameters, found[1].trained) == (4 * (64 * 16 + 16), 0)
    assert found[2].buffers == 2 * 4 * 16 + 8
    assert found[2].gradient == 0  # from a frozen layer
    after = model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert model.training


def test_one_matrix_in_two_layers_counts_once() -> None:
    first, last = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
    last.weight = first.weight
    found = layer_bytes(job(), nn.Sequential(nn.Flatten(), first, last), samples())
    assert [layer.parameters for layer in found] == [0, 4 * 64 * 64, 0]


def test_on_meta_nothing_is_computed() -> None:
    with torch.device("meta"):
        model = listed()
    assert layer_bytes(job(), model, samples()) == layer_bytes(job(), listed(), samples())


def test_other_models_are_one_layer() -> None:
    (whole,) = layer_bytes(job(), Whole(), samples())
    assert whole.name == "Whole"
    assert whole.parameters == 4 * (64 * 32 + 32 + 32 * 10 + 10)
    assert whole.activations == 128 + 40
    assert whole.output == 40
    own = job(
        loss=None, step=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])
    )
    assert len(layer_bytes(own, listed(), samples())) == 1


def test_layers_that_are_not_applied() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(64, 10), nn.Linear(10, 10)

        def layers(self) -> list[nn.Module]:
            return [self.one, self.two]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.one(x.flatten(1))
            return scores

    with pytest.raises(RequestError, match="has 2 layers, but its forward applied 1"):
        layer_bytes(job(), Skips(), samples())
