"""`dayfly.parallel`: a script's own loop, on functions.

    model = dayfly.parallel(model, loss=..., optimizer=optimizer)
    for epoch in model.epochs(20):
        for x, y in loader:
            loss = model.step(x, y)
        found = model.evaluate(held_out)

Every rank runs the loop, with the same batches. Each computes its slice, and where the model is cut
its stage; `loop` takes the steps, `position` says where a process that starts again goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dayfly.errors import DayflyError, RequestError
from dayfly.job import Job, Loss, Metric, Step
from dayfly.life import checkpoints
from dayfly.life.checkpoints import State
from dayfly.life.commits import Checkpoint
from dayfly.life.failure import raised_in
from dayfly.misspelt import suggests
from dayfly.runs.log_budget import replays
from dayfly.runs.scripts.batches import samples_of
from dayfly.runs.scripts.first_state import first_state, same_tensors
from dayfly.runs.scripts.held_out import held_out_source, tried_of
from dayfly.runs.scripts.loop import Alone, Loop
from dayfly.runs.scripts.loop_settings import loop_settings
from dayfly.runs.scripts.position import Position
from dayfly.runs.scripts.process import LOOP, ScriptProcess, here
from dayfly.runs.scripts.words import script_words
from dayfly.runs.settings import Settings
from dayfly.runs.stage_checks import DEFAULT_SCHEDULE
from dayfly.training.evaluation import Measures
from dayfly.training.precisions import FP32
from dayfly.training.replica import model_part
from dayfly.training.state import Tensors, load_model_tensors, model_tensors
from dayfly.wire.pipelines.step import Layout

#: Batch size of a job that is validated in blocks of 32 samples, as loops are.
_EVALUATED = 256


@suggests
@script_words()
def parallel(
    model: nn.Module,
    *,
    optimizer: torch.optim.Optimizer,
    loss: Loss | None = None,
    step: Step | None = None,
    metrics: Mapping[str, Metric] | None = None,
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
        metrics: what `evaluate` measures beside the loss and the accuracy: name to a metric of
            torchmetrics or a function `metric(outputs, targets)`, as of a `Job`.
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
        >>> sorted(model.evaluate(torch.ones(8, 4), torch.ones(8, dtype=torch.int64)))
        ['accuracy', 'loss']
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
        batch_size=_EVALUATED,
        metrics=metrics or {},
        accumulate=micro_batches,
        clip_norm=clip_norm,
        seed=seed,
    )
    process = here()
    settings = loop_settings(
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
        self._names = same_tensors(model)
        self._persistent = [name for name in model.state_dict() if name in self._names]
        self._position = Position(registered)
        self._registered = bool(registered)
        self._steps: Loop | Alone | None = None
        self._state: State | None = None  # of the checkpoint, until the loop is level with it
        self._committed = Checkpoint(0, ())
        self._epochs: str | None = None  # begun, or over
        self._count: int | None = None  # of epochs
        self._under_way = False  # an epoch; of which:
        self._loss_sum, self._samples = 0.0, 0
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
        self._epochs, self._count = "begun", count
        first = self._position.epoch
        for epoch in range(first or 0, count):
            if epoch == first:
                self._position.restore()
            else:
                self._position.begin(epoch)
            self._loss_sum, self._samples, self._under_way = 0.0, 0, True
            yield epoch
            self._end_epoch()
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
        with self._located():
            steps = self._steps or self._first_step(given)
            if self._position.replaying:
                loss = self._position.again()
                # A scheduler that the script steps warns where no step was taken before.
                self._optimizer._opt_called = True  # type: ignore[attr-defined]
                if not self._position.replaying:
                    self._level()
            else:
                loss = steps.take(given)
            samples = samples_of(given)
            self._loss_sum += loss * samples
            self._samples += samples
            return loss

    def evaluate(self, *data: Any) -> Measures:
        """Measures the model on held-out samples, each function on some of them.

        The figures do not depend on the number of functions, to the last bit, nor on the order of a
        loader. All ranks have to call it, after the same step, with the same samples.

        Args:
            data: a Dataset with a length; a DataLoader, of which the dataset and the collate_fn are
                taken, in blocks of 32 samples; or tensors with a row a sample, such as x, y.

        Returns:
            By name: `loss`, of all samples; `accuracy`, of integer targets and one score a class;
            what the script's `step=` logs; each of the `metrics`. None: it was no number.

        Raises:
            RequestError: data that cannot be, or ranks with different data.
        """
        with self._located():
            if self._position.measured_before:
                return dict(self._position.measured_again())
            if self.replaying:
                raise RequestError(
                    "model.evaluate() was called in an epoch that a new process goes through "
                    "again, before a step where there was no evaluation: let all processes do the "
                    "same"
                )
            source = held_out_source(data, self._job.seed)
            if self._steps is None and self._settings.cut and not self._committed.step:
                raise RequestError("model.evaluate(): of a model that is cut, take a step first")
            steps = self._steps or self._first_step(tried_of(source, self._job.seed))
            found = steps.evaluate(source)
            self.module.train()
            return dict(found)

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Errors inside speak of the script, and are of the step that comes next."""
        try:
            with script_words():
                yield
        except BaseException as error:
            self._under_way = False
            raised_in(error, self._committed.step + len(self._position.losses))
            raise

    def _end_epoch(self) -> None:
        """Tell what an epoch came to, if one is under way; it ends with the script, too."""
        if self._under_way and isinstance(self._steps, Loop) and self._samples:
            self._steps.tell_epoch(self._position.record(self._loss_sum / self._samples))
        self._under_way = False

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
            first = first_state(process, self.module, self._position)
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

    def _first_step(self, batch: Any) -> Loop | Alone:
        wrapped = hasattr(self._optimizer.step, "_wrapped_by_lr_sched")
        if wrapped and not self._registered and self._process is not None:
            raise RequestError(
                "dayfly.parallel: the optimizer has a scheduler, which a process that starts again "
                'has to find: register it, as state={"scheduler": scheduler}'
            )
        made: Loop | Alone
        if self._process is None:
            made = Alone(self._job, self._settings, self.module, self._position, batch)
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
            self._process.closing += [made.close, self._end_epoch]  # the last first
            if self.rank == 0:
                ended = self._position.epoch or 0
                told = {"steps": True, "epochs": self._count, "ended": ended}
                self._process.reporter.add(LOOP, urgent=True, **told)
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
