"""The steps of a script's loop, by what `dayfly train` takes them with: protocol, log, checkpoints.

script     model.step(x, y)        the whole batch, the same at every rank
Given      this rank's slice of it, in pieces
protocol   bsp, or a pipeline of the model's stages: sums, catches up from the message log
Keeping    the run checkpoint, with where the loop stands (`position`)

script     model.evaluate(data)    all samples, the same at every rank
protocol   measures this rank's blocks of them, and sums as in a validation of a job

The messages of an evaluation are those of the step that comes next, so a checkpoint that counts
meanwhile does not trim them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Any

import torch
from torch import nn

from dayfly.closing import Closing
from dayfly.dataclass_json import dump, read
from dayfly.errors import RequestError, RunFailed
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.life.heartbeats import Fenced
from dayfly.life.lifetimes import HandOver, Lifetime
from dayfly.life.reports import HANDED_OVER, STOPPED
from dayfly.runs.engines import Engines
from dayfly.runs.keeping import Keeping
from dayfly.runs.log_budget import log_rounds, measuring, replays
from dayfly.runs.progress import CatchUp, LoggedSum, Progress
from dayfly.runs.protocols.base import Protocol, WorkerContext
from dayfly.runs.protocols.bsp import Bsp
from dayfly.runs.protocols.pipeline import Pipeline
from dayfly.runs.scripts.batches import Given, GivenBatches, digest_of, samples_of
from dayfly.runs.scripts.position import Position
from dayfly.runs.scripts.process import Leave, ScriptProcess
from dayfly.runs.scripts.trial import Shown, cut_model, prune, whole_bytes
from dayfly.runs.settings import Settings
from dayfly.runs.spans import FaultPoints, Spans
from dayfly.runs.task import FunctionTask, StepTask
from dayfly.training.devices import device_of_function
from dayfly.training.evaluation import Evaluation, HeldOut, Measures, result_of, validation_batch
from dayfly.training.logged import Sums
from dayfly.training.order import Rounds
from dayfly.training.randomness import DROPOUT, EVALUATE, seeded
from dayfly.training.replica import Replica, Wishes
from dayfly.training.sources import DatasetSource, Source
from dayfly.training.state import Tensors
from dayfly.training.synchronous import Synchronous
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.pipelines.step import Layout, worthwhile_bytes

_OTHER_BATCH = (
    "model.step() of rank {rank} was given another batch than that of rank 0, in step {step}: let "
    "every rank go through the same batches, each of them whole (no DistributedSampler; shuffle by "
    "torch's own generator, or by a seed)"
)
_OTHER_SAMPLES = (
    "model.evaluate() of rank {rank} was given other samples than that of rank 0, after {step} "
    "steps: give all of them to every rank, which takes its own (no DistributedSampler; split by "
    "a seed)"
)


class _Losses(Progress):
    """Keeps the last step's loss."""

    loss = 0.0

    def add(self, step: int, loss: float, samples: int, logged: Sums | None = None) -> None:
        self.loss = loss


class Loop(Closing):
    """The steps of one process of a run. Made with the first batch, and closed at the script's end.

    Args:
        process: that runs the script.
        job: with the script's model, loss and optimizer.
        settings: of the run as one of a job.
        model: all of it; of one that is cut, the stage is left.
        optimizer: of all of its parameters, likewise.
        position: where the script's loop stands; goes into checkpoints.
        committed: the checkpoint to go on from.
        batch: the first.

    Attributes:
        step: the next one.

    Raises:
        RequestError: a loss or a cut that cannot be, or a message log that is too small.
    """

    def __init__(
        self,
        process: ScriptProcess,
        job: Job,
        settings: Settings,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        position: Position,
        committed: Checkpoint,
        batch: Any,
    ) -> None:
        told, channel = process.task, process.channel
        self._position = position
        self.step = committed.step
        stage_rank = Layout(settings.stages, settings.members).stage_rank(told.rank)
        self._shown = shown = _shown(position, job, model, batch, settings)
        line, built = None, None
        if settings.cut:
            round_bytes, line, built = cut_model(job, settings, model, batch, shown, stage_rank)
            prune(optimizer, built.model)
            chunk_bytes = worthwhile_bytes([told.rates], channel.abilities.in_flight)
            line = replace(line, chunk_bytes=chunk_bytes)
        else:
            round_bytes = whole_bytes(model, settings.workers)
        spec = ChannelSpec(
            senders=told.world_size,
            budget_bytes=told.log_budget_bytes,
            ahead_bytes=told.ahead_bytes,
        )
        common = {one.name: getattr(told, one.name) for one in fields(FunctionTask)}
        task = StepTask(
            **common,
            attempt=told.attempt,
            stage_rank=stage_rank,
            collective=settings.algorithm,
            log_rounds=log_rounds(settings, told.channel, spec, round_bytes),
            replays=replays(settings, told.channel),
            checkpoint_every_s=settings.checkpoint_every_s,
            checkpoint=committed,
            trimmed_step=told.trimmed_step,
            checkpoint_age_s=told.checkpoint_age_s,
            precision=settings.precision,
            pace=told.pace,
            pipelining=line,
            weighting=shown.weighting,
        )
        self._settings, self._spec, self._round_bytes = settings, spec, round_bytes
        self._evaluating: tuple[float, float] | None = None  # since the last step
        parts = job.accumulate
        self._given = Given(stage_rank.replica, settings.members, parts)
        self._job, self._task, self._process = job, task, process
        self._lifetime, self._spans = Lifetime(process.context), Spans()
        self._fault_points = FaultPoints(process.faults, self.step)
        device = device_of_function(process.context.gpu_share)
        self._replica = Replica(job, model, device, settings.precision)
        self._keeping = Keeping(
            task,
            process.store,
            channel,
            process.faults,
            self._lifetime,
            process.reporter,
            self._spans,
            began=process.began,
            heartbeats=process.heartbeats,
        )
        engines = Engines(
            channel, task, self._keeping.check, self._fault_points.after, self._spans.add
        )
        self._engine = engines.of_all()
        behind = task.replays and self._engine.keeps_sums
        self._catch_up = CatchUp(process.reporter, self.step, behind=behind)
        self._losses = _Losses()
        epochs = GivenBatches(1, 1, job.seed, self._given)
        worker = WorkerContext(
            task=task,
            job=job,
            store=process.store,
            replica=self._replica,
            progress=self._losses,
            epochs=epochs,
            rounds=Rounds(epochs, 1),
            slices=self._given,
            channel=channel,
            held_out=self._held_out(DatasetSource((), job.seed)),
            engine=self._engine,
            catch_up=self._catch_up,
            faults=process.faults,
            fault_points=self._fault_points,
            reporter=process.reporter,
            lifetime=self._lifetime,
            spans=self._spans,
            wishes=lambda: self._keeping.wishes(self.step + 1 - self._keeping.last_step),
            room=lambda: self._keeping.wait_for_room(self.step - self._keeping.trimmed_step),
            written=self._keeping.wait_in_step,
            among=engines.among,
            by=engines.by,
            finite=lambda steps, own: None,
        )
        self._protocol: Protocol = Bsp(worker) if built is None else Pipeline(worker, built)

    def load(self, tree: Any, tensors: Tensors) -> None:
        """Become the replica of the checkpoint that it goes on from."""
        self._protocol.load_state(self.step, tree["replica"], tensors)

    def take(self, batch: Any) -> float:
        """Take a step; returns the mean loss of the batch.

        Raises:
            Leave: the process is to end here.
            RequestError: other ranks were given another batch.
        """
        self._given.take(batch)
        self._fault_points.step, self._fault_points.operation = self.step, "grad"
        try:
            # The script's own generators stay as they were, so that all ranks' stay equal.
            with seeded(DROPOUT, self._job.seed, self.step):
                if self._position.first:
                    self._agree("batch", digest_of(batch), _OTHER_BATCH)
                    self._fault_points.operation = "grad"
                self._process.heartbeats.check()
                granted = self._protocol.take(self.step)
                self._process.heartbeats.round_ends()
        except (HandOver, Fenced):
            raise Leave(HANDED_OVER, self.step, kept=False) from None
        self._position.add(self._losses.loss)
        self._evaluating = None
        self.step += 1
        if granted.checkpoint or granted.stop:
            then = STOPPED if granted.stop else None
            self._write(then)
            if then is not None or self._lifetime.due() or self._lifetime.late():
                self._keeping.wait()
                raise Leave(then or HANDED_OVER, self.step, kept=True)
        return self._losses.loss

    def evaluate(self, source: Source) -> Measures:
        """Measures the model on samples, on all ranks; returns what `Parallel.evaluate` does.

        Raises:
            Leave: the process is to end here.
            RequestError: other ranks were given other samples, or their outputs take too much room.
        """
        self._evaluating = self._evaluating or (time.monotonic(), time.time())
        held_out = self._held_out(source)
        shown, self._fault_points.step = self._shown, self.step
        measured = measuring(self._job, source.samples, shown.row_bytes, shown.weighting)
        whole = measured.add_to(self._round_bytes)
        log_rounds(self._settings, self._task.channel, self._spec, whole)
        try:
            with seeded(EVALUATE, self._job.seed):
                first = validation_batch(source, held_out.evaluation.blocks[0])
                digest = digest_of(first, source.samples)
                self._agree(held_out.operation("samples"), digest, _OTHER_SAMPLES)
                found = self._protocol.validate(self.step, held_out)
        except (HandOver, Fenced):
            raise Leave(HANDED_OVER, self.step, kept=False) from None
        measures = result_of(found, shown.weighting.logged)
        self._position.add_measured(measures)
        return measures

    def tell_epoch(self, record: Mapping[str, int | float | None]) -> None:
        """Reports an epoch, and its evaluations where no step came after them."""
        began, at = self._evaluating or (time.monotonic(), time.time())
        self._process.reporter.add(
            "epoch",
            urgent=self._task.rank == 0,
            step=self.step,
            record=record,
            cpu_s=time.process_time(),
            began=at,
            spans=self._spans.take(began),
        )

    def whole_state(self) -> Tensors:
        """All of the model's tensors, by way of a checkpoint, which all ranks call for here."""
        try:
            if self._keeping.last_step != self.step:
                self._write(None)
            self._keeping.wait()
            if self.step != self._task.checkpoint.step:  # from which this process began
                self._keeping.wait_until_it_counts("the weights of all stages")
        except (HandOver, Fenced):
            raise Leave(HANDED_OVER, self.step, kept=False) from None
        store = self._process.store
        committed = checkpoints.latest(store)
        if committed is None or committed.step != self.step:
            raise RunFailed(
                f"the checkpoint before step {self.step} is not the latest in {store}: let all "
                "ranks call state_dict() after the same step"
            )
        return checkpoints.read(store, committed)[1]

    def close(self) -> None:
        """Write what is under way, and end the threads."""
        with ExitStack() as stack:  # all of it, whichever fails; the last first
            stack.callback(self._engine.close)
            stack.callback(self._protocol.close)
            stack.callback(self._keeping.close)
            self._keeping.wait()

    def _write(self, then: str | None) -> None:
        tree, tensors = self._position.dump()
        self._keeping.write(self.step, self._protocol, {"loop": tree}, then, tensors)

    def _held_out(self, source: Source) -> HeldOut:
        """Samples to measure the model on."""
        weighting, precision = self._shown.weighting, self._settings.precision
        evaluation = Evaluation(self._job, source.samples, weighting, precision)
        return HeldOut(source, evaluation, self._position.evaluations)

    def _agree(self, operation: str, digest: float, refusal: str) -> None:
        """Raise RequestError unless all ranks have this digest.

        Args:
            refusal: with `rank`, the first that has another, and `step`.
        """
        self._fault_points.operation = operation
        rank, size = self._task.rank, self._task.world_size
        digests = torch.zeros(size, dtype=torch.float64)
        one = LoggedSum(self._engine, operation, digests)
        (stored,) = self._catch_up.stored(self.step, [one])
        digests[rank] = digest
        one.take(self.step, stored)
        other = next((r for r in range(size) if digests[r] != digests[0]), None)
        if other is not None:
            raise RequestError(refusal.format(rank=other, step=self.step))


class Alone:
    """Steps in one process, that nothing keeps: a script that plain Python started."""

    def __init__(
        self, job: Job, settings: Settings, model: nn.Module, position: Position, batch: Any
    ) -> None:
        self._job, self._position = job, position
        self._weighting = _shown(position, job, model, batch, settings).weighting
        self._given = Given(0, 1, job.accumulate)
        self._replica = Replica(job, model, precision=settings.precision)
        self._steps = Synchronous(job, self._replica, weighting=self._weighting)
        self._step = 0

    def take(self, batch: Any) -> float:
        """As `Loop.take`."""
        self._given.take(batch)
        with seeded(DROPOUT, self._job.seed, self._step):
            pieces = self._given.pieces(self._step)
            self._steps.compute(pieces, samples_of(batch), self._step, 0, Wishes())
            loss, _ = self._steps.apply()
        self._step += 1
        self._position.add(loss)
        return loss

    def evaluate(self, source: Source) -> Measures:
        """As `Loop.evaluate`."""
        job, model, samples = self._job, self._replica.model, source.samples
        evaluation = Evaluation(job, samples, self._weighting, self._replica.precision)
        rows, values = evaluation.rows(range(samples)), evaluation.no_values()
        with seeded(EVALUATE, job.seed):
            table = evaluation.measure(model, source, evaluation.blocks, rows)
            if rows is not None:
                values = evaluation.values(rows)
        measures = result_of(evaluation.record(table, values), self._weighting.logged)
        self._position.add_measured(measures)
        return measures


def _shown(position: Position, job: Job, model: nn.Module, batch: Any, settings: Settings) -> Shown:
    """What the first batch of the run's loop showed; of this process's, if it is that one."""
    if position.shown is None:
        position.shown = dump(Shown.by(job, model, batch, settings.precision))
    return read(Shown, position.shown, "what the loop's first batch showed, in the checkpoint")
