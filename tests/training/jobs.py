"""Small jobs, and how N replicas take a step in one process: their flat buffers summed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from dayfly.job import Job
from dayfly.training.devices import CPU
from dayfly.training.forward import SAMPLES, Weighting
from dayfly.training.order import Epochs
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Slices
from dayfly.training.sources import DatasetSource
from dayfly.training.synchronous import Synchronous


class Pairs:
    """A Dataset of (x, y) rows."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[index], self.y[index]


def clusters(samples: int = 40, dtype: torch.dtype = torch.float32) -> Pairs:
    """x (samples, 6), y (samples,) of 4 classes."""
    random = np.random.default_rng(5)
    y = random.integers(0, 4, samples)
    x = random.normal(size=(4, 6))[y] + 0.5 * random.normal(size=(samples, 6))
    return Pairs(torch.tensor(x, dtype=dtype), torch.tensor(y))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def job(**changes: Any) -> Job:
    given: dict[str, Any] = {
        "model": perceptron,
        "data": lambda: (clusters(), clusters(10)),
        "loss": F.cross_entropy,
        "optimizer": sgd,
        "batch_size": 16,
        "epochs": 2,
    }
    return Job(**{**given, **changes})


class World:
    """N replicas of a job over the same data, on a device; `step` is what N workers do."""

    def __init__(
        self,
        job: Job,
        dataset: Any,
        workers: int,
        *,
        begin: int = 0,
        device: torch.device = CPU,
        weighting: Weighting = SAMPLES,
    ) -> None:
        self.job = job
        self.workers = workers
        self.replicas = [Replica(job, device=device) for _ in range(workers)]
        self.steps = [Synchronous(job, replica, weighting=weighting) for replica in self.replicas]
        self.epochs = Epochs(len(dataset), job.batch_size, job.seed)
        self.sources = [DatasetSource(dataset, job.seed) for _ in range(workers)]
        self.at = begin

    def gradients(self) -> None:
        """Every replica computes its slice of the step."""
        batch = len(self.epochs.batch(self.at))
        for rank, (own, source) in enumerate(zip(self.steps, self.sources, strict=True)):
            slices = Slices(source, self.epochs, rank, self.workers, self.job.accumulate)
            try:
                own.compute(slices.pieces(self.at), batch, self.at, rank, Wishes())
            finally:
                slices.close()

    def total(self) -> torch.Tensor:
        """The sum of what the replicas computed."""
        return sum_by_hand([own.flat.data for own in self.steps])

    def step(self) -> float:
        """One step of all; returns its loss."""
        self.gradients()
        total = self.total()
        losses = []
        for own in self.steps:
            own.flat.data.copy_(total)
            losses.append(own.apply()[0])
        self.at += 1
        assert len({repr(loss) for loss in losses}) == 1
        return losses[0]


def sum_by_hand(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def bits(model: nn.Module) -> dict[str, bytes]:
    """A model's parameters and buffers, byte for byte."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {
        name: tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        for name, tensor in named
    }


@contextmanager
def one_thread():
    """Sums of floats depend on how many threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
