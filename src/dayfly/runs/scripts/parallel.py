"""`dayfly.parallel`: a script's own loop, on functions.

    model = dayfly.parallel(model, loss=..., optimizer=optimizer)
    for epoch in model.epochs(20):
        for x, y in loader:
            loss = model.step(x, y)

Every rank runs the loop, with the same batches. Each computes its slice, and where the model is cut
its stage; `loop` takes the steps, `position` says where a process that starts again goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from dayfly import dataclass_json
from dayfly.errors import DayflyError, RequestError
from dayfly.job import Job, Loss, Step
from dayfly.life import checkpoints
from dayfly.life.checkpoints import State, Writer
from dayfly.life.commits import Checkpoint
from dayfly.life.failure import raised_in
from dayfly.runs.log_budget import replays
from dayfly.runs.scripts.loop import Alone, Loop
from dayfly.runs.scripts.position import Position
from dayfly.runs.scripts.process import LOOP, ScriptProcess, here
from dayfly.runs.settings import DEFAULT_SCHEDULE, Settings
from dayfly.training.precisions import FP32
from dayfly.training.replica import model_part
from dayfly.training.stages.layers import check_cut, even_cut, layers_of
from dayfly.training.state import Tensors, load_model_tensors, model_tensors
from dayfly.wire.collectives import default_collective
from dayfly.wire.execution import wait_patiently
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.pipelines.step import Layout

#: What all ranks begin with, as rank 0 has it.
_BEGIN = Key(0, "first-state", 0, EVERYONE)


def parallel(
    model: nn.Module,
    *,
    optimizer: torch.optim.Optimizer,
    loss: Loss | None = None,
    step: Step | None = None,
    state: Mapping[str, Any] | None = None,
    stages: int = 1,
    cut: Sequence[int] = (),
    micro_batches: int = 1,
    schedule: str = DEFAULT_SCHEDULE,
    precision: str = FP32,
    clip_norm: float | None = None,
    seed: int = 0,
    checkpoint_every_s: float = 60.0,
) -> Parallel:
    """Wraps a model, so that a script's own loop trains it on all functions of `dayfly run`.

    All ranks begin with rank 0's weights and random generators. In a script that plain Python
    starts, it trains in that process alone.

    Args:
        model: the whole model, in every rank. Of one that is cut each keeps its stage alone, from
            the first step on.
        optimizer: of the model's parameters.
        loss: `loss(outputs, targets)`, as of a `Job`.
        step: the script's own forward pass and loss, `step(model, batch)`, as of a `Job`; in place
            of `loss`.
        state: what else the loop changes and goes on from, by name: schedulers, a
            `torch.Generator`, or any object with `state_dict` and `load_state_dict`.
        stages: in which the model is cut, with about equal bytes of parameters; the functions are
            stages times replicas.
        cut: numbers of the layers that begin a stage, but for the first; in place of `stages`.
        micro_batches: pieces in which a function computes its share of a batch, one after another.
        schedule: of a cut model's micro-batches, `fill-drain` or `1f1b`.
        precision: of forward passes and losses: `fp32`, `bf16` or `fp16`.
        clip_norm: largest norm of the whole gradient.
        seed: from which dropout follows, with step, rank and micro-batch.
        checkpoint_every_s: longest time between two checkpoints, in seconds.

    Returns:
        The model in parallel.

    Raises:
        RequestError: what cannot be, in one sentence.

    Examples:
        >>> import dayfly, torch
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> model = dayfly.parallel(
        ...     model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer
        ... )
        >>> for epoch in model.epochs(2):
        ...     for x, y in [(torch.ones(8, 4), torch.ones(8, dtype=torch.int64))]:
        ...         loss = model.step(x, y)
        >>> loss > 0
        True
    """
    if not isinstance(model, nn.Module):
        raise RequestError(f"dayfly.parallel was given a {type(model).__name__}: give a module")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise RequestError(
            f"dayfly.parallel(optimizer=...) is a {type(optimizer).__name__}: give an optimizer of "
            "the model's parameters"
        )
    job = Job(
        model=lambda: model,
        data=lambda: ((), ()),
        loss=loss,
        step=step,
        optimizer=lambda parameters: optimizer,
        accumulate=micro_batches,
        clip_norm=clip_norm,
        seed=seed,
    )
    process = here()
    if process is None and int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise RequestError(
            "dayfly.parallel works under dayfly run, and other processes were started by something "
            "else: dayfly run --workers N SCRIPT"
        )
    settings = _settings(
        process,
        model,
        stages,
        cut=tuple(cut),
        schedule=schedule,
        precision=precision,
        checkpoint_every_s=checkpoint_every_s,
    )
    if settings.cut and step is not None:
        raise RequestError(
            "dayfly.parallel: a step of your own has all of the model, so it cannot be cut: give "
            "loss="
        )
    return Parallel(process, job, settings, model, optimizer, state or {})


def _settings(
    process: ScriptProcess | None,
    model: nn.Module,
    stages: int,
    *,
    cut: tuple[int, ...],
    schedule: str,
    **others: Any,
) -> Settings:
    """The settings of a run of a job that trains alike. Raises RequestError if there can be none.

    stages: used where no cut is given.
    """
    if stages < 1 or (cut and stages != 1):
        raise RequestError(f"dayfly.parallel(stages={stages}): give stages from 1, or cut")
    if stages > 1:
        sizes = [sum(p.nbytes for p in layer.parameters()) for layer in layers_of(model)]
        if stages > len(sizes):
            raise RequestError(
                f"dayfly.parallel(stages={stages}): the model has {len(sizes)} layers: give as "
                "many stages at most"
            )
        cut = even_cut(sizes, stages)
    if cut:
        check_cut(cut, len(layers_of(model)))
    if process is None:
        return Settings(**others)  # one process computes all layers
    channel = process.channel
    usual = default_collective(
        sums=channel.abilities.sums,
        direct=channel.abilities.direct,
        immediate=channel.immediate,
    )
    task = process.task
    staged: dict[str, Any] = {"cut": cut, "schedule": schedule} if cut else {}
    if cut and task.world_size % (len(cut) + 1):
        raise RequestError(
            f"dayfly.parallel: {task.world_size} functions are not {len(cut) + 1} stages times any "
            "number of replicas: give --workers a multiple of the stages"
        )
    return Settings(
        workers=task.world_size, channel=task.channel, collective=usual, **staged, **others
    )


class Parallel:
    """A model on all functions of a run; made by `dayfly.parallel`.

    One thread uses it. It is called as the module, where this is whole.

    Attributes:
        module: the model; of one that is cut, this function's stage once a step was taken.
        rank, world_size: of this function.
    """

    def __init__(
        self,
        process: ScriptProcess | None,
        job: Job,
        settings: Settings,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        registered: Mapping[str, Any],
    ) -> None:
        self.module = model
        self.rank = 0 if process is None else process.task.rank
        self.world_size = 1 if process is None else process.task.world_size
        self._process, self._job, self._settings = process, job, settings
        self._optimizer = optimizer
        self._names = _same_tensors(model)
        self._persistent = [name for name in model.state_dict() if name in self._names]
        self._position = Position(registered)
        self._registered = bool(registered)
        self._steps: Loop | Alone | None = None
        self._state: State | None = None  # of the checkpoint, until the loop is level with it
        self._committed = Checkpoint(0, ())
        self._epochs: str | None = None  # begun, or over
        if process is not None:
            alone = replays(settings, process.task.channel)
            process.reporter.add(LOOP, urgent=True, alone=alone)
            self._begin_with(process)

    @property
    def replaying(self) -> bool:
        """Whether the next step was done before, by the process that this one follows."""
        return self._position.replaying

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of a loop's epochs, from 0; in a process that starts again, from its own.

        The state at the beginning of each is noted: generators, and what was registered. A process
        that starts again begins with that, gives back the losses of steps that were done, and goes
        on. Without it, the whole loop is gone through once more, without computing.

        Args:
            count: of all epochs.

        Raises:
            RequestError: steps were taken before it, or it is called twice.
        """
        if self._epochs is not None or not self._position.first:
            raise RequestError("model.epochs(): call it once, before the first step")
        self._epochs = "begun"
        first = self._position.epoch
        for epoch in range(first or 0, count):
            if epoch == first:
                self._position.restore()
            else:
                self._position.begin(epoch)
            yield epoch
        self._epochs = "over"

    def step(self, *batch: Any) -> float:
        """Takes a step on all functions: forward, backward, the sum of all, the optimizer.

        Args:
            batch: x and y, or a batch as the script's `step=` takes it; the same in every rank, and
                the whole of it, as each rank takes its own samples.

        Returns:
            The mean loss of the batch.

        Raises:
            RequestError: a batch, loss or cut that cannot be, or ranks with different batches.
        """
        if self._epochs == "over" or (self._position.epoch is not None and self._epochs is None):
            raise RequestError("model.step(): take all steps inside of model.epochs()")
        given = batch[0] if len(batch) == 1 else batch
        try:
            steps = self._steps or self._first_step(given)
            if not self._position.replaying:
                return steps.take(given)
            loss = self._position.again()
            # A scheduler that the script steps warns where no step was taken before.
            self._optimizer._opt_called = True  # type: ignore[attr-defined]
            if not self._position.replaying:
                self._level()
            return loss
        except BaseException as error:
            raised_in(error, self._committed.step + len(self._position.losses))
            raise

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The model's forward pass, in this process. Raises RequestError where it is not whole."""
        if self._settings.cut:
            raise RequestError(
                "the model is cut, so no function has all of it: load model.state_dict() into "
                "another, which all ranks ask for"
            )
        if self.replaying:
            raise RequestError(
                "the model was asked between two steps of an epoch that a new process goes through "
                "again: do this after the epoch's last step, in a loop over model.epochs()"
            )
        return self.module(*args, **named)

    def state_dict(self) -> Tensors:
        """The weights of the whole model; copies, by their names in it.

        Of a model that is cut, all ranks have to call it after the same step.
        """
        whole = model_tensors(self.module)
        if self._settings.cut and isinstance(self._steps, Loop):
            whole = model_part(self._steps.whole_state())
        return {name: whole[self._names[name]].detach().clone() for name in self._persistent}

    def _begin_with(self, process: ScriptProcess) -> None:
        """Take the checkpoint's state, or rank 0's where there is none yet."""
        committed = checkpoints.latest(process.store)
        if committed is None:
            first = self._first_state(process)
            tree, tensors = checkpoints.read(process.store, first)
            load_model_tensors(self.module, model_part(tensors))
            self._position.load(tree["loop"], tensors)
            self._position.restore()
            return
        self._committed = committed
        settings = self._settings
        layout = Layout(settings.stages, settings.members)
        stage = layout.stage_rank(self.rank).stage if settings.cut else None
        self._state = checkpoints.read(process.store, committed, stage)
        self._position.load(self._state[0]["loop"], self._state[1])
        if self._position.epoch is None:
            self._position.restore()

    def _first_state(self, process: ScriptProcess) -> Checkpoint:
        """What rank 0 begins with, which it leaves in the store for all."""
        channel, task = process.channel, process.task
        if self.rank == 0 and not channel.stored([_BEGIN]):
            loop, tensors = self._position.dump()
            own = {f"model.{name}": one for name, one in model_tensors(self.module).items()}
            share = checkpoints.share_of(Writer(), {**own, **tensors})
            parts = checkpoints.write_share(process.store, 0, Writer(), {"loop": loop}, share)
            told = json.dumps(dataclass_json.dump(Checkpoint(0, parts))).encode()
            channel.put_bytes(_BEGIN, told)
        raw = wait_patiently(
            lambda some_s: channel.get_bytes(_BEGIN, some_s),
            task.wait_timeout_s,
            lambda: None,
            f"rank {self.rank} for what rank 0 begins with in dayfly.parallel",
        )
        return dataclass_json.read(Checkpoint, json.loads(raw), "rank 0's first state")

    def _first_step(self, batch: Any) -> Loop | Alone:
        wrapped = hasattr(self._optimizer.step, "_wrapped_by_lr_sched")
        if wrapped and not self._registered and self._process is not None:
            raise RequestError(
                "dayfly.parallel: the optimizer has a scheduler, which a process that starts again "
                'has to find: register it, as state={"scheduler": scheduler}'
            )
        made: Loop | Alone
        if self._process is None:
            made = Alone(self._job, self._settings, self.module, self._position)
        else:
            made = Loop(
                self._process,
                self._job,
                self._settings,
                self.module,
                self._optimizer,
                self._position,
                self._committed,
                batch,
            )
            self._process.closing.append(made.close)
        self._steps = made
        if not self._position.replaying:
            self._level()
        return made

    def _level(self) -> None:
        """All that was done is given again: become the checkpoint's replica."""
        state, self._state = self._state, None
        if state is not None:
            if not isinstance(self._steps, Loop):
                raise DayflyError("a checkpoint has no steps to go on with")
            self._steps.load(*state)


def _same_tensors(model: nn.Module) -> dict[str, str]:
    """The name by which `model_tensors` has each tensor; of shared ones, of each of their names."""
    names: dict[int, str] = {}
    found: dict[str, str] = {}
    for named in (
        model.named_parameters(remove_duplicate=False),
        model.named_buffers(remove_duplicate=False),
    ):
        for name, tensor in named:
            found[name] = names.setdefault(id(tensor), name)
    return found
