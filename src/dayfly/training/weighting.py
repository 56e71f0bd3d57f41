"""How losses of parts of a batch become the batch's: by samples, or by denominators of their own.

    loss of a batch = sum of d_p * loss_p / sum of d_p,  and so its gradient;   p: a part

A mean over samples has d_p = its samples. torch's cross_entropy and nll_loss divide by the sum of
their targets' class weights, and leave out targets that are ignored; so d_p depends on the targets,
and its sum over all workers is known only after all have computed. A worker weights by

    w_p = samples_p / samples * d_p / (unit * samples_p),   unit: d of a usual sample

and sends the sum of its w_p with its gradients: what all workers summed is divided by that. In a
batch in which all d_p are usual, nothing is divided, and the bits are those of a mean over samples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from dayfly.errors import RequestError

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

    by: "samples"; "torch": by the denominators of torch's losses that the job's loss calls;
    "step": by the weight that the job's step returns. unit: the denominator of a usual sample.
    """

    by: Literal["samples", "torch", "step"] = "samples"
    unit: float = 1.0

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

    weight: their sum. usual: whether all denominators were so far.
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
    """Divides what was summed over all parts by the sum of their weights, if any was unusual.

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

    denominator: what it divides by. targets: how many it was given. own: whether it was given class
    weights, or an index to ignore, or targets that it ignored.
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
