"""The demo's job: scikit-learn's handwritten digits, a small CNN."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from dayfly.job import Job
from dayfly.models import digits_cnn


def _optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def demo_job() -> Job:
    """Twelve epochs over the digits."""
    return Job(
        model=digits_cnn,
        data="digits",
        loss=nn.functional.cross_entropy,
        optimizer=_optimizer,
        batch_size=64,
        epochs=12,
    )
