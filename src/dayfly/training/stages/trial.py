"""Stages built alone, as workers build them, beside the whole model: do they compute the same?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.job import Job
from dayfly.training.devices import CPU
from dayfly.training.precision import autocast
from dayfly.training.precisions import FP32
from dayfly.training.randomness import DROPOUT, EVALUATE, seeded
from dayfly.training.stages.forms import BoundaryForm, Node, TensorForm, Values
from dayfly.training.stages.layers import StageModel, build_stage
from dayfly.training.state import load_model_tensors, model_tensors

Result = TypeVar("Result")

#: What to do if a stage is not what its layers are in the whole model.
_OWN_ONLY = (
    "let its layers use only what they are given and their own submodules, parameters and buffers"
)


def stage_alone(job: Job, model: nn.Module, cut: Sequence[int], stage: int) -> StageModel:
    """A stage as a worker builds it, with the model's tensors."""
    built = _alone(stage, lambda: build_stage(job, cut, stage))
    whole, own = model_tensors(model), model_tensors(built.model)
    load_model_tensors(built.model, {name: whole[name] for name in own})
    return built


def check_evaluation(
    job: Job, built: Sequence[StageModel], passed: Sequence[Values], precision: str = FP32
) -> None:
    """Refuse stages that give another result than the whole model's layers."""
    x = copied(passed[0])
    with torch.no_grad(), seeded(EVALUATE, job.seed), autocast(precision, CPU):
        for stage, one in enumerate(built):
            one.model.eval()
            x = _forward(one, stage, x)
            if not same(x, passed[stage + 1]):
                raise RequestError(
                    f"stage {stage} of the job's model gives another result when it is built "
                    f"alone: {_OWN_ONLY}"
                )


def trained(
    job: Job,
    model: nn.Module,
    built: Sequence[StageModel],
    forms: Sequence[BoundaryForm],
    batch: Any,
    precision: str = FP32,
) -> tuple[BoundaryForm, ...]:
    """Take one step by the stages and by the whole model, and compare.

    Returns the forms with whether gradients come back.
    """
    (x, y), samples = batch, _samples(batch)
    expected, gradients = _whole(job, model, copied(x), y, precision)
    found: list[BoundaryForm] = []
    entered: list[list[torch.Tensor]] = []
    left: list[Values] = []
    with seeded(DROPOUT, job.seed, 0):
        for stage, one in enumerate(built):
            if stage:
                number = one.layers[0][0] - 1
                found.append(_with_gradients(forms[stage - 1], left[-1], number))
                message = found[-1].pack(left[-1]).clone()  # another function's memory
                leaves, x = found[-1].enter(found[-1].unpack(message, samples))
                entered.append(leaves)
            one.model.train()
            with autocast(precision, CPU):
                left.append(_forward(one, stage, x))
    if not same(left[-1], expected):
        raise RequestError(
            "the job's model cannot be cut, as its layers applied one after another give another "
            "result in training mode than its forward: let forward do the same in both modes, but "
            "for what its layers do"
        )
    _backward(len(found), [_loss(job, left[-1], y, precision)], [None])
    for stage in reversed(range(len(found))):
        form = found[stage]
        message = form.pack_gradients([leaf.grad for leaf in entered[stage]], samples)
        _backward(stage, form.graded(left[stage]), form.unpack_gradients(message, samples))
    for stage, one in enumerate(built):
        _check_gradients(one, stage, gradients)
    return tuple(found)


def _whole(
    job: Job, model: nn.Module, x: Any, y: Any, precision: str
) -> tuple[Any, dict[str, torch.Tensor | None]]:
    """The whole model's output in training mode, and its gradients by name."""
    model.train()
    model.zero_grad()
    with seeded(DROPOUT, job.seed, 0), autocast(precision, CPU):
        outputs = attempt("its model fails", lambda: model(x))
    kept = copied(outputs)
    attempt("its backward pass fails", _loss(job, outputs, y, precision).backward)
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    return kept, gradients


def _loss(job: Job, outputs: Any, y: Any, precision: str) -> torch.Tensor:
    with autocast(precision, CPU):
        loss = attempt("its loss fails", lambda: cast("Any", job.loss)(outputs, y))
    if not isinstance(loss, torch.Tensor) or loss.ndim != 0 or not loss.requires_grad:
        raise RequestError(
            "the job's loss gives no number that depends on the parameters: take the mean over "
            "the samples"
        )
    return loss


def _forward(built: StageModel, stage: int, values: Values) -> Values:
    def applied() -> Values:
        result = values
        for _, layer in built.layers:
            result = layer(result)
        return result

    return _alone(stage, applied)


def _backward(
    stage: int, tensors: list[torch.Tensor], gradients: Sequence[torch.Tensor | None]
) -> None:
    if tensors:
        _alone(stage, lambda: torch.autograd.backward(tensors, gradients))


def _check_gradients(
    built: StageModel, stage: int, gradients: dict[str, torch.Tensor | None]
) -> None:
    """Rounding may differ, as where gradients of one tensor are summed in another order."""
    for name, parameter in built.model.named_parameters():
        one, whole = (
            torch.zeros_like(parameter) if grad is None else grad.to_dense()
            for grad in (parameter.grad, gradients[name])
        )
        least = 1e-5 * float(whole.abs().max()) if whole.numel() else 0.0
        if not torch.allclose(one, whole, rtol=1e-3, atol=least, equal_nan=True):
            raise RequestError(
                f"stage {stage} of the job's model gives another gradient of {name} when it is "
                f"built alone: {_OWN_ONLY}"
            )


def _with_gradients(form: BoundaryForm, values: Values, number: int) -> BoundaryForm:
    """The form with whether gradients come back, which training mode tells."""
    try:
        flags = iter([tensor.requires_grad for tensor in form.flatten(values)])
    except DayflyError as error:
        raise RequestError(
            f"layer {number} of the job's model returns another form in training mode than in "
            f"evaluation: {error}"
        ) from error

    def marked(node: Node) -> Node:
        if isinstance(node, TensorForm):
            return replace(node, gradient=next(flags))
        return replace(node, items=tuple(map(marked, node.items)))

    return BoundaryForm(marked(form.root))


def _samples(batch: Any) -> int:
    return len(tree_leaves(batch)[0])


def copied(values: Any) -> Any:
    """Values whose tensors are copies, out of autograd's sight."""

    def one(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    return tree_map(one, values)


def same(values: Any, others: Any) -> bool:
    """Whether two results hold the same tensors, but for rounding."""
    ones, twos = (
        [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        for result in (values, others)
    )
    if len(ones) != len(twos):
        return False
    try:
        for one, two in zip(ones, twos, strict=True):
            torch.testing.assert_close(one, two, equal_nan=True, check_stride=False)
    except AssertionError:
        return False
    return True


def _alone(stage: int, action: Callable[[], Result]) -> Result:
    """An action on a stage that is built alone."""
    try:
        return action()
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(
            f"stage {stage} of the job's model fails when it is built alone: "
            f"{in_short(error).rstrip('.')}: {_OWN_ONLY}"
        ) from error


def attempt(what: str, action: Callable[[], Result]) -> Result:
    """What the user's code gives. Raises RequestError, saying what failed."""
    try:
        return action()
    except DayflyError:
        raise
    except Exception as error:
        raise RequestError(f"the job fails on one batch: {what}: {in_short(error)}") from error
