"""A list of layers can be cut anywhere: tensors that pass a cut, and their gradients, are all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dayfly.models import amoebanet_d, bert, gpt

Passed = torch.Tensor | tuple[torch.Tensor, ...]


def tensors(passed: Passed) -> tuple[torch.Tensor, ...]:
    """All that passes a cut."""
    return passed if isinstance(passed, tuple) else (passed,)


def arrived(passed: Passed) -> Passed:
    """What passed a cut as it is behind it: without its history; integers need no gradient."""
    copies = tuple(
        t.detach().clone().requires_grad_(t.dtype.is_floating_point) for t in tensors(passed)
    )
    return copies if isinstance(passed, tuple) else copies[0]


@pytest.mark.parametrize(
    ("build", "sample"),
    [
        (
            lambda: amoebanet_d(layers=3, filters=8, classes=3),
            lambda: torch.randn(2, 3, 64, 64, dtype=torch.float64),
        ),
        (
            lambda: bert(layers=2, width=8, heads=2, vocabulary=20, positions=6, dropout=0.0),
            lambda: torch.tensor([[3, 4, 5, 6, 0, 0], [7, 8, 0, 0, 0, 0]]),
        ),
        (
            lambda: gpt(vocabulary=7, window=5, width=8, heads=2),
            lambda: torch.randint(7, (2, 5)),
        ),
    ],
    ids=["amoebanet-d", "bert", "gpt"],
)
def test_gradients_through_a_cut_after_each_layer_are_those_of_the_whole(
    build: Callable[[], nn.Sequential], sample: Callable[[], torch.Tensor]
) -> None:
    torch.manual_seed(0)
    model, x = build().double(), sample()
    model(x).square().mean().backward()
    whole = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()

    passes: list[tuple[Passed, Passed]] = []
    given: Passed = x
    for layer in model:
        passes.append((given, layer(given)))
        given = arrived(passes[-1][1])
    scores = tensors(given)[0]
    scores.square().mean().backward()
    behind = given
    for given, outputs in reversed(passes):
        pairs = zip(tensors(outputs), tensors(behind), strict=True)
        learning = [(output, copy.grad) for output, copy in pairs if copy.requires_grad]
        assert all(gradient is not None for _, gradient in learning)
        torch.autograd.backward(*zip(*learning, strict=True))
        behind = given
    for parameter, expected in zip(model.parameters(), whole, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, expected, rtol=1e-9, atol=1e-12)
