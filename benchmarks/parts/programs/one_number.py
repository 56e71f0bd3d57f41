"""An all-reduce of one number: what a message costs at least."""

from __future__ import annotations

import torch
import torch.distributed as dist


class OneNumber:
    """A step is one all-reduce; its "loss" is the sum, so that sums are compared, too."""

    def __init__(self) -> None:
        self._one = torch.ones(1)

    def step(self) -> float:
        self._one.fill_(1.0)
        dist.all_reduce(self._one)
        return self._one.item()
