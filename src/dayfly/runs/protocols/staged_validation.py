"""Validation of a cut model: its samples flow through the stages as micro-batches do.

    round 0   |f0 f1 f2 f3| sums |      of every replica M micro-batches, then the sums of all
    round 1                      |f0 f1 f2 f3| sums | ...

A worker that starts again skips the rounds whose sums are in the message log. What a round sent is
dropped by its readers when its sums are read, so the log holds no more than one round's.
"""

from __future__ import annotations

import time

import torch

from dayfly.batches import MicroBatch, validation_rounds
from dayfly.runs.catch_up import Sum
from dayfly.runs.protocols.base import Station
from dayfly.runs.protocols.passage import Passage
from dayfly.train.evaluation import validation_batch
from dayfly.train.stages.compute import Micro, Stage
from dayfly.wire.pipelines.orders import forward_only
from dayfly.wire.schedule import Work


class StagedValidation:
    """Validates, at one stage."""

    def __init__(self, station: Station, stage: Stage, passage: Passage) -> None:
        self._station = station
        self._stage = stage
        self._passage = passage

    def sums(self, step: int) -> torch.Tensor:
        """The sums over all samples, the same at every worker; see `Evaluation`."""
        here, line = self._station, self._passage.line
        rounds = validation_rounds(
            here.validation.samples,
            self._passage.place.replica,
            line.replicas,
            line.micro_batches,
            here.epochs.batch_size,
        )
        total = here.evaluation.empty()
        for number, positions in enumerate(rounds):
            total += self._round(step, number, positions)
        return total

    def _round(self, step: int, number: int, positions: list[range]) -> torch.Tensor:
        here = self._station
        here.places.operation = "val"
        one = Sum(here.engine, f"val-{number}", here.evaluation.empty())
        (stored,) = here.catch_up.stored(step, [one])
        if not one.reads_buffer(stored):
            one.take(step, stored)
            return one.like_P
        run = self._passage.run(
            step,
            f"eval-{number}",
            forward_only,
            [MicroBatch(micro, len(some)) for micro, some in enumerate(positions)],
            learns=False,
            again=stored is not None,
        )

        def work(what: Work, received: torch.Tensor | None) -> torch.Tensor | None:
            some = positions[what.micro_batch]
            began = time.monotonic()
            x, y = self._batch(some)
            micro = Micro(number=what.micro_batch, samples=len(some), weight=1.0, x=x, y=y)
            out = self._stage.evaluate(micro, some.start, received)
            here.spans.add("validate", began, time.monotonic())
            here.faults.at(step, f"eval-{number}-{what.micro_batch}")
            if not self._passage.last:
                assert isinstance(out, torch.Tensor), "a stage sends bytes"
                return out
            y = self._stage.here(y)
            loss = self._stage.loss_of(out, y)
            one.like_P.add_(here.evaluation.measured(loss, out, y, len(some)))
            return None

        run.carry_out(work)
        one.take(step, stored)
        run.drop_inputs()
        return one.like_P

    def _batch(self, positions: range) -> tuple[object, object]:
        """Samples, where they are needed: at the two ends of the model."""
        if not (self._passage.first or self._passage.last):
            return None, None
        x, y = validation_batch(self._station.validation, positions)
        return x, y
