"""The peer: data parallel training by torch alone, with validation after each epoch.

rank 0   |backward, gradients summed meanwhile|step| ... |validate its half|sum|
rank 1   |backward, gradients summed meanwhile|step| ... |validate its half|sum|
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.parts.member import Member
from dayfly.batches import share
from dayfly.job import Job
from dayfly.training.order import Epochs
from dayfly.training.replica import build_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a training came to, after each epoch; all ranks say the same but of the time.

    Attributes:
        losses: of validation.
        accuracies: of validation.
        train_losses: of the epoch's steps.
        steps: of the training.
        ended_s: end of each epoch's validation, by `time.monotonic()`.
    """

    losses: list[float]
    accuracies: list[float]
    train_losses: list[float]
    steps: int
    ended_s: list[float]


class Peer(Member):
    """A rank of DDP; asked through `Ranks`: `join`, `fit`, `leave`."""

    def fit(self, job: Job) -> Fitted:
        """Trains a job on its arrays, which are in memory, from the first weights on.

        Args:
            job: with a directory of arrays; its batch size is of all ranks.
        """
        rank, world_size = dist.get_rank(), dist.get_world_size()
        x, y, x_val, y_val = (
            torch.from_numpy(np.load(Path(str(job.data)) / f"{name}.npy"))
            for name in ("x_train", "y_train", "x_val", "y_val")
        )
        mine = share(len(y_val), rank, world_size)
        held_out = x_val[mine.start : mine.stop], y_val[mine.start : mine.stop]
        # dayfly's order, so that both sides train on the same batches. All are full and shared
        # evenly, as DDP takes the plain mean over the ranks.
        epochs = Epochs(len(y), job.batch_size, job.seed)
        steps = len(y) // job.batch_size
        order = [
            torch.from_numpy(epochs.indices(step, rank, world_size))
            for step in range(steps * job.epochs)
        ]
        model = DistributedDataParallel(
            build_model(job), gradient_as_bucket_view=True, static_graph=True
        )
        loss_of: Any = job.loss
        optimizer: torch.optim.Optimizer = job.optimizer(model.parameters())  # type: ignore[operator]
        fitted = Fitted(losses=[], accuracies=[], train_losses=[], steps=len(order), ended_s=[])
        dist.barrier()
        for epoch in range(job.epochs):
            model.train()
            total = torch.zeros((), dtype=torch.float64)
            for indices in order[epoch * steps : (epoch + 1) * steps]:
                optimizer.zero_grad()
                loss = loss_of(model(x[indices]), y[indices])
                loss.backward()
                optimizer.step()
                total += loss.detach()
            measured = _validated(model.module, loss_of, *held_out)
            sums = torch.stack([*measured, total / steps / world_size])
            dist.all_reduce(sums)
            correct, val_loss, train_loss = sums.tolist()
            fitted.accuracies.append(correct / len(y_val))
            fitted.losses.append(val_loss / len(y_val))
            fitted.train_losses.append(train_loss)
            fitted.ended_s.append(time.monotonic())
        return fitted


def _validated(
    model: nn.Module, loss_of: Any, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """How many of these samples are right, and the sum of their losses; buffers are rank 0's."""
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
    model.eval()
    with torch.no_grad():
        scores = model(x)
        right = (scores.argmax(1) == y).sum().double()
        return right, loss_of(scores, y).double() * len(y)
