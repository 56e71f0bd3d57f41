"""One pass of the job's model over a batch: its loss, and what metrics are computed from."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeVar, cast

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from dayfly.errors import RequestError
from dayfly.job import Job, Step
from dayfly.training.devices import device_of
from dayfly.training.logged import Given, values_given
from dayfly.training.precision import autocast
from dayfly.training.precisions import FP32

Result = TypeVar("Result")
#: Losses of torch that divide by a number of their own, and the index that they ignore.
_WATCHED: dict[Callable[..., Any], int] = {
    F.cross_entropy: -100,
    F.nll_loss: -100,
    F.linear_cross_entropy: -100,
}


@dataclass(frozen=True, slots=True)
class Weighting:
    """How a job's losses are combined.

    Attributes:
        by: "samples"; "torch": by the denominators of torch's losses that the job's loss calls;
            "step": by the weight that the job's step returns.
        unit: the denominator of a usual sample.
        logged: names of the values that the step logs (see `training.logged`).
    """

    by: Literal["samples", "torch", "step"] = "samples"
    unit: float = 1.0
    logged: tuple[str, ...] = ()

    @property
    def own(self) -> bool:
        """Whether the loss has a denominator of its own."""
        return self.by != "samples"

    def watched(self, call: Callable[[], Result]) -> tuple[Result, float | None]:
        """What a call of the loss returns, and its denominator if that is torch's to know."""
        if self.by != "torch":
            return call(), None
        with Watch() as watch:
            result = call()
        return result, watch.denominator()

    def relative(self, weight: float | None, samples: int) -> float:
        """d_p / (unit * samples_p): how a part's denominator compares with the usual one.

        Args:
            weight: d_p, from `Passed.weight`.
            samples: samples_p.

        Raises:
            RequestError: the loss has a denominator of its own, and this one does not say it.
        """
        if not self.own:
            return 1.0
        if weight is None:
            missing = (
                "its step returned no weight: return it of every batch"
                if self.by == "step"
                else "it called none of torch's losses that have one: let it call the same always"
            )
            raise RequestError(f"the job's loss has a denominator of its own, and {missing}")
        return weight / (self.unit * samples)

    def denominator(self, weight: float | None, samples: int) -> float:
        """d_p in usual samples; of a mean over samples, their number."""
        return self.relative(weight, samples) * samples


#: Of a mean over samples.
SAMPLES = Weighting()


@dataclass(slots=True)
class Weights:
    """The weights of parts whose denominators become known one after another.

    Attributes:
        weight: their sum.
        usual: whether all denominators were so far.
    """

    weighting: Weighting
    weight: float = 0.0
    usual: bool = True

    def part(self, share: float, weight: float | None, samples: int) -> float:
        """The weight w_p of a part, a share of the samples of the whole; 0: it has no say."""
        relative = self.weighting.relative(weight, samples)
        self.usual = self.usual and relative == 1.0
        self.weight += share * relative
        return share * relative

    @property
    def tail(self) -> list[float]:
        """What is summed over the workers beside loss and gradients; nothing for means over
        samples."""
        return [self.weight, float(not self.usual)] if self.weighting.own else []


def divide(
    loss: float, tail: list[float], gradients: Callable[[], Iterable[torch.Tensor]]
) -> float:
    """Divides what was summed over all parts by the sum of their weights.

    Nothing is done if all of these are numbers of samples.

    Args:
        loss: summed.
        tail: `Weights.tail`, summed.
        gradients: returns those that are to be divided, in place.

    Returns:
        The loss of the whole; NaN if no part had a weight, as torch gives it.
    """
    if not tail or not tail[1]:
        return loss
    weight = tail[0]
    if not weight:
        return float("nan")
    for gradient in gradients():
        gradient.div_(weight)
    return loss / weight


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of torch's losses.

    Attributes:
        denominator: what it divides by.
        targets: how many it was given.
        own: whether it was given class weights, or an index to ignore, or targets that it ignored.
    """

    denominator: float
    targets: int
    own: bool


class Watch(TorchFunctionMode):
    """Notes which of torch's losses are called inside, and what they divide by."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        result = func(*args, **given)
        if func in _WATCHED and (call := _call(func, args, given)) is not None:
            self.calls.append(call)
        return result

    def denominator(self) -> float | None:
        """What the loss inside divides by; None if it called none of these losses.

        Raises:
            RequestError: it called several, that divide by different numbers.
        """
        found = {call.denominator for call in self.calls}
        if len(found) > 1:
            raise RequestError(
                "the job's loss adds up several of torch's losses with different denominators "
                f"({', '.join(f'{one:g}' for one in sorted(found)[:3])}), so parts of a batch "
                "cannot be combined: let all have the same class weights and ignored targets, or "
                "take their means over the samples"
            )
        return next(iter(found), None)


@cache
def _signature(func: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(func)


@torch.no_grad()
def _call(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Call | None:
    """What a loss has divided by; None if it takes no mean of its own."""
    bound = _signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    if given.get("size_average") is False or given.get("reduce") is False:
        return None
    target, weight = given["target"], given.get("weight")
    if given["reduction"] != "mean" or target.is_floating_point():
        return None  # of probabilities of classes torch takes the mean over the samples
    ignored = given["ignore_index"]
    if ignored is None:
        ignored = _WATCHED[func]
    counted = target != ignored
    if weight is None:
        denominator = float(counted.sum().item())
    else:
        denominator = float(weight.double()[target[counted]].sum().item())
    own = weight is not None or ignored != _WATCHED[func] or not bool(counted.all())
    return Call(denominator, target.numel(), own)


#: What a step of the user's own may return in a mapping.
_KEYS = {"loss", "outputs", "targets", "weight", "log"}
#: Under which models of Hugging Face have their outputs.
LOGITS = "logits"
#: Under which a batch that is a mapping may have its targets, in the order in which they are tried.
TARGET_KEYS = ("targets", "target", "labels", "label", "y")


@dataclass(frozen=True, slots=True)
class Passed:
    """A batch that passed the model.

    Attributes:
        loss: a tensor of one number.
        outputs, targets: None if nobody says what they are.
        weight: what the loss was divided by, such as the sum of its samples' class weights; None:
            its samples, or nobody asked.
        logged: values that the step logs, see `training.logged.values_given`.
    """

    loss: torch.Tensor
    outputs: Any
    targets: Any
    weight: float | None = None
    logged: Mapping[str, Given] = field(default_factory=dict)


def forward(
    job: Job,
    model: nn.Module,
    batch: Any,
    weighting: Weighting = SAMPLES,
    precision: str = FP32,
) -> Passed:
    """Runs the model and the loss on a batch.

    Args:
        job: whose `loss`, or `step`, is computed; of several phases, each (see `_of_phases`).
        model: in the mode that is wanted.
        batch: (x, y), or what the job's step takes; on the model's device.
        weighting: how losses of batches are combined; decides whether `weight` is found.
        precision: see `training.precision`.

    Raises:
        RequestError: the step returned something that it cannot mean.
    """
    if job.phases != ("",):
        phases = [job.phase(phase) for phase in job.phases]
        return _of_phases([forward(one, model, batch, weighting, precision) for one in phases])
    with autocast(precision, device_of(model)):
        passed = _pass(job, model, batch, weighting)
        return passed if precision == FP32 else replace(passed, loss=passed.loss.float())


def _pass(job: Job, model: nn.Module, batch: Any, weighting: Weighting) -> Passed:
    if job.step is None:
        y = targets_of(batch)
        outputs = outputs_of(model, batch)
        loss, weight = weighting.watched(lambda: cast("Any", job.loss)(outputs, y))
        return Passed(loss, outputs, y, weight)
    step = cast("Step", job.step)
    result, weight = weighting.watched(lambda: step(model, batch))
    return of_step(result, targets_of(batch), weight)


def _of_phases(passed: Sequence[Passed]) -> Passed:
    """The phases of a step as one: the sum of their losses; the last outputs and targets."""
    if len({one.weight for one in passed}) > 1:
        raise RequestError(
            "the phases of the job's step divide their losses by different numbers, so they cannot "
            "be validated together: take means over the samples in all of them"
        )
    names = Counter(name for one in passed for name in one.logged)
    if twice := [name for name, times in names.items() if times > 1]:
        raise RequestError(
            f"several phases of the job's step log {twice[0]!r}: give each a name of its own"
        )
    known = [one for one in passed if one.outputs is not None] or passed
    loss = sum((one.loss for one in passed[1:]), passed[0].loss)
    logged = {name: given for one in passed for name, given in one.logged.items()}
    return Passed(loss, known[-1].outputs, known[-1].targets, passed[-1].weight, logged)


def outputs_of(model: nn.Module, batch: Any) -> Any:
    """What the model makes of a batch without its targets: x of (x, y), or a mapping by keywords.

    Of a mapping that it returns, such as a ModelOutput of Hugging Face, the `logits`.
    """
    if isinstance(batch, Mapping):
        target = next((key for key in TARGET_KEYS if key in batch), None)
        outputs = model(**{key: value for key, value in batch.items() if key != target})
    else:
        outputs = model(batch[0])
    is_output = isinstance(outputs, Mapping) and LOGITS in outputs
    return outputs[LOGITS] if is_output else outputs


def targets_of(batch: Any) -> Any:
    """The targets of a batch: y of (x, y), or the value of a mapping's `targets`, `target`,
    `labels`, `label` or `y`; None if it has none of these."""
    if isinstance(batch, Mapping):
        return next((batch[key] for key in TARGET_KEYS if key in batch), None)
    return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None


def of_step(result: Any, targets: Any, weight: float | None) -> Passed:
    """Returns what a job's step means by its result.

    Args:
        result: a loss, (loss, outputs), or a mapping.
        targets: of the batch, unless the result has its own.
        weight: the loss's denominator, unless the result has its own.

    Raises:
        RequestError: it is none of these.
    """
    if isinstance(result, Mapping) and "loss" in result and LOGITS in result:
        return Passed(result["loss"], result[LOGITS], targets, weight)
    if isinstance(result, Mapping):
        unknown = sorted(str(key) for key in result.keys() - _KEYS)
        if unknown or "loss" not in result:
            wrong = f"has {', '.join(unknown)}" if unknown else "has no loss"
            raise RequestError(
                f"the job's step returned a mapping that {wrong}: return loss, and of outputs, "
                "targets, weight and log those that are known"
            )
        if result.get("weight") is not None:
            weight = _own_weight(result["weight"])
        logged = values_given(result.get("log", {}))
        targets = result.get("targets", targets)
        return Passed(result["loss"], result.get("outputs"), targets, weight, logged)
    if not isinstance(result, tuple):
        return Passed(result, None, targets, weight)
    if len(result) != 2:
        raise RequestError(
            f"the job's step returned a tuple of {len(result)}: return the loss, (loss, outputs), "
            "or a mapping of loss, outputs, targets, weight and log"
        )
    return Passed(*result, targets, weight)


def _own_weight(given: Any) -> float:
    """The weight that a step returned."""
    try:
        weight = float(given)
    except (TypeError, ValueError, RuntimeError):
        weight = -1.0
    if not 0.0 <= weight < float("inf"):
        what = given if isinstance(given, (int, float)) else type(given).__name__
        raise RequestError(
            f"the job's step returned the weight {what}: return what the loss was divided by, a "
            "number from 0"
        )
    return weight
