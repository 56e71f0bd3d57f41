"""What a worker is told: the payload of its invocation, and whether it fits into one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dayfly import dataclass_json
from dayfly.life import commits
from dayfly.life.checkpoints import Writer
from dayfly.life.commits import Checkpoint
from dayfly.life.faults import Fault
from dayfly.runs.function_resources import check_payload
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.settings import STOP_ON_NAN
from dayfly.runs.shipping import Shipped
from dayfly.specs.outer import Outer
from dayfly.specs.pace import Pace
from dayfly.specs.protocols import PROTOCOLS, ProtocolDescription
from dayfly.training.arrays import ArraySplit
from dayfly.training.forward import SAMPLES, Weighting
from dayfly.training.precisions import FP32
from dayfly.wire.pipelines.step import StageRank
from dayfly.wire.shaping import Rates

#: Where in the run's store the ends of a channel find each other.
RENDEZVOUS = "rendezvous"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTask:
    """What every function of a run is told.

    Args:
        run: the run's id.
        token: by which its messages are known to be the run's.
        generation: of which it is.
        turn: of that generation, see `GenerationPlan`.
        rank: of the worker.
        world_size: workers of the generation.
        store: URL of the run's.
        channel: URL through which workers talk.
        wait_timeout_s: longest wait for a message of another worker.
        faults: for tests.
        rates: of its link to channel and store; None: not limited.
        made_with: what its process should compute with (`runs.made_with`); empty: nobody said.
        allow_other_cpu: another CPU type is only said.
    """

    run: str
    token: str = field(repr=False)
    generation: int
    turn: int = 0
    rank: int
    world_size: int
    store: str
    channel: str
    wait_timeout_s: float
    faults: tuple[Fault, ...] = ()
    rates: Rates | None = None
    made_with: Mapping[str, str] = field(default_factory=dict)
    allow_other_cpu: bool = False

    def dump(self) -> Any:
        """For JSON."""
        return dataclass_json.dump(self)

    @classmethod
    def load(cls, tree: Mapping[str, Any]) -> Self:
        """From what `dump` gave, by way of JSON. Raises RequestError for anything else."""
        return dataclass_json.read(cls, tree, "the task")


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """What workers that wait are told once they may go on.

    Args:
        checkpoint: from which.
        ended: whether the run ends there, as a callback or a target wants it.
        steps, batches: of the run from then on, as of `Task`.
    """

    checkpoint: Checkpoint
    ended: bool
    steps: int
    batches: tuple[tuple[int, int], ...] = ()

    def text(self) -> bytes:
        """As a message."""
        return json.dumps(dataclass_json.dump(self)).encode()

    @classmethod
    def read(cls, message: bytes) -> Self:
        """From what `text` gave. Raises RequestError for anything else."""
        return dataclass_json.read(cls, json.loads(message), "the message to go")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTask(FunctionTask):
    """What an attempt that takes steps is told, of a job or in a script's loop.

    Args:
        attempt: of its function.
        stage_rank: in the generation's layout.
        collective: name of the all-reduce algorithm.
        aggregators: workers that sum, of k-reduce.
        lags: whether it takes each step's sum a step later than those that sum.
        compress: how gradients are made smaller; see `training.compression.compression`.
        log_rounds: rounds whose messages the log may hold; None: any.
        replays: whether a worker that starts again finds in the log what it missed; else all go
            back to the run checkpoint together.
        checkpoint_every_s: longest time between run checkpoints.
        checkpoint: from which it starts.
        trimmed_step: the log before it is gone.
        checkpoint_age_s: of the checkpoint, when the function was invoked.
        precision: see `runs.settings.Settings`.
        pace: how often it reports, and looks for a wish to stop.
        pipelining: of a model that is cut.
        virtual_workers: leaves of each batch, along whose tree gradients are summed; None: as many
            as workers, in their order.
        weighting: how losses of parts of a batch are combined.
        outer: the outer optimizer; None: there is none.
    """

    attempt: int
    stage_rank: StageRank
    collective: str
    aggregators: int | None = None
    lags: bool = False
    compress: str = "none"
    log_rounds: int | None
    replays: bool
    checkpoint_every_s: float
    checkpoint: Checkpoint
    trimmed_step: int
    checkpoint_age_s: float
    precision: str = FP32
    pace: Pace = field(default_factory=Pace)
    pipelining: Pipelining | None = None
    virtual_workers: int | None = None
    weighting: Weighting = SAMPLES
    outer: Outer | None = None

    @property
    def writer(self) -> Writer:
        """Which part of a checkpoint is the worker's, and of its batches: which stage, if the model
        is cut, and which of the replicas."""
        if self.pipelining is None:
            return Writer(self.stage_rank.replica, self.world_size)
        layout, own = self.pipelining.layout, self.stage_rank
        return Writer(own.replica, layout.replicas_of(own.stage), own.stage, layout.stages)

    @property
    def holds(self) -> str:
        """What of the run's state the worker has, in words: which stage of the model, or the state
        by which outer optimizer; "" if a whole replica."""
        if self.pipelining is None:
            return "" if self.outer is None else self.outer.words
        cut = ",".join(map(str, self.pipelining.cut))
        return f"stage {self.stage_rank.stage} of cut {cut}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(StepTask):
    """One attempt of one worker of a job.

    Attributes:
        parts: the data's arrays, if it is arrays.
        samples, steps: of an epoch's training samples, and of the whole run.
        batches: steps from which on batches have another size than the job's, each with that size.
        sync: the protocol.
        k: steps of a round; None: an epoch.
        shares: of each batch, one a rank, in relation to each other; empty: they are equal.
        scratch: a directory to unpack code in, removed with the functions' machine.
        decides: whether the coordinator is asked after each epoch if the run ends there.
        ended: whether it does so at the checkpoint.
        pieces: in which a worker computes its share of a batch, one after another.
        on_nan: see `runs.settings.Settings`.
        waits: whether it is to warm up, and to wait until it is told from which checkpoint it goes
            on (`Going`).
        renewed: whether successors of all workers are started before its lifetime ends.
    """

    shipped: Shipped
    parts: tuple[ArraySplit, ...]
    samples: int
    steps: int
    sync: str
    k: int | None
    decides: bool
    ended: bool
    scratch: str
    pieces: int
    on_nan: str = STOP_ON_NAN
    waits: bool = False
    renewed: bool = False
    batches: tuple[tuple[int, int], ...] = ()
    shares: tuple[int, ...] = ()

    @property
    def protocol(self) -> ProtocolDescription:
        """What the protocol is, with its outer optimizer."""
        described, outer = PROTOCOLS[self.sync], self.outer
        return described if outer is None else described.by(outer.name, outer.streaming)

    def goes(self, going: Going) -> Self:
        """The task of a worker that waits no more."""
        return replace(
            self,
            checkpoint=going.checkpoint,
            trimmed_step=going.checkpoint.step,
            checkpoint_age_s=0.0,
            ended=going.ended,
            steps=going.steps,
            batches=going.batches,
            waits=False,
        )


def check_task(task: Task, payload_bytes: int | None) -> None:
    """Raise RequestError if a worker's task may become longer than a payload can be.

    What it may become: that of the last worker, at the last step, with a checkpoint that all
    workers wrote.

    Args:
        task: as it is now.
    """
    check_payload(_largest(task).dump(), payload_bytes, "use fewer workers")


def _largest(task: Task) -> Task:
    step, size, digest = 10**9 - 1, 10**12 - 1, "f" * 32
    ranks = range(task.world_size)
    own = task.compress != "none" or bool(task.protocol.own)  # such as residuals
    kinds = ("part", "own") if own else ("part",)
    # Of a model in stages each has a tree, and longer names.
    cut = "" if task.pipelining is None else f"cut-0.stage-{task.world_size}-of-{task.world_size}."
    folder = f"checkpoint/{step}/{cut}"
    names = [f"{folder}{k}-{rank}-of-{task.world_size}" for k in kinds for rank in ranks]
    trees = [f"{folder}tree.json"] * task.writer.stages
    parts = tuple(commits.CheckpointPart(name, size, digest) for name in (*names, *trees))
    return replace(
        task,
        rank=task.world_size - 1,
        stage_rank=StageRank(task.world_size - 1, task.world_size - 1),
        attempt=10**4 - 1,
        checkpoint=Checkpoint(step, parts),
        trimmed_step=step,
        checkpoint_age_s=123456.78901234567,
    )
