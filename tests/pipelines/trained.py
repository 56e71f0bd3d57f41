"""A cut model, trained in one process by the product's own code: a thread a rank, over files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from dayfly.job import Job
from dayfly.life.commits import Checkpoint
from dayfly.life.faults import Faults
from dayfly.life.lifetimes import Lifetime
from dayfly.life.platforms.base import Context
from dayfly.life.reports import Reporter
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.progress import CatchUp, Progress
from dayfly.runs.protocols.base import WorkerContext
from dayfly.runs.protocols.pipeline import Pipeline
from dayfly.runs.shipping import Shipped
from dayfly.runs.spans import FaultPoints, Spans
from dayfly.runs.task import Task
from dayfly.training.evaluation import Evaluation, HeldOut
from dayfly.training.forward import SAMPLES, Weighting
from dayfly.training.order import Epochs, Rounds
from dayfly.training.replica import Replica, Wishes, build_model
from dayfly.training.slices import Slices
from dayfly.training.sources import DatasetSource
from dayfly.training.stages.forms import BoundaryForm
from dayfly.training.stages.layers import build_stage, layers_of
from dayfly.training.stages.probe import check_stages
from dayfly.wire.channels.base import Channel, Messages, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.group import GroupChannel
from dayfly.wire.collectives import SCATTER_REDUCE, Collective
from dayfly.wire.collectives.k_reduce import k_reduce
from dayfly.wire.engine import Engine
from dayfly.wire.stores.files import FileStore
from tests.pipelines.taken import Taken
from tests.pipelines.world import SOON_S
from tests.training.jobs import Pairs

Measured = dict[str, float | None]


def boundaries(job: Job, data: Pairs) -> tuple[BoundaryForm, ...]:
    """What passes each boundary of the job's model, cut between any two of its layers."""
    model = build_model(job)
    every = range(1, len(layers_of(model)))
    return check_stages(job, model, every, [data[number] for number in range(4)])


def pipelining(
    forms: Sequence[BoundaryForm],
    cut: Sequence[int],
    replicas: int,
    micro_batches: int,
    schedule: str,
) -> Pipelining:
    """A cut of the model with these boundaries."""
    return Pipelining(
        cut=tuple(cut),
        replicas=replicas,
        micro_batches=micro_batches,
        schedule=schedule,
        forms=tuple(forms[index - 1] for index in cut),
    )


def train_cut(
    job: Job,
    data: Pairs,
    unseen: Pairs,
    steps: int,
    line: Pipelining,
    kind: type[FileChannel] = FileChannel,
    weighting: Weighting = SAMPLES,
) -> tuple[list[list[Taken]], list[Measured]]:
    """What every rank takes, step by step, and what it measures at last."""
    tree, tensors = Replica(job).state()
    with ExitStack() as stack:
        directory = tempfile.TemporaryDirectory(prefix="dayfly-test-", dir="/dev/shm")
        root, names = Path(stack.enter_context(directory)), Namespace("run", 0)
        size = line.layout.world_size
        stack.enter_context(
            FileChannel.make(root, names, senders=size, budget_bytes=2**27, ahead_bytes=2**18)
        )
        members = []
        for rank in range(size):
            channel = stack.enter_context(kind(root, names))
            task = replace(_task(rank, line, root), weighting=weighting)
            member = _Member(stack, job, data, unseen, line, channel, root, task)
            kept = {name: tensor.clone() for name, tensor in tensors.items()}
            member.pipeline.load_state(0, tree, kept)
            members.append(member)
        pool = stack.enter_context(ThreadPoolExecutor(size))
        calls = [pool.submit(member.train, steps) for member in members]
        done = [call.result(2 * SOON_S) for call in calls]
    return [taken for taken, _ in done], [measured for _, measured in done]


class _Member:
    """One rank, with all that a worker gives to its protocol."""

    def __init__(
        self,
        stack: ExitStack,
        job: Job,
        data: Pairs,
        unseen: Pairs,
        line: Pipelining,
        channel: Channel,
        root: Path,
        task: Task,
    ) -> None:
        rank = task.rank
        self.rank, self.channel, self.stack = rank, channel, stack
        self.world_size = line.layout.world_size
        self.stage_rank = line.layout.stage_rank(rank)
        self.epochs = Epochs(len(data), job.batch_size, job.seed)
        self.progress = Progress()
        built = build_stage(job, line.cut, self.stage_rank.stage)
        store = FileStore(root)
        faults = Faults((), rank, store)
        reporter = stack.enter_context(Reporter(channel, rank, 0))
        slices = Slices(
            DatasetSource(data, job.seed),
            self.epochs,
            self.stage_rank.replica,
            line.replicas,
            line.micro_batches,
        )
        stack.callback(slices.close)
        self.spans = Spans()
        self.replica = Replica(job, built.model)
        self.pipeline = Pipeline(
            WorkerContext(
                task=task,
                job=job,
                store=store,
                replica=self.replica,
                progress=self.progress,
                epochs=self.epochs,
                rounds=Rounds(self.epochs, 1),
                slices=slices,
                channel=channel,
                held_out=HeldOut(
                    DatasetSource(unseen, job.seed), Evaluation(job, len(unseen), task.weighting)
                ),
                engine=stack.enter_context(
                    self.engine(channel, rank, self.world_size, k_reduce(1))
                ),
                catch_up=CatchUp(reporter, 0, behind=False),
                faults=faults,
                fault_points=FaultPoints(faults, 0),
                reporter=reporter,
                lifetime=Lifetime(Context(f"f-{rank}", 0, time.monotonic(), None, None)),
                spans=self.spans,
                wishes=Wishes,
                room=lambda: None,
                written=lambda: None,
                among=self.among,
                by=lambda how: self.engine(channel, rank, self.world_size, how),
                finite=lambda steps, own: None,
            ),
            built,
        )
        stack.callback(self.pipeline.close)

    def engine(
        self, channel: Messages, member: int, members: int, collective: Collective
    ) -> Engine:
        return Engine(channel, collective, member, members, timeout_s=SOON_S, watch=self.spans.add)

    def among(self, name: str | None, ranks: Sequence[int], leaves: int | None) -> Engine:
        member = ranks.index(self.rank)
        channel: Messages = self.channel
        if name is not None:
            channel = GroupChannel(self.channel, name, ranks, member, whole_world=False)
        return self.engine(channel, member, len(ranks), SCATTER_REDUCE)

    def train(self, steps: int) -> tuple[list[Taken], Measured]:
        """Take the steps, then validate."""
        taken = []
        for step in range(steps):
            before = self.progress.loss_sum
            self.pipeline.take(step)
            loss = (self.progress.loss_sum - before) / len(self.epochs.batch(step))
            taken.append(Taken.of(loss, self.replica.model))
        return taken, self.pipeline.validate(steps - 1)


def _task(rank: int, line: Pipelining, root: Path) -> Task:
    return Task(
        run="run",
        token="00" * 32,
        generation=0,
        rank=rank,
        attempt=0,
        stage_rank=line.layout.stage_rank(rank),
        world_size=line.layout.world_size,
        store=root.as_uri(),
        channel=root.as_uri(),
        shipped=Shipped("", None),
        parts=(),
        samples=0,
        steps=0,
        sync="bsp",
        k=1,
        collective="scatter-reduce",
        aggregators=None,
        compress="none",
        decides=False,
        ended=False,
        log_rounds=None,
        replays=True,
        checkpoint_every_s=60.0,
        wait_timeout_s=SOON_S,
        scratch=str(root),
        checkpoint=Checkpoint(0, ()),
        trimmed_step=0,
        checkpoint_age_s=0.0,
        faults=(),
        pieces=line.micro_batches,
        pipelining=line,
    )
