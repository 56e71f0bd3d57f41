"""Validation of a cut model: its blocks flow through the stages as micro-batches do.

    round 0   |f0 f1 f2 f3| sums |      of every replica M blocks, then the sums of all
    round 1                      |f0 f1 f2 f3| sums | ...
    metrics                                          | sums |

A worker that starts again skips the rounds whose sums are in the message log. What a round sent is
dropped by its readers when its sums are read, so the log holds no more than one round's. If the job
has metrics, replicas of the last stage hand in each round's outputs to the first of them before the
round's sums, and it keeps its own in the log, too: they stay until the metrics are stored.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from dayfly.batches import covered, validation_rounds
from dayfly.runs.progress import LoggedSum
from dayfly.runs.protocols.base import Gathering, WorkerContext
from dayfly.training.evaluation import HeldOut, Measures, validation_batch
from dayfly.training.moves import buffers_kept
from dayfly.training.rows import Rows
from dayfly.training.stages.compute import Micro, Stage
from dayfly.wire.pipelines.orders import forward_only
from dayfly.wire.pipelines.step import StageRank
from dayfly.wire.schedule import Work

if TYPE_CHECKING:
    from dayfly.runs.protocols.pipeline import Passage


class StagedValidation:
    """Validates, at one stage."""

    def __init__(
        self, worker: WorkerContext, stage: Stage, passage: Passage, held_out: HeldOut
    ) -> None:
        self._worker = worker
        self._held_out = held_out
        self._stage = stage
        self._passage = passage
        self._line = line = passage.line
        self._flow = line.flow
        self._rounds = validation_rounds(
            held_out.source.samples, self._flow.total, worker.job.batch_size
        )
        self._members = line.layout.stage_ranks(line.layout.stages - 1)
        # Shares of a round are rounded down, so the last replica has a block of every one.
        self._root = self._members[-1]

    def validate(self, step: int) -> Measures:
        """Measures the model, the same at every worker; see `Evaluation.record`."""
        here, evaluation = self._worker, self._held_out.evaluation
        here.fault_points.operation = "val"
        gathering = Gathering(here, self._held_out, self._root, step)
        whole = None
        if here.task.rank == self._root:
            whole = evaluation.rows(range(self._held_out.source.samples))
        tables, missing = [], []
        for number in range(len(self._rounds)):
            table, measured = self._round(step, number, whole, gathering)
            tables.append(table)
            if not measured:
                missing.append(number)
        values = evaluation.no_values()
        if evaluation.gathered:
            one = LoggedSum(here.engine, self._held_out.operation("val-metrics"), values)
            (stored,) = here.catch_up.stored(step, [one])
            if whole is not None and one.reads_buffer(stored):
                self._collect(whole, gathering, missing)
                values.copy_(evaluation.values(whole))
                here.faults.at(step, "measured")
            one.take(step, stored)
            gathering.drop()
        return evaluation.record(torch.cat(tables), values)

    def _round(
        self, step: int, number: int, whole: Rows | None, gathering: Gathering
    ) -> tuple[torch.Tensor, bool]:
        """The sums of a round's blocks, and whether they were computed, not read.

        whole: room for the rows of all samples, which the root has.
        """
        here, held_out = self._worker, self._held_out
        evaluation = held_out.evaluation
        blocks, own = self._rounds[number], self._passage.stage_rank
        mine = self._flow.blocks(len(blocks), own)
        # Micro-batches are numbered as the blocks of the round, or as the replica's.
        first = mine.start if self._line.layout.even else 0
        sums = evaluation.empty(len(blocks))
        one = LoggedSum(here.engine, held_out.operation(f"val-{number}"), sums)
        (stored,) = here.catch_up.stored(step, [one])
        if not one.reads_buffer(stored):
            one.take(step, stored)
            return one.like_P, False
        rows = whole
        if self._passage.last and rows is None:
            rows = evaluation.rows(covered(blocks[mine.start : mine.stop]))
        run = self._passage.run(
            step,
            held_out.operation(f"eval-{number}"),
            forward_only,
            self._flow.validating(list(map(len, blocks)), own),
            learns=False,
            again=stored is not None,
        )

        def work(what: Work, received: torch.Tensor | None) -> torch.Tensor | None:
            some = blocks[first + what.micro_batch]
            began = time.monotonic()
            x, y = self._batch(some)
            micro = Micro(number=what.micro_batch, samples=len(some), weight=1.0, x=x, y=y)
            with buffers_kept(self._stage.model):
                out = self._stage.evaluate(micro, some.start, received)
            here.spans.add("validate", began, time.monotonic())
            here.faults.at(step, f"eval-{number}-{what.micro_batch}")
            if not self._passage.last:
                assert isinstance(out, torch.Tensor), "a stage sends bytes"
                return out
            passed = self._stage.passed(out, y)
            evaluation.note(one.like_P, first + what.micro_batch, passed, len(some))
            if rows is not None:
                rows.write(some, passed.outputs, passed.targets)
            return None

        run.carry_out(work)
        if rows is not None:
            self._gather(number, rows, gathering)
            here.faults.at(step, f"gathered-{number}")
        one.take(step, stored)
        run.drop_inputs()
        return one.like_P, True

    def _gather(self, number: int, rows: Rows, gathering: Gathering) -> None:
        """Hands in this replica's rows of a round; the root collects those of the others."""
        here, parts = self._worker, self._parts(number)
        if here.task.rank != self._root:
            gathering.hand_in(number, rows, parts[here.task.rank])
            return
        own = parts.pop(self._root)
        if here.task.replays:  # for another attempt, which cannot compute them once more
            if not number:
                gathering.keep_form(rows)
            gathering.hand_in(number, rows, own)
            gathering.expect(number, rows, {self._root: own})
        gathering.collect(number, rows, parts)

    def _collect(self, rows: Rows, gathering: Gathering, missing: list[int]) -> None:
        """Reads rounds that an earlier attempt of the root computed or collected."""
        if missing and not rows.formed:
            gathering.take_form(rows)
        for number in missing:
            gathering.collect(number, rows, self._parts(number))

    def _parts(self, number: int) -> dict[int, range]:
        """The samples of a round that each rank of the last stage has."""
        blocks, last = self._rounds[number], self._line.layout.stages - 1
        parts = [
            self._flow.blocks(len(blocks), StageRank(last, replica))
            for replica in range(len(self._members))
        ]
        covering = (covered(blocks[part.start : part.stop]) for part in parts)
        return dict(zip(self._members, covering, strict=True))

    def _batch(self, positions: range) -> tuple[object, object]:
        """Samples, where they are needed: at the two ends of the model."""
        if not (self._passage.first or self._passage.last):
            return None, None
        x, y = validation_batch(self._held_out.source, positions)
        return x, y
