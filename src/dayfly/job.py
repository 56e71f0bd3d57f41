"""What the user asks for: model, data, loss, optimizer, batch size, epochs.

A job describes a training run without saying where or on how many workers it runs. It is written
in a Python file as the variable `job`, or built and passed to `dayfly.train`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal

import torch
from torch import nn

from dayfly.callbacks.base import Callback, checked
from dayfly.data.base import DataSource
from dayfly.errors import RequestError
from dayfly.misspelt import suggests

Model = Callable[[], nn.Module]
Loss = Callable[[Any, Any], torch.Tensor]
Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
OptimizerOfModule = Callable[[nn.Module], torch.optim.Optimizer]
Scheduler = Callable[[torch.optim.Optimizer], Any]
Metric = Callable[[Any, Any], "torch.Tensor | float"]  # or an object of torchmetrics' convention
Transform = Callable[[Any], Any]
Step = Callable[[nn.Module, Any], "torch.Tensor | tuple[torch.Tensor, Any] | Mapping[str, Any]"]
Datasets = Callable[[], tuple[Any, Any]]
Infer = Callable[[nn.Module, Any], Any]
BatchSchedule = Callable[[int], int]

#: Fields that may be dicts, with a value for each phase of a step.
_BY_PHASE = ("optimizer", "step", "scheduler", "clip_norm")
#: Names in an epoch's record, which metrics cannot have.
_MEASURED = ("epoch", "train_loss", "val_loss", "val_accuracy")


class _LeftOut(int):
    """A batch size that nobody gave."""


_LEFT_OUT = _LeftOut(32)


@suggests
@dataclass(frozen=True, kw_only=True)
class Job:
    """A described training run.

    Args:
        model: function that builds the module; every worker builds its own.
        data: `"digits"`; or a directory of `x_train.npy, y_train.npy` (and `x_val.npy, y_val.npy`);
            or one `.npz` of such arrays; or another file or directory of data, by its path, or with
            options, as `dayfly.data.csv("x.csv", target="kind")` (see docs/data.md); or a function
            that returns (train, validation) torch Datasets, or IterableDatasets with a length:
            streams, whose order is theirs. Without validation data a tenth of the
            samples is split off, by the seed.
        loss: `loss(outputs, targets)`, a mean over its samples, or over what torch's cross_entropy
            and nll_loss count: their class weights and ignored targets are known (see
            docs/metrics.md).
        optimizer: function from parameters to a torch optimizer. Several, as of a GAN: name to a
            function from the module to an optimizer of some of its parameters.
        outer_optimizer: function from parameters to a torch optimizer, the outer optimizer of
            `--sync local-sgd` in place of `--outer`: after each round it takes a step from where
            the round began, by the mean of what the workers' parameters moved by since.
        batch_size: samples of a step over all workers, whatever their number; or a function of the
            epoch, counted from 1, and of nothing else: `lambda epoch: 128 if epoch <= 5 else 512`.
            Validation goes by the first epoch's. Left out: 32.
        batch_schedule: that function, if `batch_size` was one; it is the first epoch's then.
        batch_per_worker: samples of a step of each worker, or of each replica if the model is cut,
            in place of `batch_size`: that follows the number of workers then, also when it changes
            in mid-run.
        epochs: passes over the data.
        scheduler: function from the optimizer to a learning-rate scheduler. ReduceLROnPlateau is
            given the validation loss. Of several optimizers: name to such a function.
        scheduler_every: when the scheduler is stepped: after every "epoch" or "step".
        clip_norm: largest norm of the whole gradient. Of several optimizers: name to the norm of
            the gradient of its parameters.
        metrics: name to a metric of torchmetrics (or any object with `update(outputs, targets)`,
            `compute()` and `reset()`), or to a function `metric(outputs, targets)`, which is called
            once with those of the whole validation set: on the CPU, detached, floats as float32,
            nested as the model gives them. Also a torchmetrics MetricCollection. For integer
            targets and one score a class, `val_accuracy` is measured by itself.
        init: weights to start from: a `.safetensors` file, or a state dict.
        seed: everything random follows from it: weights, order, augmentation, dropout.
        accumulate: pieces in which a worker computes its share of a batch, to save memory.
        validate_every: epochs between validations; the last epoch is validated, too. 0: none is.
        transform: sample x to sample x, in training; images come as PIL has them. A random one
            draws from the generators of torch, numpy or random: these are seeded for each sample.
        eval_transform: the same in validation.
        step: `step(model, batch)`, the user's own forward pass and loss, in place of
            `loss(model(x), y)`. Returns the loss, or (loss, outputs), or a mapping of loss,
            outputs, targets, weight (what the loss was divided by) and log: a dict of values that
            the history has as `train_NAME` and `val_NAME`, means over the batch's samples, or pairs
            (value, weight). A batch is (x, y), or what the samples of the Dataset collate to. With
            several optimizers: name to such a function, the phases of a step in their order. Each
            computes the gradient of its optimizer's parameters alone, and the next one begins with
            what that changed; losses are the sums of the phases' losses, outputs and targets those
            of the last phase that has some.
        infer: `infer(model, batch)`, the outputs that `run.predict` returns, of such a batch, or of
            x alone where samples have no targets. None: `model(x)`, or the outputs of `step`.
        ema: decay of a moving average of the parameters to train, such as 0.999, which begins with
            the first weights and moves after every step. Validation measures it.
        compile: whether functions compile the model by `torch.compile`, for each shape of a batch.
        num_workers: processes in each function that make the training batches of coming steps, as
            of a DataLoader; 0: the function makes them itself, those of the next step while it
            waits for the others, one by one. Bits do not depend on it.
        callbacks: of `dayfly.callbacks`; they run in the coordinator.

    Raises:
        RequestError: the job cannot be meant; in one sentence.

    Examples:
        >>> import dayfly, torch
        >>> dayfly.Job(
        ...     model=lambda: torch.nn.Linear(64, 10),
        ...     data="digits",
        ...     loss=torch.nn.functional.cross_entropy,
        ...     optimizer=lambda params: torch.optim.SGD(params, lr=0.1),
        ...     batch_size=0,
        ... )
        Traceback (most recent call last):
        ...
        dayfly.errors.RequestError: the job's batch_size is 0: give a whole number from 1
    """

    model: Model | None = None
    data: str | PathLike[str] | DataSource | Datasets | None = None
    loss: Loss | None = None
    optimizer: Optimizer | Mapping[str, OptimizerOfModule] | None = None
    outer_optimizer: Optimizer | None = None
    batch_size: int = _LEFT_OUT  # or a function
    batch_schedule: BatchSchedule | None = None
    batch_per_worker: int | None = None
    epochs: int = 1
    scheduler: Scheduler | Mapping[str, Scheduler] | None = None
    scheduler_every: Literal["epoch", "step"] = "epoch"
    clip_norm: float | Mapping[str, float] | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    init: str | PathLike[str] | Mapping[str, torch.Tensor] | None = None
    seed: int = 0
    accumulate: int = 1
    validate_every: int = 1
    transform: Transform | None = None
    eval_transform: Transform | None = None
    step: Step | Mapping[str, Step] | None = None
    infer: Infer | None = None
    ema: float | None = None
    compile: bool = False
    num_workers: int = 0
    callbacks: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            raise RequestError(
                "the job's model is a module: give a function that builds it (model=lambda: ...), "
                "as every worker builds its own"
            )
        self._callable("model", "a function that builds the module", needed=True)
        if self.step is None and self.loss is None:
            raise RequestError("the job has no loss: give loss=..., or step=... of your own")
        if self.step is not None and self.loss is not None:
            raise RequestError("the job has both loss= and step=: give one of them")
        self._callable("loss", "a function loss(outputs, targets)")
        self._check_phases()
        self._callable("step", "a function step(model, batch)")
        self._callable("infer", "a function infer(model, batch)")
        self._callable("transform", "a function of one sample")
        self._callable("eval_transform", "a function of one sample")
        for name in ("optimizer", "outer_optimizer"):
            if isinstance(getattr(self, name), torch.optim.Optimizer):
                raise RequestError(
                    f"the job's {name} is an optimizer already: give a function of the parameters "
                    f"({name}=lambda params: torch.optim.SGD(params, lr=0.1))"
                )
        self._callable("optimizer", "a function of the parameters", needed=True)
        self._callable("outer_optimizer", "a function of the parameters")
        self._callable("scheduler", "a function of the optimizer")
        if self.data is None:
            raise RequestError(
                'the job has no data: give data="digits", a file or directory of data, '
                "or a function that returns (train, validation) Datasets"
            )
        if not (callable(self.data) or isinstance(self.data, (str, PathLike, DataSource))):
            raise RequestError(
                f'the job\'s data is {type(self.data).__name__}: give "digits", a file or '
                "directory of data, or a function that returns (train, validation) Datasets"
            )
        for name in ("transform", "eval_transform"):
            if callable(self.data) and getattr(self, name) is not None:
                raise RequestError(
                    f"the job's {name} is for arrays, and its data is a function: let its Datasets "
                    "transform their samples"
                )
        for name in ("epochs", "accumulate"):
            self._whole(name, least=1)
        self._take_batches()
        self._whole("validate_every", least=0)
        self._whole("num_workers", least=0)
        self._whole("seed", least=0)
        for phase in self.phases:
            norm = self.of_phase("clip_norm", phase)
            if norm is not None and not (isinstance(norm, (int, float)) and 0 < norm < math.inf):
                raise RequestError(f"the job's clip_norm is {norm!r}: give a number above 0")
        if self.ema is not None and not (isinstance(self.ema, (int, float)) and 0 < self.ema < 1):
            raise RequestError(
                f"the job's ema is {self.ema!r}: give a decay between 0 and 1, such as 0.999"
            )
        if self.scheduler_every not in ("epoch", "step"):
            raise RequestError(
                f'the job\'s scheduler_every is {self.scheduler_every!r}: give "epoch" or "step"'
            )
        if self.scheduler is None and self.scheduler_every != "epoch":
            raise RequestError(
                f"the job's scheduler_every is {self.scheduler_every!r}, and it has no scheduler: "
                "give scheduler=, too, or leave it out"
            )
        if self.init is not None and not isinstance(self.init, (str, PathLike, Mapping)):
            raise RequestError(
                f"the job's init is {type(self.init).__name__}: "
                "give a .safetensors file, or a state dict such as module.state_dict()"
            )
        self._check_metrics()
        object.__setattr__(self, "callbacks", checked(self.callbacks))

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Samples of a step in each epoch; one number if it is the same in all."""
        if self.batch_schedule is None:
            return (self.batch_size,)
        return tuple(self.batch_schedule(epoch) for epoch in range(1, self.epochs + 1))

    def sized(self, workers: int) -> Job:
        """Returns the job with the batch of so many workers, if `batch_per_worker` says so.

        Args:
            workers: of a run, or replicas of each stage.
        """
        if self.batch_per_worker is None:
            return self
        return replace(self, batch_size=_LeftOut(self.batch_per_worker * workers))

    def sized_as(self, other: Job) -> Job:
        """Returns the job with another one's batch, if both have the same `batch_per_worker`."""
        if self.batch_per_worker is None or self.batch_per_worker != other.batch_per_worker:
            return self
        return replace(self, batch_size=_LeftOut(other.batch_size))

    def _take_batches(self) -> None:
        """Raise RequestError for batch sizes that cannot be."""
        if self.batch_per_worker is not None:
            self._whole("batch_per_worker", least=1)
            if not isinstance(self.batch_size, _LeftOut) or self.batch_schedule is not None:
                raise RequestError(
                    "the job has both batch_size= and batch_per_worker=: give one of them"
                )
            if self.batch_size is _LEFT_OUT:
                object.__setattr__(self, "batch_size", _LeftOut(self.batch_per_worker))
        if callable(self.batch_size):
            object.__setattr__(self, "batch_schedule", self.batch_size)
            object.__setattr__(self, "batch_size", self.batch_size(1))
        self._whole("batch_size", least=1)
        for number, size in enumerate(self.batch_sizes if self.batch_schedule else (), 1):
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise RequestError(
                    f"the job's batch_size is {size!r} in epoch {number}: give a whole number from "
                    "1 for each epoch"
                )
        if self.batch_schedule is not None and self.batch_size != self.batch_schedule(1):
            raise RequestError(
                f"the job's batch_size is {self.batch_size}, and its batch_schedule begins with "
                f"{self.batch_schedule(1)}: give one of them"
            )

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of a step's phases, in their order; of a job with one optimizer, "" alone."""
        return tuple(self.step) if isinstance(self.step, Mapping) else ("",)

    def of_phase(self, name: str, phase: str) -> Any:
        """Returns a phase's value of a field that may have one for each phase; None: it has none.

        Args:
            name: of the field.
            phase: its name; empty: the job has one phase.
        """
        value = getattr(self, name)
        return value.get(phase) if phase and isinstance(value, Mapping) else value

    def phase(self, phase: str) -> Job:
        """The job with a phase's step and norm alone, as its forward passes take it."""
        if not phase:
            return self
        parts = {name: self.of_phase(name, phase) for name in _BY_PHASE}
        return replace(self, **parts)

    def _check_phases(self) -> None:
        several = {name: isinstance(getattr(self, name), Mapping) for name in _BY_PHASE}
        if not any(several.values()):
            return
        if not (several["optimizer"] and several["step"]):
            raise RequestError(
                "the job has a dict of "
                f"{next(name for name in _BY_PHASE if several[name])}s: give several optimizers "
                "as optimizer={...} and step={...}, both with the same names"
            )
        names = self.phases
        for name in _BY_PHASE:
            value = getattr(self, name)
            if value is None:
                continue
            if not several[name]:
                raise RequestError(
                    f"the job has several optimizers and one {name}: give a dict with the names of "
                    f"those that it is for, of {', '.join(map(str, names))}"
                )
            needed = name in ("optimizer", "step")
            if not set(value) <= set(names) or (needed and set(value) != set(names)):
                raise RequestError(
                    f"the job's {name} has the names {', '.join(map(str, value)) or 'none'}, and "
                    f"its steps {', '.join(map(str, names)) or 'none'}: let them be the same"
                )
            for phase, one in value.items():
                if name != "clip_norm" and not callable(one):
                    raise RequestError(
                        f"the job's {name} {phase!r} is {type(one).__name__}: it must be a function"
                    )
        if len(names) < 2 or not all(isinstance(n, str) and n.isidentifier() for n in names):
            raise RequestError(
                f"the job's steps are {', '.join(map(repr, names))}: give two or more, with names "
                "such as generator"
            )

    def _check_metrics(self) -> None:
        if isinstance(self.metrics, nn.ModuleDict):  # a MetricCollection of torchmetrics
            object.__setattr__(self, "metrics", dict(self.metrics.items()))
        if not isinstance(self.metrics, Mapping):
            raise RequestError(
                f"the job's metrics are {type(self.metrics).__name__}: "
                "give a dict of names and metrics: torchmetrics objects or functions"
            )
        for name, metric in self.metrics.items():
            if not (callable(metric) or is_metric_object(metric)) or isinstance(metric, type):
                raise RequestError(
                    f"the job's metric {name!r} is {type(metric).__name__}: it must be a function "
                    "metric(outputs, targets), or an object with update, compute and reset"
                )
            if not isinstance(name, str) or name in _MEASURED:
                raise RequestError(
                    f"the job's metric {name!r} has the name of what is measured anyway, or none: "
                    "give it a name of its own"
                )

    def _callable(self, name: str, what: str, *, needed: bool = False) -> None:
        value = getattr(self, name)
        if isinstance(value, Mapping) and name in _BY_PHASE:
            return
        if value is None and needed:
            raise RequestError(f"the job has no {name}: give {name}=..., {what}")
        if value is not None and not callable(value):
            raise RequestError(f"the job's {name} is {type(value).__name__}: it must be {what}")

    def _whole(self, name: str, *, least: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise RequestError(f"the job's {name} is {value!r}: give a whole number from {least}")


def is_metric_object(metric: Any) -> bool:
    """Whether a metric follows torchmetrics' convention: update, compute and reset."""
    return all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset"))
