"""One worker's copy of the training: model, optimizer and scheduler, and their state.

How replicas become one again, after every step or every few, is the protocol's: synchronous.py,
local_sgd.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dayfly.callbacks.usual import LearningRateMonitor
from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.training.devices import CPU
from dayfly.training.randomness import WEIGHTS, seed_generators
from dayfly.training.state import Tensors, decode, encode, load_model_tensors, model_tensors


@dataclass(slots=True)
class Wishes:
    """What workers want done after the step; each is granted if any worker wants it."""

    checkpoint: bool = False
    stop: bool = False


class Replica:
    """A job's model and optimizer in one worker, or a stage's of it.

    optimizer, scheduler: None if a stage has no parameters to train.
    """

    def __init__(
        self, job: Job, model: nn.Module | None = None, device: torch.device = CPU
    ) -> None:
        """model: a stage's, whose parameters and buffers have the whole model's names. device: to
        which the model is moved."""
        self._job = job
        self._part = model is not None
        self.device = device
        # Built on the CPU: the first weights are the same wherever they go.
        self.model = (build_model(job) if model is None else model).to(device)
        self.optimizer: torch.optim.Optimizer | None = None
        self.scheduler: Any = None
        if any(parameter.requires_grad for parameter in self.model.parameters()):
            self.optimizer = build_optimizer(job, self.model)
            self.scheduler = build_scheduler(job, self.optimizer)

    def step(self) -> None:
        """Take the optimizer's step, by the gradients that the parameters have."""
        if self.optimizer is not None:
            self.optimizer.step()

    def end_step(self) -> None:
        """Step a scheduler that goes by steps."""
        if self.scheduler is not None and self._job.scheduler_every == "step":
            self.scheduler.step()

    def end_epoch(self, val_loss: float | None) -> None:
        """Step a scheduler that goes by epochs."""
        if self.scheduler is None or self._job.scheduler_every != "epoch":
            return
        if isinstance(self.scheduler, ReduceLROnPlateau):
            if val_loss is not None:
                self.scheduler.step(val_loss)
        else:
            self.scheduler.step()

    def learning_rates(self) -> dict[str, float | None]:
        """Of the last step, as `lr`, and of further groups of parameters as `lr-1` and so on.

        Empty unless the job has a LearningRateMonitor.
        """
        if self.optimizer is None or not notes_learning_rates(self._job):
            return {}
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        return {f"lr-{n}" if n else "lr": rate for n, rate in enumerate(rates)}

    def state(self) -> tuple[Any, Tensors]:
        """The state as JSON and tensors (not copied): equal on every replica of a stage.

        By the names of parameters, so a stage's is a part of the whole's (see `split_state`).
        """
        tensors = {f"model.{name}": tensor for name, tensor in model_tensors(self.model).items()}
        tree = {}
        if self.optimizer is not None:
            tree["optimizer"] = optimizer_state(self.optimizer, self.model, tensors)
        if self.scheduler is not None:
            tree["scheduler"] = encode(self.scheduler.state_dict(), "scheduler", tensors)
        return tree, tensors

    def settled(self, tensors: Tensors) -> frozenset[str]:
        """Names in a state's tensors of those that nothing but `step` changes."""
        own = {f"model.{name}" for name, _ in self.model.named_parameters()}
        return frozenset(n for n in tensors if n in own or n.startswith("optimizer.state."))

    def load_state(self, tree: Any, tensors: Tensors) -> None:
        """Become the replica whose `state` this is; a stage takes its part of it.

        The optimizer, and a stage's model, keep tensors of `tensors` as their own. Raises
        RequestError if it is another model's, or its optimizer has other groups.
        """
        given = model_part(tensors)
        if self._part:
            own = model_tensors(self.model).keys()
            given = {name: tensor for name, tensor in given.items() if name in own}
        load_model_tensors(self.model, given, adopt=self._part)
        if self.optimizer is not None:
            load_optimizer_state(self.optimizer, self.model, tree["optimizer"], tensors)
        if self.scheduler is not None:
            self.scheduler.load_state_dict(decode(tree["scheduler"], tensors))


def notes_learning_rates(job: Job) -> bool:
    """Whether the history has the learning rate."""
    return any(isinstance(one, LearningRateMonitor) for one in job.callbacks)


def model_part(tensors: Tensors) -> Tensors:
    """A state's tensors that are the model's, by the model's names."""
    prefix = "model."
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def build_model(job: Job) -> nn.Module:
    """The job's model with its first weights, which the seed decides."""
    seed_generators(WEIGHTS, job.seed)
    model = _built("model", cast("Any", job.model))
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
    return model


def build_optimizer(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    """The job's optimizer over the model's trainable parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = _built("optimizer", cast("Any", job.optimizer), parameters)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise RequestError(
            f"the job's optimizer function returned {type(optimizer).__name__}: "
            "return a torch optimizer"
        )
    given = {id(parameter) for parameter in parameters}
    if any(id(p) not in given for group in optimizer.param_groups for p in group["params"]):
        raise RequestError(
            "the job's optimizer has parameters that are not those of the job's model: "
            "build it from what its function is given (optimizer=lambda params: ...)"
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise RequestError(
            "SparseAdam needs sparse gradients, which are not supported: use Adam or AdamW"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise RequestError(
            "LBFGS evaluates the loss several times a step, which workers cannot share: "
            "use a first-order optimizer such as SGD or AdamW"
        )
    return optimizer


def build_scheduler(job: Job, optimizer: torch.optim.Optimizer) -> Any:
    """The job's scheduler of the optimizer, if it has one."""
    if job.scheduler is None:
        return None
    scheduler = _built("scheduler", job.scheduler, optimizer)
    if not (hasattr(scheduler, "step") and hasattr(scheduler, "state_dict")):
        raise RequestError(
            f"the job's scheduler function returned {type(scheduler).__name__}: "
            "return a torch learning-rate scheduler"
        )
    if isinstance(scheduler, ReduceLROnPlateau) and job.scheduler_every == "step":
        raise RequestError(
            "the job's scheduler is a ReduceLROnPlateau, which goes by the validation loss: "
            'give scheduler_every="epoch"'
        )
    return scheduler


def _built(what: str, build: Any, *arguments: Any) -> Any:
    try:
        return build(*arguments)
    except DayflyError:
        raise
    except Exception as error:
        raise RequestError(f"the job's {what} cannot be built: {in_short(error)}") from error


#: What is of a group's parameters, not of the group.
_OF_PARAMETERS = ("params", "param_names")
_ADVICE = (
    "let its function make the same groups of any stage's parameters, empty ones too, and choose "
    "a parameter's group by the parameter alone, such as by its shape"
)


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Tensors) -> Any:
    """The state as JSON; its tensors go into `tensors`, not copied.

    Parameters are in the optimizer's order. Raises RequestError for what cannot be kept.
    """
    whole = optimizer.state_dict()
    numbers, groups = _numbers(optimizer, model, whole), whole["param_groups"]
    hyper = [{k: v for k, v in group.items() if k not in _OF_PARAMETERS} for group in groups]
    known = {number: name for names in numbers for name, number in names.items()}
    kept = whole["state"]
    common = {key: value for key, value in kept.items() if key not in known}
    rest = {key: value for key, value in whole.items() if key not in ("state", "param_groups")}
    return {
        "groups": [
            encode(group, f"optimizer.groups.{number}", tensors)
            for number, group in enumerate(hyper)
        ],
        "group_of": _group_of(numbers),
        "state": {
            name: encode(kept[number], f"optimizer.state.{name}", tensors)
            for number, name in known.items()
            if number in kept
        },
        "common": encode(common, "optimizer.common", tensors),
        "rest": encode(rest, "optimizer.rest", tensors),
    }


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, model: nn.Module, tree: Any, tensors: Mapping[str, Any]
) -> None:
    """Take from `optimizer_state`, of this model or a larger one, what is of this optimizer's.

    Raises RequestError if its groups are others.
    """
    if "groups" not in tree:
        raise RequestError(
            "the run's checkpoint was written by an earlier version of dayfly, which kept "
            "optimizers in another form: start the run anew, or go on with that version"
        )
    whole = optimizer.state_dict()
    numbers = _numbers(optimizer, model, whole)
    own = {name for name, _ in model.named_parameters()}
    _check_placing(tree, own, len(numbers), _group_of(numbers), "this model")
    state = {
        number: decode(tree["state"][name], tensors)
        for names in numbers
        for name, number in names.items()
        if name in tree["state"]
    }
    groups = [
        {**decode(saved, tensors), **{k: own[k] for k in _OF_PARAMETERS if k in own}}
        for saved, own in zip(tree["groups"], whole["param_groups"], strict=True)
    ]
    rest = decode(tree["rest"], tensors)
    kept = {**state, **decode(tree["common"], tensors)}
    optimizer.load_state_dict({**rest, "state": kept, "param_groups": groups})
    _undo_casts(optimizer, groups, state)


def split_state(tree: Any, tensors: Tensors, names: Collection[str]) -> tuple[Any, Tensors]:
    """A stage's part of the whole replica's `state` (not copied).

    names: of the stage's parameters and buffers. Hyperparameters and the scheduler's state are
    every stage's. What is in no replica's state, such as a compression's, is left out. Raises
    RequestError if a name is not in the state.
    """
    optimizer = tree["optimizer"]
    part = {
        **tree,
        "optimizer": {
            **optimizer,
            "group_of": {n: g for n, g in optimizer["group_of"].items() if n in names},
            "state": {n: kept for n, kept in optimizer["state"].items() if n in names},
        },
    }
    missing = sorted(name for name in names if f"model.{name}" not in tensors)
    if missing:
        raise RequestError(f"the weights are another model's: {', '.join(missing[:3])} differ")
    own = {f"model.{name}" for name in names}.union(_referred(part))
    return part, {name: tensor for name, tensor in tensors.items() if name in own}


def check_groups(
    whole: tuple[Any, Tensors], stage: tuple[Any, Tensors], name: str = "a stage"
) -> None:
    """Raise RequestError if a stage's optimizer treats its parameters otherwise than the whole's.

    Both are the `state` of a replica just made. name: of the stage, for the sentence.
    """
    (tree, tensors), (its_tree, its_tensors) = whole, stage
    if "optimizer" not in its_tree:
        return  # nothing to train
    expected, made = tree["optimizer"], its_tree["optimizer"]
    own = {n.removeprefix("model.") for n in its_tensors if n.startswith("model.")}
    _check_placing(expected, own, len(made["groups"]), made["group_of"], name)
    for number, (one, other) in enumerate(zip(expected["groups"], made["groups"], strict=True)):
        if one != other or not all(
            torch.equal(tensors[path], its_tensors[path]) for path in _referred(one)
        ):
            raise RequestError(
                f"the job's optimizer has other hyperparameters for {name} than for the whole "
                f"model, in its group {number}: {_ADVICE}"
            )


def _check_placing(
    tree: Any, own: Collection[str], groups: int, group_of: Mapping[str, int], name: str
) -> None:
    """Raise RequestError unless `own` parameters are in the groups of the whole model's state."""
    if groups != (expected := len(tree["groups"])):
        raise RequestError(
            f"the job's optimizer has {groups} groups of parameters for {name}, but {expected} for "
            f"the whole model: {_ADVICE}"
        )
    should = {name: group for name, group in tree["group_of"].items() if name in own}
    if should != group_of:
        first = min(should.items() ^ group_of.items())[0]
        raise RequestError(
            f"the job's optimizer has {first} in {_group(group_of.get(first))} for {name}, but in "
            f"{_group(should.get(first))} for the whole model: {_ADVICE}"
        )


def _group(number: int | None) -> str:
    return "no group" if number is None else f"group {number}"


def _group_of(numbers: Sequence[Iterable[str]]) -> dict[str, int]:
    return {name: group for group, names in enumerate(numbers) for name in names}


def _numbers(
    optimizer: torch.optim.Optimizer, model: nn.Module, whole: Any
) -> list[dict[str, int]]:
    """Of each group: names of its parameters, with their numbers in the optimizer's state dict."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        {names[id(p)]: number for p, number in zip(own["params"], packed["params"], strict=True)}
        for own, packed in zip(optimizer.param_groups, whole["param_groups"], strict=True)
    ]


def _undo_casts(optimizer: torch.optim.Optimizer, groups: Any, state: Mapping[int, Any]) -> None:
    """`load_state_dict` casts a parameter's state to its dtype; take the saved bits instead."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [number for group in groups for number in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        for key, saved in state.get(number, {}).items():
            loaded = optimizer.state[parameter].get(key)
            both = isinstance(saved, torch.Tensor) and isinstance(loaded, torch.Tensor)
            if both and loaded.dtype is not saved.dtype:
                optimizer.state[parameter][key] = saved.to(loaded.device)


def _referred(tree: Any) -> Iterator[str]:
    """Names of the tensors that a tree of `encode` refers to."""
    if isinstance(tree, list):
        for item in tree:
            yield from _referred(item)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            if key == "$tensor" and isinstance(value, str):
                yield value
            else:
                yield from _referred(value)
