"""FSDP2 as its documentation writes it: each layer is sharded, then the whole."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.parts.programs.classifier import Classifier


class FullySharded(Classifier):
    """model: the same weights in every process. x (B, ...), y (B,): this process's samples."""

    def __init__(self, model: nn.Sequential, x: torch.Tensor, y: torch.Tensor, lr: float) -> None:
        from torch.distributed.fsdp import fully_shard  # takes longer than the rest together

        for layer in model:
            if any(True for _ in layer.parameters()):
                fully_shard(layer)
        super().__init__(fully_shard(model), x, y, lr)
