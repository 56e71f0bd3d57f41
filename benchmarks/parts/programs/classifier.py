"""The step that programs of classifiers have in common, as tutorials write it."""

from __future__ import annotations

import torch
from torch import nn


class Classifier:
    """model: wrapped, as it trains. x (B, ...), y (B,): this process's samples."""

    def __init__(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor, lr: float) -> None:
        self._model = model
        self._optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self._x, self._y = x, y

    def step(self) -> float:
        self._optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self._model(self._x), self._y)
        loss.backward()
        self._optimizer.step()
        return loss.item()
