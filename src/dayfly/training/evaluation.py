"""Validation: blocks of a fixed size, measured anywhere, combined in their order.

    blocks                |0 |1 |2 |3 |4 |5 |6 |      see `batches.validation_blocks`
    two workers           |0 |1 |2 |3 |               each measures its own
                                      |4 |5 |6 |
    sums (B, 4 + states)  |a row each               | all-reduced: a row is zero but at one worker
    outputs and targets   |rows of samples          | at one worker, if a metric needs them all

So what validation measures does not depend on the number of workers, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dayfly.batches import BLOCK_NUMBERS, validation_blocks
from dayfly.job import Job
from dayfly.training.devices import device_of, to_device
from dayfly.training.forward import SAMPLES, Passed, Weighting, forward
from dayfly.training.logged import NUMBERS, VAL, added, by_name, means, numbers_of
from dayfly.training.metrics import State, value_of
from dayfly.training.moves import buffers_kept
from dayfly.training.precisions import FP32
from dayfly.training.randomness import EVALUATE, seed_generators
from dayfly.training.rows import Rows
from dayfly.training.sources import Source

#: What was measured, by name; None: it could not be.
Measures = dict[str, float | None]

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
        precision: see `training.precision`.

    Attributes:
        gathered: names of the metrics that need outputs and targets of all samples at one worker.
        block_numbers: numbers that are summed for each block.
        blocks: of the validation set.
    """

    def __init__(
        self, job: Job, samples: int, weighting: Weighting = SAMPLES, precision: str = FP32
    ) -> None:
        self._job = job
        self._precision = precision
        self._weighting = weighting
        found = {name: State.of(name, metric) for name, metric in job.metrics.items()}
        self._states = {name: state for name, state in found.items() if state is not None}
        self.gathered = tuple(name for name, state in found.items() if state is None)
        states = sum(state.numbers for state in self._states.values())
        self.block_numbers = BLOCK_NUMBERS + NUMBERS * len(weighting.logged) + states
        self.blocks = validation_blocks(samples, job.batch_size)

    @property
    def numbers(self) -> int:
        """Numbers that a validation sums over the workers."""
        return self.block_numbers * len(self.blocks) + len(self.gathered)

    def empty(self, blocks: int) -> torch.Tensor:
        """Sums of so many blocks before any is measured, (block_numbers * blocks,), float64."""
        return torch.zeros(self.block_numbers * blocks, dtype=torch.float64)

    def no_values(self) -> torch.Tensor:
        """The gathered metrics before they are computed, (metrics,), float64."""
        return torch.zeros(len(self.gathered), dtype=torch.float64)

    def rows(self, samples: range) -> Rows | None:
        """Room for outputs and targets of some samples; None if no metric needs them."""
        return Rows(samples) if self.gathered else None

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
            The sums of all blocks, (block_numbers * all blocks,), zero but in these.
        """
        table = self.empty(len(self.blocks))
        device = device_of(model)
        model.eval()
        with torch.no_grad():
            for block in blocks:
                batch = to_device(validation_batch(source, block), device)
                # A custom step may draw numbers; a worker that starts again draws the same.
                seed_generators(EVALUATE, self._job.seed, block.start)
                with buffers_kept(model):
                    passed = forward(self._job, model, batch, self._weighting, self._precision)
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
        logged = numbers_of(self._weighting.logged, passed.logged, samples)
        states = [one.measure(passed.outputs, passed.targets) for one in self._states.values()]
        table[self.block_numbers * number : self.block_numbers * (number + 1)] = torch.cat(
            [row, torch.tensor(logged, dtype=torch.float64), *states]
        )

    def values(self, rows: Rows) -> torch.Tensor:
        """Returns the gathered metrics of all samples, (metrics,), float64."""
        outputs, targets = rows.tree()
        metrics = self._job.metrics
        values = [value_of(name, metrics[name], outputs, targets) for name in self.gathered]
        return torch.tensor(values, dtype=torch.float64)

    def try_metric(self, name: str, outputs: Any, targets: Any) -> float:
        """Returns a metric of a single block."""
        if name in self._states:
            state = self._states[name]
            return state.value(state.measure(outputs, targets)[None])
        return value_of(name, self._job.metrics[name], outputs, targets)

    def record(self, table: torch.Tensor, values: torch.Tensor) -> Measures:
        """What an epoch's record gets.

        Args:
            table: the sums of all blocks, (block_numbers * blocks,), summed over the workers.
            values: of the gathered metrics, (metrics,).

        Returns:
            `val_loss`, `val_accuracy` (None if not measured), what the job's step logs with `val_`
            before its name, and each metric by its name.
        """
        loss = weight = correct = answers = 0.0
        rows = table.view(-1, self.block_numbers)
        for row in rows[:, :BLOCK_NUMBERS].tolist():  # in the order of the blocks
            loss, weight = loss + row[0], weight + row[1]
            correct, answers = correct + row[2], answers + row[3]
        measured = dict(zip(self.gathered, values.tolist(), strict=True))
        names = self._weighting.logged
        first = BLOCK_NUMBERS + NUMBERS * len(names)
        logged = by_name(names, added(rows[:, BLOCK_NUMBERS:first].tolist(), names))
        for name, state in self._states.items():
            measured[name] = state.value(rows[:, first : first + state.numbers])
            first += state.numbers
        return {
            "val_loss": loss / weight if weight else float("nan"),
            "val_accuracy": correct / answers if answers else None,
            **means(logged, VAL),
            **{name: measured[name] for name in self._job.metrics},
        }


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Samples that are validated on, and what is measured of them.

    Args:
        source: of the samples.
        evaluation: of as many.
        number: of the validation, among those of the same step.
    """

    source: Source
    evaluation: Evaluation
    number: int = 0

    def operation(self, name: str) -> str:
        """The name of a validation's messages, which differs from that of others of the step."""
        return f"{name}-v{self.number}" if self.number else name


def result_of(measures: Measures, logged: Sequence[str]) -> Measures:
    """Returns what a validation measured, by short names.

    Args:
        measures: from `Evaluation.record`.
        logged: names of the values that the job's step logs.

    Returns:
        `loss`, `accuracy` if it was measured, what the step logs, and each metric by its name.
    """
    rest = dict(measures)
    found = {"loss": rest.pop("val_loss")}
    if (accuracy := rest.pop("val_accuracy")) is not None:
        found["accuracy"] = accuracy
    return {**found, **{name: rest.pop(VAL + name) for name in logged}, **rest}


def right_answers(outputs: Any, targets: Any) -> int | None:
    """How many of the targets have the highest score; None unless these are scores of classes.

    Args:
        outputs: (N, C, ...) scores, targets: (N, ...) whole numbers.
    """
    if not (isinstance(outputs, torch.Tensor) and isinstance(targets, torch.Tensor)):
        return None
    whole = not targets.dtype.is_floating_point and targets.dtype is not torch.bool
    scores = outputs.ndim >= 2 and outputs.shape[1] > 1 and outputs.dtype.is_floating_point
    if not whole or not scores or targets.shape != (outputs.shape[0], *outputs.shape[2:]):
        return None
    return int((outputs.argmax(dim=1) == targets).sum())
