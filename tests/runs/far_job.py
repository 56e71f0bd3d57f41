"""A job whose workers compute on the device of `tests/training/far_device.py` if they have a GPU.

A worker imports this module with its job, before it asks for its device.
"""

from __future__ import annotations

import torch
from torch import nn

from dayfly.runs import worker
from dayfly.training.devices import CPU
from tests.runs import small
from tests.training import far_device

FAR = torch.device(far_device.NAME, 0)


def model() -> nn.Module:
    """With a layer that says so if it computes elsewhere than it should."""
    return nn.Sequential(Watch(), *small.model())


class Watch(nn.Module):
    """Counts the batches that came on the far device, in a buffer, which is part of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counted", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.device == self.counted.device
        if self.training and x.device == FAR:
            self.counted += 1
        return x


worker.device_of_function = lambda share: CPU if share is None else FAR
