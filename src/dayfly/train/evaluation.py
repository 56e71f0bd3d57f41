"""Distributed validation: every worker measures its slice, and the sums are all-reduced."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dayfly.job import Job
from dayfly.train.devices import device_of, to_device
from dayfly.train.order import share
from dayfly.train.randomness import EVALUATE, seed_generators
from dayfly.train.replica import forward
from dayfly.train.sources import Source

#: Epoch number that validation's transforms are seeded with: the same in every epoch.
_EPOCH = -1


def validation_batch(source: Source, positions: range) -> Any:
    """Validation's samples at these positions, as the model gets them."""
    indices = np.arange(positions.start, positions.stop, dtype=np.int64)
    return source.batch(source.fetch(indices), indices, range(len(indices)), _EPOCH)


class Evaluation:
    """Measures of a job: the sums of one worker's slice, and the means of all.

    The sums are (samples, loss, accuracy, accuracy's samples, one a metric...), float64.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._metrics = list(job.metrics)

    def empty(self) -> torch.Tensor:
        """Sums of no samples."""
        return torch.zeros(4 + len(self._metrics), dtype=torch.float64)

    def sums(
        self, model: torch.nn.Module, source: Source, rank: int, world_size: int
    ) -> torch.Tensor:
        """Evaluate this rank's slice of the samples; -> (4 + metrics,) sums to be all-reduced."""
        total = self.empty()
        mine = share(source.samples, rank, world_size)
        device = device_of(model)
        model.eval()
        with torch.no_grad():
            for start in range(mine.start, mine.stop, self._job.batch_size):
                stop = min(start + self._job.batch_size, mine.stop)
                batch = to_device(validation_batch(source, range(start, stop)), device)
                # A custom step may draw numbers; a worker that starts again draws the same.
                seed_generators(EVALUATE, self._job.seed, start)
                total += self.measure(model, batch, stop - start)
        return total

    def measure(self, model: torch.nn.Module, batch: Any, samples: int) -> torch.Tensor:
        """The sums of one batch; -> (4 + metrics,)."""
        loss, outputs = forward(self._job, model, batch)
        return self.measured(loss, outputs, self.targets(batch), samples)

    def measured(
        self, loss: torch.Tensor | float, outputs: Any, targets: Any, samples: int
    ) -> torch.Tensor:
        """The sums of one batch, of which loss and outputs are known; -> (4 + metrics,)."""
        correct = right_answers(outputs, targets)
        values = [self._job.metrics[name](outputs, targets) for name in self._metrics]
        return torch.tensor(
            [
                samples,
                float(loss) * samples,
                correct or 0,
                0 if correct is None else targets.numel(),
                *(float(value) * samples for value in values),
            ],
            dtype=torch.float64,
        )

    @staticmethod
    def targets(batch: Any) -> Any:
        """The y of a batch (x, y); None for a batch of another kind."""
        return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None

    def means(self, sums: torch.Tensor) -> dict[str, float | None]:
        """Summed over all ranks -> `val_loss`, `val_accuracy` (None if not measured), metrics."""
        samples, loss, correct, answers, *metrics = sums.tolist()
        return {
            "val_loss": loss / samples,
            "val_accuracy": correct / answers if answers else None,
            **{name: value / samples for name, value in zip(self._metrics, metrics, strict=True)},
        }


def right_answers(outputs: Any, targets: Any) -> int | None:
    """How many of the targets have the highest score; None unless these are scores of classes.

    outputs: (N, C, ...) scores, targets: (N, ...) whole numbers.
    """
    if not (isinstance(outputs, torch.Tensor) and isinstance(targets, torch.Tensor)):
        return None
    whole = not targets.dtype.is_floating_point and targets.dtype is not torch.bool
    scores = outputs.ndim >= 2 and outputs.shape[1] > 1 and outputs.dtype.is_floating_point
    if not whole or not scores or targets.shape != (outputs.shape[0], *outputs.shape[2:]):
        return None
    return int((outputs.argmax(dim=1) == targets).sum())
