"""A job's optimizers and schedulers: made, and kept by the names of parameters.

A stage's state is a part of the whole's, so it can be cut out of it (`split_state`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.training.state import Tensors, decode, encode


def build_optimizer(job: Job, phase: str, model: nn.Module) -> torch.optim.Optimizer:
    """A phase's optimizer over the model's trainable parameters.

    Args:
        job: whose optimizer it is.
        phase: its name; "": the job has one optimizer.
        model: of the job, or a stage of it.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    name = f"optimizer {phase}".rstrip()
    optimizer = built(name, job.of_phase("optimizer", phase), model if phase else parameters)
    return check_optimizer(optimizer, model.parameters() if phase else parameters)


def check_optimizer(
    optimizer: Any, given: Iterable[nn.Parameter], name: str = "optimizer"
) -> torch.optim.Optimizer:
    """Returns what a function of the job's made, if workers can take steps with it.

    Args:
        optimizer: what it made.
        given: parameters that it may have.
        name: of the job's field.

    Raises:
        RequestError: it is no optimizer of these parameters, or one that workers cannot share.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise RequestError(
            f"the job's {name} function returned {type(optimizer).__name__}: "
            "return a torch optimizer"
        )
    known = {id(parameter) for parameter in given}
    if any(id(p) not in known for group in optimizer.param_groups for p in group["params"]):
        raise RequestError(
            f"the job's {name} has parameters that are not those of the job's model: "
            f"build it from what its function is given ({name}=lambda params: ...)"
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


def build_scheduler(job: Job, phase: str, optimizer: torch.optim.Optimizer) -> Any:
    """A phase's scheduler of its optimizer, if it has one."""
    build = job.of_phase("scheduler", phase)
    if build is None:
        return None
    scheduler = built("scheduler", build, optimizer)
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


def built(what: str, build: Any, *arguments: Any) -> Any:
    """What a function of the job's returns. Raises RequestError, saying what cannot be built."""
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


def optimizer_state(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Tensors, key: str = "optimizer"
) -> Any:
    """The state as JSON; its tensors go into `tensors`, not copied, by names that begin with `key`.

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
            encode(group, f"{key}.groups.{number}", tensors) for number, group in enumerate(hyper)
        ],
        "group_of": _group_of(numbers),
        "state": {
            name: encode(kept[number], f"{key}.state.{name}", tensors)
            for number, name in known.items()
            if number in kept
        },
        "common": encode(common, f"{key}.common", tensors),
        "rest": encode(rest, f"{key}.rest", tensors),
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
    # Of parameters that are frozen now, or were when the state was kept, there is none to take.
    now, kept_of = _group_of(numbers), tree["group_of"]
    both = now.keys() & kept_of.keys()
    placed = {name: group for name, group in now.items() if name in both}
    _check_placing(tree, both, len(numbers), placed, "this model")
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

    Hyperparameters and the scheduler's state are every stage's. What is in no replica's state, such
    as a compression's, is left out.

    Args:
        names: of the stage's parameters and buffers.

    Raises:
        RequestError: if a name is not in the state.
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
    own = {f"{kind}.{name}" for kind in ("model", "ema") for name in names}.union(_referred(part))
    return part, {name: tensor for name, tensor in tensors.items() if name in own}


def check_groups(
    whole: tuple[Any, Tensors], stage: tuple[Any, Tensors], name: str = "a stage"
) -> None:
    """Raise RequestError if a stage's optimizer treats its parameters otherwise than the whole's.

    Both are the `state` of a replica just made.

    Args:
        name: of the stage, for the sentence.
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
