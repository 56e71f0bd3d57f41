"""Small jobs to measure."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import dayfly


class Whole(nn.Module):
    """No list of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.two(torch.relu(self.one(x.flatten(1))))
        return scores


def listed() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def job(**changes: Any) -> dayfly.Job:
    return dayfly.Job(
        **{
            "model": listed,
            "data": "digits",
            "loss": nn.functional.cross_entropy,
            "optimizer": lambda params: torch.optim.Adam(params, lr=1e-3),
            "batch_size": 64,
            "epochs": 1,
            **changes,
        }
    )


def samples(count: int = 4, shape: tuple[int, ...] = (8, 8)) -> list[Any]:
    return [(torch.ones(shape), torch.tensor(number % 10)) for number in range(count)]
