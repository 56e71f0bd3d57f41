"""The steps of a script's loop, by what `dayfly train` takes them with: protocol, log, checkpoints.

script     model.step(x, y)        the whole batch, the same at every rank
Given      this rank's slice of it, in pieces
protocol   bsp, or a pipeline of the model's stages: sums, catches up from the message log
Keeping    the run checkpoint, with where the loop stands (`position`)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import xxhash
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from dayfly.batches import share
from dayfly.closing import Closing
from dayfly.errors import RequestError, RunFailed
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.life.lifetimes import HandOver, Lifetime
from dayfly.life.reports import HANDED_OVER, STOPPED
from dayfly.runs.engines import Engines
from dayfly.runs.keeping import Keeping
from dayfly.runs.log_budget import RoundBytes, log_rounds, replays
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.progress import CatchUp, Progress, Sum
from dayfly.runs.protocols.base import Protocol, WorkerContext
from dayfly.runs.protocols.bsp import Bsp
from dayfly.runs.protocols.pipeline import Pipeline
from dayfly.runs.scripts.position import Position
from dayfly.runs.scripts.process import Leave, ScriptProcess
from dayfly.runs.settings import Settings
from dayfly.runs.spans import FaultPoints, Spans
from dayfly.runs.staging import step_bytes
from dayfly.runs.task import FunctionTask, StepTask
from dayfly.training.combining import weighting_of
from dayfly.training.devices import device_of_function
from dayfly.training.evaluation import Evaluation
from dayfly.training.logged import Sums
from dayfly.training.order import Epochs, Rounds
from dayfly.training.randomness import DROPOUT, EVALUATE, seeded
from dayfly.training.replica import Replica, Wishes
from dayfly.training.sources import DatasetSource, Piece
from dayfly.training.stages.layers import StageModel, keep_stage, layers_of, stages, tensors_of
from dayfly.training.stages.probe import as_it_was, check_stages
from dayfly.training.state import Tensors
from dayfly.training.synchronous import Synchronous
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.pipelines.step import Layout, StageRank, worthwhile_bytes

#: Samples of the first batch by which a loss and a cut are tried.
_TRIED = 4


class Given:
    """The batch of the step that is being taken, as one rank's slice of it.

    Args:
        replica: this rank's, of `replicas` that share a batch.
        parts: pieces in which a slice is computed.
    """

    def __init__(self, replica: int, replicas: int, parts: int) -> None:
        self._replica, self._replicas, self._parts = replica, replicas, parts
        self.leaves = range(replica, replica + 1)
        self._batch: Any = None
        self.samples = 0

    def take(self, batch: Any) -> None:
        """This is the batch from now on."""
        self._batch, self.samples = batch, samples_of(batch)

    def pieces(self, step: int, leaf: int | None = None) -> Iterator[Piece]:
        """As `Slices.pieces`, of the batch that was taken."""
        mine = share(self.samples, self._replica, self._replicas)
        for number in range(self._parts):
            piece = share(len(mine), number, self._parts)
            if piece:
                first = mine.start + piece.start
                rows = rows_of(self._batch, first, first + len(piece))
                yield Piece(number, len(piece), rows, last=number == self._parts - 1)


@dataclass(frozen=True, slots=True)
class GivenBatches(Epochs):
    """Batches as they are given: nobody knows how many there will be."""

    given: Given

    def batch(self, step: int) -> range:
        return range(self.given.samples)


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
        weighting, round_bytes, line, built = _tried(job, settings, model, batch, stage_rank)
        if built is not None:
            _prune(optimizer, built.model)
        if line is not None:
            chunk_bytes = worthwhile_bytes([told.rates], channel.abilities.in_flight)
            line = replace(line, chunk_bytes=chunk_bytes)
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
            weighting=weighting,
        )
        parts = job.accumulate
        self._given = Given(stage_rank.replica, settings.members, parts)
        self._job, self._task, self._store = job, task, process.store
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
            validation=DatasetSource((), job.seed),
            evaluation=Evaluation(job, 0, weighting, settings.precision),
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
                    self._agree(batch)
                granted = self._protocol.take(self.step)
        except HandOver:
            raise Leave(HANDED_OVER, self.step, kept=False) from None
        self._position.add(self._losses.loss)
        self.step += 1
        if granted.checkpoint or granted.stop:
            then = STOPPED if granted.stop else None
            self._write(then)
            if then is not None or self._lifetime.due() or self._lifetime.late():
                self._keeping.wait()
                raise Leave(then or HANDED_OVER, self.step, kept=True)
        return self._losses.loss

    def whole_state(self) -> Tensors:
        """All of the model's tensors, by way of a checkpoint, which all ranks call for here."""
        try:
            if self._keeping.last_step != self.step:
                self._write(None)
            self._keeping.wait()
            if self.step != self._task.checkpoint.step:  # from which this process began
                self._keeping.wait_until_it_counts("the weights of all stages")
        except HandOver:
            raise Leave(HANDED_OVER, self.step, kept=False) from None
        committed = checkpoints.latest(self._store)
        if committed is None or committed.step != self.step:
            raise RunFailed(
                f"the checkpoint before step {self.step} is not the latest in {self._store}: let "
                "all ranks call state_dict() after the same step"
            )
        return checkpoints.read(self._store, committed)[1]

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

    def _agree(self, batch: Any) -> None:
        """Raise RequestError unless all ranks have this batch."""
        self._fault_points.operation = "batch"
        rank, size = self._task.rank, self._task.world_size
        digests = torch.zeros(size, dtype=torch.float64)
        one = Sum(self._engine, "batch", digests)
        (stored,) = self._catch_up.stored(self.step, [one])
        digests[rank] = _digest(batch)
        one.take(self.step, stored)
        self._fault_points.operation = "grad"
        other = next((r for r in range(size) if digests[r] != digests[0]), None)
        if other is not None:
            raise RequestError(
                f"model.step() of rank {other} was given another batch than that of rank 0, in "
                f"step {self.step}: let every rank go through the same batches, each of them whole "
                "(no DistributedSampler; shuffle by torch's own generator, or by a seed)"
            )


class Alone:
    """Steps in one process, that nothing keeps: a script that plain Python started."""

    def __init__(self, job: Job, settings: Settings, model: nn.Module, position: Position) -> None:
        self._job, self._position = job, position
        self._given = Given(0, 1, job.accumulate)
        self._steps = Synchronous(job, Replica(job, model, precision=settings.precision))
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


def samples_of(batch: Any) -> int:
    """Samples of a batch: rows of its first tensor. Raises RequestError if it has none."""
    for leaf in tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.ndim:
            return len(leaf)
    raise RequestError("model.step() was given no tensor with a row for each sample")


def rows_of(batch: Any, start: int, stop: int) -> Any:
    """Some samples of a batch."""
    samples = samples_of(batch)

    def cut(leaf: Any) -> Any:
        rows = isinstance(leaf, torch.Tensor) and leaf.ndim > 0 and len(leaf) == samples
        return leaf[start:stop] if rows else leaf

    return tree_map(cut, batch)


def _digest(batch: Any) -> float:
    """A number of 48 bits, which float64 holds exactly."""
    digest = xxhash.xxh3_64()
    for leaf in tree_leaves(batch):
        if isinstance(leaf, torch.Tensor):
            plain = leaf.detach().cpu().contiguous()
            digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return float(digest.intdigest() >> 16)


def _tried(
    job: Job, settings: Settings, model: nn.Module, batch: Any, stage_rank: StageRank
) -> tuple[Any, RoundBytes, Pipelining | None, StageModel | None]:
    """What the first batch shows: weighting, bytes of a step, and of a cut model its stage."""
    count = samples_of(batch)
    some = range(min(_TRIED, count))
    few = [tree_map(_row, rows_of(batch, number, number + 1)) for number in some]
    with as_it_was(model), seeded(EVALUATE, job.seed):
        weighting = weighting_of(job, model, few)
        if not settings.cut:
            trained = [p for p in model.parameters() if p.requires_grad]
            nbytes = sum(p.numel() * max(4, p.itemsize) for p in (*trained, *model.buffers()))
            return weighting, RoundBytes.of_sums(nbytes, settings.workers), None, None
        forms = check_stages(job, model, settings.cut, few, settings.precision, alone=False)
    line = Pipelining(
        cut=settings.cut,
        replicas=settings.members,
        micro_batches=job.accumulate,
        schedule=settings.schedule,
        forms=forms,
    )
    layers = layers_of(model)
    flat_bytes = [
        sum(t.numel() * 4 for number in numbers for _, t in tensors_of(layers[number]))
        for numbers in stages(settings.cut, len(layers))
    ]
    round_bytes = step_bytes(line, count, flat_bytes)
    return weighting, round_bytes, line, keep_stage(model, settings.cut, stage_rank.stage)


def _row(leaf: Any) -> Any:
    return leaf[0] if isinstance(leaf, torch.Tensor) and leaf.ndim else leaf


def _prune(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Leave of an optimizer the parameters of a stage."""
    own = {id(parameter) for parameter in model.parameters()}
    for group in optimizer.param_groups:
        kept = [number for number, p in enumerate(group["params"]) if id(p) in own]
        for name in ("params", "param_names"):
            if name in group:
                group[name] = [group[name][number] for number in kept]
    for parameter in [p for p in optimizer.state if id(p) not in own]:
        del optimizer.state[parameter]
