"""Small jobs that train in ways of their own: in mixed precision, with an average, as a GAN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import dayfly
from tests.runs import small

NOISE = 4


def eight_fold(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss whose gradients, times fp16's first scale, overflow."""
    return 32 * F.cross_entropy(outputs, targets)


def averaged(data: Path) -> dayfly.Job:
    return small.job(data, ema=0.9)


def scaled(data: Path) -> dayfly.Job:
    return small.job(data, ema=0.9, loss=eight_fold)


class Gan(nn.Module):
    """A generator of points, and a discriminator; dropout draws numbers in both phases."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Sequential(
            nn.Linear(NOISE, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 12)
        )
        self.d = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

    def made(self, like: torch.Tensor) -> torch.Tensor:
        """Points, as many as there are; of noise that follows from the real ones."""
        made: torch.Tensor = self.g(like[:, :NOISE].sin())
        return made


def _judged(model: Any, x: torch.Tensor, real: float) -> torch.Tensor:
    scores = model.d(x)
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, real))


def step_d(model: Any, batch: Any) -> torch.Tensor:
    x, _ = batch
    with torch.no_grad():
        made = model.made(x)
    return (_judged(model, x, 1.0) + _judged(model, made, 0.0)) / 2


def step_g(model: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = batch
    made = model.made(x)
    return _judged(model, made, 1.0), made


def adam_of(part: str, lr: float) -> Any:
    return lambda module: torch.optim.Adam(getattr(module, part).parameters(), lr=lr)


def gan(data: Path, **changes: Any) -> dayfly.Job:
    given = {
        "loss": None,
        "model": Gan,
        "step": {"d": step_d, "g": step_g},
        "optimizer": {"g": adam_of("g", 0.01), "d": adam_of("d", 0.02)},
        "scheduler": {"g": small.cosine},
        "clip_norm": {"d": 0.5},
        "metrics": {},
        "ema": 0.9,
    }
    return small.job(data, **{**given, **changes})
