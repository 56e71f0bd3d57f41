"""The uncut model in one process, in plain PyTorch: what a pipeline has to give.

Of the product it takes two things only: which samples form a step (`Epochs`), and the first weights
that the job's seed decides. What it does with them is written out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from dayfly.job import Job
from dayfly.training.order import Epochs
from dayfly.training.replica import build_model
from tests.pipelines.taken import Taken
from tests.training.jobs import Pairs


def parts(samples: torch.Tensor, count: int) -> Iterator[torch.Tensor]:
    """In `count` neighbouring parts, the n-th from total n / count on, rounded down."""
    for n in range(count):
        yield samples[len(samples) * n // count : len(samples) * (n + 1) // count]


def train_whole(
    job: Job, data: Pairs, steps: int, replicas: int, micro_batches: int
) -> tuple[nn.Module, list[Taken]]:
    """The model after these steps, and each of them.

    Every replica computes its share of a batch, micro-batch by micro-batch; statistics begin at the
    same values on each, and go on from the mean of where they got to, by samples.
    """
    model = build_model(job)
    optimizer: torch.optim.Optimizer = job.optimizer(model.parameters())  # type: ignore[misc]
    loss_of: Any = job.loss
    epochs = Epochs(len(data), job.batch_size, job.seed)
    taken = []
    for step in range(steps):
        batch = torch.from_numpy(np.asarray(epochs.indices(step, 0, 1)))
        model.train()
        optimizer.zero_grad()
        start = {name: buffer.clone() for name, buffer in model.named_buffers()}
        moved = {name: torch.zeros_like(b, dtype=torch.float64) for name, b in start.items()}
        total = 0.0
        for mine in parts(batch, replicas):
            for name, buffer in model.named_buffers():
                buffer.copy_(start[name])
            for micro in parts(mine, micro_batches):
                if not len(micro):
                    continue
                x, y = data.x[micro], data.y[micro]
                loss = loss_of(model(x), y) * (len(micro) / len(batch))
                loss.backward()
                total += loss.item()
            for name, buffer in model.named_buffers():
                moved[name] += (buffer - start[name]) * (len(mine) / len(batch))
        for name, buffer in model.named_buffers():
            whole = moved[name] if buffer.is_floating_point() else moved[name].round()
            buffer.copy_(start[name] + whole.to(buffer.dtype))
        if job.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), job.clip_norm)
        optimizer.step()
        taken.append(Taken.of(total, model))
    return model, taken


def measure_whole(job: Job, model: nn.Module, data: Pairs) -> dict[str, float]:
    """All samples at once, in evaluation mode: loss, accuracy, and the job's metrics."""
    loss_of: Any = job.loss
    model.eval()
    with torch.no_grad():
        outputs = model(data.x)
    right = (outputs.argmax(dim=1) == data.y).double().mean()
    return {
        "val_loss": loss_of(outputs, data.y).item(),
        "val_accuracy": right.item(),
        **{name: float(metric(outputs.float(), data.y)) for name, metric in job.metrics.items()},
    }
