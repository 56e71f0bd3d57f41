"""The models to try dayfly with: shapes, and numbers of parameters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dayfly.models import digits_cnn, resnet18_32, wide_mlp


@pytest.mark.parametrize(
    ("build", "sample", "parameters"),
    [
        (digits_cnn, (1, 8, 8), 38_282),
        (resnet18_32, (3, 32, 32), 11_173_962),
        (wide_mlp, (1024,), 10_512_394),
    ],
)
def test_shapes_and_parameters(
    build: Callable[[], nn.Module], sample: tuple[int, ...], parameters: int
) -> None:
    model = build()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    scores = model(torch.randn(2, *sample))
    assert scores.shape == (2, 10)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_resnet18_halves_the_image_three_times_and_has_18_layers_with_weights() -> None:
    model = resnet18_32(classes=7)
    x, sizes = torch.randn(2, 3, 32, 32), []
    for layer in model[:-3]:
        x = layer(x)
        sizes.append(tuple(x.shape[1:]))
    assert sizes[3:] == [
        *[(64, 32, 32)] * 2,
        *[(128, 16, 16)] * 2,
        *[(256, 8, 8)] * 2,
        *[(512, 4, 4)] * 2,
    ]
    shortcuts = {m for n, part in model.named_modules() if "shortcut" in n for m in part.modules()}
    layers = {m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)} - shortcuts
    assert len(layers) == 18
    assert model[-1].out_features == 7


def test_wide_mlp_takes_other_sizes() -> None:
    model = wide_mlp(width=6, features=5, classes=3)
    assert model(torch.randn(2, 5)).shape == (2, 3)
    assert sum(parameter.numel() for parameter in model.parameters()) == 36 + 2 * 42 + 21
