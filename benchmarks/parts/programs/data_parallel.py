"""Data parallel training as tutorials write it: DDP with its defaults."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.parts.programs.classifier import Classifier


class DataParallel(Classifier):
    """model: the same weights in every process. x (B, ...), y (B,): this process's samples."""

    def __init__(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor, lr: float) -> None:
        super().__init__(DistributedDataParallel(model), x, y, lr)
