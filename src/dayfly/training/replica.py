"""One worker's copy of the training: model, optimizers and schedulers, and their state.

How replicas become one again, after every step or every few, is the protocol's: synchronous.py,
local_sgd.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dayfly.callbacks.usual import LearningRateMonitor
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.training.devices import CPU
from dayfly.training.optimizers import (
    build_optimizer,
    build_scheduler,
    built,
    load_optimizer_state,
    optimizer_state,
)
from dayfly.training.precision import Scaler
from dayfly.training.precisions import FP16, FP32
from dayfly.training.randomness import WEIGHTS, seed_generators
from dayfly.training.state import Tensors, decode, encode, load_model_tensors, model_tensors


@dataclass(slots=True)
class Wishes:
    """What workers want done after the step; each is granted if any worker wants it."""

    checkpoint: bool = False
    stop: bool = False


class Replica:
    """A job's model and optimizers in one worker, or a stage's of it.

    Args:
        model: a stage's, whose parameters and buffers have the whole model's names.
        device: to which the model is moved.
        precision: "fp32", "bf16" or "fp16", of forward passes and losses.
        compiled: let torch compile the model.

    Attributes:
        optimizers: by the names of the job's phases; none if a stage has no parameters to train.
        schedulers: of those of them that have one.
        scaler: of fp16's losses; None with another precision.
        overflowed: whether a gradient of the step under way did, so that the step is skipped.
        average: the moving average of the parameters to train, by name; None if the job has none.
    """

    def __init__(
        self,
        job: Job,
        model: nn.Module | None = None,
        device: torch.device = CPU,
        precision: str = FP32,
        *,
        compiled: bool = False,
    ) -> None:
        self._job = job
        self._part = model is not None
        self.device = device
        self.precision = precision
        self.scaler = Scaler() if precision == FP16 else None
        # Built on the CPU: the first weights are the same wherever they go.
        self.model = (build_model(job) if model is None else model).to(device)
        if compiled:
            compile_model(self.model)
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self.schedulers: dict[str, Any] = {}
        if any(parameter.requires_grad for parameter in self.model.parameters()):
            for phase in job.phases:
                optimizer = self.optimizers[phase] = build_optimizer(job, phase, self.model)
                scheduler = build_scheduler(job, phase, optimizer)
                if scheduler is not None:
                    self.schedulers[phase] = scheduler
        self.overflowed = False
        self.average: Tensors | None = None
        self.begin_average()

    @property
    def scale(self) -> float:
        """By which the loss is multiplied before the backward pass."""
        return 1.0 if self.scaler is None else self.scaler.scale

    def unscale(self, gradients: list[torch.Tensor]) -> bool:
        """Undoes `scale` in the summed gradients; returns whether there is a step to take."""
        return self.scaler is None or self.scaler.unscale(gradients)

    def step(self, phase: str = "") -> None:
        """Take an optimizer's step, by the gradients that the parameters have."""
        if phase in self.optimizers:
            self.optimizers[phase].step()

    def end_step(self, *, alone: bool = False) -> None:
        """Step what goes by steps: the scale, the average, and schedulers.

        Args:
            alone: whether replicas differ now, so that the average waits for `follow`.
        """
        if self.scaler is not None:
            self.scaler.update(finite=not self.overflowed)
        if not (alone or self.overflowed):
            self.follow()
        self.overflowed = False
        if self._job.scheduler_every == "step":
            for scheduler in self.schedulers.values():
                scheduler.step()

    def end_epoch(self, val_loss: float | None) -> None:
        """Step schedulers that go by epochs."""
        if self._job.scheduler_every != "epoch":
            return
        for scheduler in self.schedulers.values():
            if not isinstance(scheduler, ReduceLROnPlateau):
                scheduler.step()
            elif val_loss is not None:
                scheduler.step(val_loss)

    def begin_average(self) -> None:
        """The moving average begins with the weights as they are."""
        if self._job.ema is not None:
            self.average = {name: p.detach().clone() for name, p in self._trained()}

    @torch.no_grad()
    def follow(self, steps: int = 1, towards: Sequence[torch.Tensor] | None = None) -> None:
        """Moves the average towards the weights, which are equal on all replicas.

        Args:
            steps: since it moved last.
            towards: weights of the parameters to train; None: the model's.
        """
        if self.average:
            assert self._job.ema is not None
            own = [parameter.detach() for _, parameter in self._trained()]
            weights = own if towards is None else list(towards)
            torch._foreach_lerp_(list(self.average.values()), weights, 1 - self._job.ema**steps)

    def averaged(self) -> AbstractContextManager[None]:
        """The model has the moving average as its weights inside, if the job has one."""
        average = self.average or {}
        return weights_in([(p, average[name]) for name, p in self._trained() if name in average])

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    def learning_rates(self) -> dict[str, float | None]:
        """Of the last step, as `lr`, of further groups of parameters as `lr-1`, and of an optimizer
        with a name as `lr-g`.

        Empty unless the job has a LearningRateMonitor.
        """
        if not notes_learning_rates(self._job):
            return {}
        return {
            "-".join(filter(None, ("lr", phase, str(number or "")))): float(group["lr"])
            for phase, optimizer in self.optimizers.items()
            for number, group in enumerate(optimizer.param_groups)
        }

    def state(self) -> tuple[Any, Tensors]:
        """The state as JSON and tensors (not copied): equal on every replica of a stage.

        By the names of parameters, so a stage's is a part of the whole's (see `split_state`).
        """
        tensors = {f"model.{name}": tensor for name, tensor in model_tensors(self.model).items()}
        tensors |= {f"{AVERAGE}{name}": tensor for name, tensor in (self.average or {}).items()}
        tree: dict[str, Any] = {}
        for phase, optimizer in self.optimizers.items():
            key = _key("optimizer", phase)
            tree[key] = optimizer_state(optimizer, self.model, tensors, key)
        for phase, scheduler in self.schedulers.items():
            key = _key("scheduler", phase)
            tree[key] = encode(scheduler.state_dict(), key, tensors)
        if self.scaler is not None:
            tree["scaler"] = asdict(self.scaler)
        return tree, tensors

    def settled(self, tensors: Tensors) -> frozenset[str]:
        """Names in a state's tensors of those that nothing but `step` and `follow` change."""
        own = {f"model.{name}" for name, _ in self.model.named_parameters()}
        kept = (AVERAGE, *(f"{_key('optimizer', phase)}.state." for phase in self.optimizers))
        return frozenset(n for n in tensors if n in own or n.startswith(kept))

    def load_state(self, tree: Any, tensors: Tensors) -> None:
        """Become the replica whose `state` this is; a stage takes its part of it.

        The optimizers, and a stage's model, keep tensors of `tensors` as their own. An average and
        a scale that the state lacks begin anew. Raises RequestError if it is another model's, or
        its optimizers have other groups.
        """
        given = model_part(tensors)
        if self._part:
            own = model_tensors(self.model).keys()
            given = {name: tensor for name, tensor in given.items() if name in own}
        load_model_tensors(self.model, given, adopt=self._part)
        for phase, optimizer in self.optimizers.items():
            key = _key("optimizer", phase)
            if key not in tree:
                raise RequestError(
                    "the run's checkpoint is of a job with other optimizers: let their names stay "
                    "as they were"
                )
            load_optimizer_state(optimizer, self.model, tree[key], tensors)
        for phase, scheduler in self.schedulers.items():
            scheduler.load_state_dict(decode(tree[_key("scheduler", phase)], tensors))
        if self.scaler is not None and "scaler" in tree:
            self.scaler = Scaler(**tree["scaler"])
        self.begin_average()
        for name in self.average or ():
            if (kept := tensors.get(f"{AVERAGE}{name}")) is not None:
                assert self.average is not None
                self.average[name].copy_(kept)


@contextmanager
def weights_in(pairs: Sequence[tuple[nn.Parameter, torch.Tensor]]) -> Iterator[None]:
    """Parameters have other values inside, without a copy.

    Args:
        pairs: each parameter, and its values inside.
    """
    before = [parameter.data for parameter, _ in pairs]
    for parameter, values in pairs:
        parameter.data = values
    try:
        yield
    finally:
        for (parameter, _), values in zip(pairs, before, strict=True):
            parameter.data = values


#: How the names of a moving average's tensors begin in a state.
AVERAGE = "ema."


def _key(what: str, phase: str) -> str:
    """In a state's tree: `optimizer`, or `optimizer.g` of a job with several phases."""
    return f"{what}.{phase}" if phase else what


def averaged_part(tensors: Tensors) -> Tensors | None:
    """The model's tensors with the moving average in their place, by the model's names.

    Args:
        tensors: of a state.

    Returns:
        None if the state has no average.
    """
    average = {n.removeprefix(AVERAGE): t for n, t in tensors.items() if n.startswith(AVERAGE)}
    return {**model_part(tensors), **average} if average else None


def notes_learning_rates(job: Job) -> bool:
    """Whether the history has the learning rate."""
    return any(isinstance(one, LearningRateMonitor) for one in job.callbacks)


def model_part(tensors: Tensors) -> Tensors:
    """A state's tensors that are the model's, by the model's names."""
    prefix = "model."
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def compile_model(model: nn.Module) -> None:
    """Lets torch compile a model at its first pass, in place, so names stay as they are.

    Shapes are fixed: each batch of another size is compiled by itself. Nothing is tuned by timings,
    which differ each time, and no processes are started to compile in.
    """
    from torch._inductor import config

    config.compile_threads = 1
    config.max_autotune = False
    model.compile(dynamic=False)


def build_model(job: Job) -> nn.Module:
    """The job's model with its first weights, which the seed decides."""
    seed_generators(WEIGHTS, job.seed)
    model = built("model", cast("Any", job.model))
    if not isinstance(model, nn.Module):
        raise RequestError(
            f"the job's model function returned {type(model).__name__}: return a torch module"
        )
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise RequestError(
                f"the job's model has a lazy parameter {name}: give its layer all sizes, or run a "
                "sample through the model in the function that builds it"
            )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise RequestError(
                f"the job's model is on torch's meta device, where its {name} has no values: build "
                "it on the CPU in its function (model.to_empty gives memory, not weights)"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise RequestError(
            "the job's model has no parameters to train: leave requires_grad of some at True"
        )
    for name, parameter in model.named_parameters():
        if not parameter.dtype.is_floating_point and parameter.requires_grad:
            raise RequestError(
                f"the job's model has a parameter {name} of {parameter.dtype}: train real and "
                "imaginary parts as two parameters, as the workers' sums are of real numbers"
            )
        if job.ema is not None and parameter.requires_grad and parameter.itemsize < 4:
            raise RequestError(
                f"the job has ema={job.ema:g}, and its model a parameter {name} of "
                f"{parameter.dtype}, too coarse for a moving average: keep weights in float32, and "
                "compute by --precision bf16"
            )
    return model
