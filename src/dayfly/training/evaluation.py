"""Validation: blocks of a fixed size, measured anywhere, combined in their order.

    blocks                |0 |1 |2 |3 |4 |5 |6 |      see `batches.validation_blocks`
    two workers           |0 |1 |2 |3 |               each measures its own
                                      |4 |5 |6 |
    sums (B, 4)           |a row each               | all-reduced: a row is zero but at one worker
    outputs and targets   |rows of samples          | at one worker, if the job has metrics

So what validation measures does not depend on the number of workers, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dayfly.batches import BLOCK_NUMBERS, validation_blocks
from dayfly.job import Job
from dayfly.training.devices import device_of, to_device
from dayfly.training.forward import Passed, forward
from dayfly.training.randomness import EVALUATE, seed_generators
from dayfly.training.rows import Rows
from dayfly.training.sources import Source
from dayfly.training.weighting import SAMPLES, Weighting

#: Epoch number that validation's transforms are seeded with: the same in every epoch.
_EPOCH = -1


def validation_batch(source: Source, positions: range) -> Any:
    """Validation's samples at these positions, as the model gets them."""
    indices = np.arange(positions.start, positions.stop, dtype=np.int64)
    return source.batch(source.fetch(indices), indices, range(len(indices)), _EPOCH)


class Evaluation:
    """Measures of a job.

    Args:
        job: whose loss and metrics are measured.
        samples: of the validation set.
        weighting: how losses of blocks are combined.
    """

    def __init__(self, job: Job, samples: int, weighting: Weighting = SAMPLES) -> None:
        self._job = job
        self._weighting = weighting
        self.metrics = tuple(job.metrics)
        self.blocks = validation_blocks(samples, job.batch_size)

    def empty(self, blocks: int) -> torch.Tensor:
        """Sums of so many blocks before any is measured, (4 * blocks,), float64."""
        return torch.zeros(BLOCK_NUMBERS * blocks, dtype=torch.float64)

    def no_values(self) -> torch.Tensor:
        """The metrics before they are computed, (metrics,), float64."""
        return torch.zeros(len(self.metrics), dtype=torch.float64)

    def rows(self, samples: range) -> Rows | None:
        """Room for outputs and targets of some samples; None if the job has no metrics."""
        return Rows(samples) if self.metrics else None

    def measure(
        self,
        model: torch.nn.Module,
        source: Source,
        blocks: Sequence[range],
        rows: Rows | None = None,
    ) -> torch.Tensor:
        """Evaluates the model on some blocks.

        Args:
            model: put into evaluation mode.
            source: of validation's samples.
            blocks: of `self.blocks`.
            rows: gets their outputs and targets.

        Returns:
            The sums of all blocks, (4 * all blocks,), zero but in these.
        """
        table = self.empty(len(self.blocks))
        device = device_of(model)
        model.eval()
        with torch.no_grad():
            for block in blocks:
                batch = to_device(validation_batch(source, block), device)
                # A custom step may draw numbers; a worker that starts again draws the same.
                seed_generators(EVALUATE, self._job.seed, block.start)
                passed = forward(self._job, model, batch, self._weighting)
                self.note(table, block.start // len(self.blocks[0]), passed, len(block))
                if rows is not None:
                    rows.write(block, passed.outputs, passed.targets)
        return table

    def note(self, table: torch.Tensor, number: int, passed: Passed, samples: int) -> None:
        """Writes the sums of a block of so many samples into its row of a table of sums."""
        denominator = self._weighting.denominator(passed.weight, samples)
        loss = float(passed.loss) * denominator if denominator else 0.0
        correct = right_answers(passed.outputs, passed.targets)
        answers = 0 if correct is None else passed.targets.numel()
        row = torch.tensor([loss, denominator, correct or 0, answers], dtype=torch.float64)
        table[BLOCK_NUMBERS * number : BLOCK_NUMBERS * (number + 1)] = row

    def values(self, rows: Rows) -> torch.Tensor:
        """Returns each metric over the outputs and targets of all samples, (metrics,), float64."""
        outputs, targets = rows.tree()
        values = [float(metric(outputs, targets)) for metric in self._job.metrics.values()]
        return torch.tensor(values, dtype=torch.float64)

    def record(self, table: torch.Tensor, values: torch.Tensor) -> dict[str, float | None]:
        """What an epoch's record gets.

        Args:
            table: the sums of all blocks, (4 * blocks,), summed over the workers.
            values: of the metrics, (metrics,).

        Returns:
            `val_loss`, `val_accuracy` (None if not measured), and each metric by its name.
        """
        loss = weight = correct = answers = 0.0
        for row in table.view(-1, BLOCK_NUMBERS).tolist():  # in the order of the blocks
            loss, weight = loss + row[0], weight + row[1]
            correct, answers = correct + row[2], answers + row[3]
        return {
            "val_loss": loss / weight if weight else float("nan"),
            "val_accuracy": correct / answers if answers else None,
            **dict(zip(self.metrics, values.tolist(), strict=True)),
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
