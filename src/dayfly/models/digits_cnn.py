"""A small CNN for 8x8 grey images: the demo's model, and the smallest of the benchmarks."""

from __future__ import annotations

from torch import nn


def digits_cnn() -> nn.Sequential:
    """x_BCHW (B, 1, 8, 8) -> scores (B, 10); 9 layers, 38,282 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
