"""Small models in float64, and the jobs around them: a CNN, a GPT, AmoebaNet-D's cells."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dayfly.job import Job
from dayfly.models import amoebanet_d, gpt
from tests.training.jobs import Pairs

CLASSES = 4


def cnn() -> nn.Module:
    """Ten layers: with weights and without, with statistics, two that change what they get."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.BatchNorm2d(6, momentum=None),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(6),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    ).double()


def small_gpt() -> nn.Module:
    """Five layers; the first takes whole numbers."""
    return gpt(vocabulary=7, window=5, layers=3, width=8, heads=2).double()


def cells() -> nn.Module:
    """Nine layers; two tensors pass between cells."""
    return amoebanet_d(layers=3, filters=8, classes=CLASSES).double()


def images(count: int, channels: int, size: int, seed: int = 0) -> Pairs:
    """Pairs of x (channels, size, size) in float64 and a label."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, channels, size, size, generator=draw, dtype=torch.float64)
    return Pairs(x, torch.randint(CLASSES, (count,), generator=draw))


def texts(count: int, seed: int = 0) -> Pairs:
    """Pairs of tokens (5,), and the tokens to tell."""
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(7, (count, 6), generator=draw)
    return Pairs(tokens[:, :-1], tokens[:, 1:])


def sgd(parameters: Any) -> torch.optim.Optimizer:
    """With momentum."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """Decay for matrices only, as GPTs are trained.

    A bias before BatchNorm has no gradient but what its sum is rounded to, 1e-16, by which AdamW
    divides. It adds `eps` to that: 1e-8, its default, would make steps of 1e-10 of it.
    """
    every = list(parameters)
    groups = [
        {"params": [p for p in every if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in every if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.01, eps=1e-5)


def job_of(model: Any, **changes: Any) -> Job:
    """A job around a model; its data are given apart."""
    given: dict[str, Any] = {
        "model": model,
        "data": "digits",
        "loss": nn.functional.cross_entropy,
        "optimizer": sgd,
    }
    return Job(**{**given, **changes})
