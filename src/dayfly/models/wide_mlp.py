"""A wide MLP: many parameters and few operations a sample, so that communication dominates."""

from __future__ import annotations

from torch import nn


def wide_mlp(width: int = 2048, features: int = 1024, classes: int = 10) -> nn.Sequential:
    """x (B, features) -> scores (B, classes); 7 layers, 10,512,394 parameters as it stands.

    Three hidden layers of `width`. A parameter takes part in one multiplication a sample; a
    weight of a convolution takes part in as many as there are positions.
    """
    return nn.Sequential(
        nn.Linear(features, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, classes),
    )
