"""Finds, before anything starts, how a job's losses of parts of a batch become the batch's.

The loss of a few samples must be the weighted mean of their parts' losses: by samples, by the
denominators of torch's losses that it calls, or by the weight that the job's step returns (see
`weighting`). A loss of outputs is compared on the same outputs, whole and cut in two at several
places, and so are its gradients by the outputs, as losses may be equal by chance (those of a last
layer of zeros are). A step can only be called as a whole, in evaluation mode, so its losses alone
are compared. A loss that draws random numbers differs by itself: it is taken for a mean over its
samples. What a step logs is tried in the same way: a value without a weight is a mean over samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import default_collate

from dayfly.errors import DayflyError, RequestError
from dayfly.job import Job
from dayfly.training.forward import SAMPLES, Call, Passed, Watch, Weighting, forward
from dayfly.training.logged import TRAIN, VAL, Given, numbers_of
from dayfly.training.randomness import EVALUATE, seeded

#: How far a combined loss, or a gradient, may be from the whole's, of the largest of them.
_TOLERANCE = 2e-3

#: What to do about a loss that is no mean.
_WAY_OUT = (
    "make it their mean, or give the job a step that returns a mapping of loss, outputs, targets "
    "and weight, which is what the loss was divided by"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """The loss of some of the samples tried.

    Attributes:
        samples: how many.
        calls: of torch's losses.
        gradients: by the outputs, of these samples' rows; none of a step.
    """

    samples: int
    loss: float
    calls: Sequence[Call]
    gradients: Sequence[torch.Tensor]

    @property
    def denominator(self) -> float | None:
        """What torch's losses divided by; None if it called none, or several that differ."""
        found = {call.denominator for call in self.calls}
        return found.pop() if len(found) == 1 else None

    @property
    def may_differ(self) -> bool:
        """Whether the denominator is known to be another than the samples, or may be elsewhere."""
        return any(call.own or call.targets != self.samples for call in self.calls)


#: The loss of samples from one to before another, with random numbers of a seed.
_LossOf = Callable[[int, int, int], _Part]


def weighting_of(
    job: Job, model: nn.Module, samples: Sequence[Any], logged: Sequence[str] = ()
) -> Weighting:
    """Returns how the losses of parts of a batch, and what its step logs, are combined.

    Args:
        job: whose loss, or step, is tried.
        model: put into evaluation mode.
        samples: a few, as the data has them.
        logged: names that the step logs in training.

    Raises:
        RequestError: the loss is no weighted mean over its samples, or a value that is logged is
            none.
    """
    model.eval()
    several = list(samples) if len(samples) > 1 else list(samples) * 2
    with seeded(EVALUATE, job.seed), torch.no_grad():
        first = forward(job, model, default_collate(several))
    names = tuple(dict.fromkeys((*logged, *first.logged)))
    _check_names(job, names)
    _check_logged(job, model, several, first.logged)
    return replace(_of_loss(job, model, several, first), logged=names)


def _of_loss(job: Job, model: nn.Module, several: Sequence[Any], first: Passed) -> Weighting:
    """How losses are combined. first: what all of the samples gave."""
    count = len(several)
    if first.weight is not None:
        # Whoever says what the loss was divided by is believed.
        return Weighting("step", first.weight / count or 1.0)
    loss_of = _as_a_whole(job, model, several)
    if job.step is None:
        of_outputs = _of_outputs(job, first.outputs, first.targets)
        if _tried(of_outputs, 0, count // 2) is not None:  # else not cut sample by sample
            loss_of = of_outputs
    whole = loss_of(0, count, 0)
    torchs = Weighting("torch", (whole.denominator or 0.0) / count or 1.0)
    again = loss_of(0, count, 1).loss
    if not math.isclose(whole.loss, again, rel_tol=1e-5, abs_tol=1e-7):
        return torchs if whole.may_differ else SAMPLES
    cuts = [_cut(loss_of, at, count) for at in sorted({1, count // 2, count - 1})]
    pairs = [pair for pair in cuts if pair is not None]
    mean = all(_combine(whole, pair, [part.samples for part in pair]) for pair in pairs)
    if mean and not whole.may_differ:
        return SAMPLES
    if all(_combine(whole, pair, [part.denominator for part in pair]) for pair in pairs):
        return torchs
    if mean and len({call.denominator for call in whole.calls}) == 1:
        return SAMPLES  # torch's loss has no say in it
    raise _refusal(whole, pairs)


def _check_names(job: Job, names: Sequence[str]) -> None:
    """Raise RequestError if a value that is logged would have the name of a metric."""
    for name in names:
        for metric in (name, TRAIN + name, VAL + name):
            if metric in job.metrics:
                raise RequestError(
                    f"the job's step logs {name!r}, and a metric is called {metric!r}: give one of "
                    "them another name"
                )


def _check_logged(
    job: Job, model: nn.Module, samples: Sequence[Any], logged: Mapping[str, Given]
) -> None:
    """Raise RequestError if a value without a weight is no mean over its samples."""
    means = [name for name, (_, weight) in logged.items() if weight is None]
    count = len(samples)

    def values(start: int, stop: int, seed: int = 0) -> list[float]:
        batch = default_collate(list(samples[start:stop]))
        with torch.no_grad(), seeded(EVALUATE, job.seed, seed):
            found = forward(job, model, batch).logged
        return numbers_of(means, {name: found[name] for name in means if name in found}, 1)[::2]

    if not means:
        return
    whole, again = values(0, count), values(0, count, 1)
    for at in sorted({1, count // 2, count - 1}):
        try:
            before, behind = values(0, at), values(at, count)
        except DayflyError:
            raise
        except Exception:
            continue  # as BatchNorm fails on one
        for name, one, twin, *parts in zip(means, whole, again, before, behind, strict=True):
            drawn = not math.isclose(one, twin, rel_tol=1e-5, abs_tol=1e-7)
            mean = (at * parts[0] + (count - at) * parts[1]) / count
            allowed = _TOLERANCE * max(abs(one), *map(abs, parts))
            if math.isfinite(one) and not drawn and not abs(mean - one) <= allowed:
                raise RequestError(
                    f"the job's step logs {name!r}, which is no mean over its samples, so workers "
                    f"cannot share it: of {count} samples it is {one:.4g}, of the first {at} and "
                    f"the other {count - at} of them {parts[0]:.4g} and {parts[1]:.4g}: log a "
                    "pair (value, weight), where weight is what the value was divided by"
                )


def _of_outputs(job: Job, outputs: Any, targets: Any) -> _LossOf:
    """The job's loss, of rows of the same outputs."""
    count = next((len(leaf) for leaf in tree_leaves(targets) if _rows(leaf)), 0)

    def cut(tree: Any, start: int, stop: int) -> Any:
        def one(leaf: Any) -> Any:
            return leaf[start:stop].detach() if _rows(leaf) and len(leaf) == count else leaf

        return tree_map(one, tree)

    def loss_of(start: int, stop: int, seed: int) -> _Part:
        some = cut(outputs, start, stop)
        leaves = [
            leaf.requires_grad_()
            for leaf in tree_leaves(some)
            if _rows(leaf) and len(leaf) == stop - start and leaf.is_floating_point()
        ]
        with seeded(EVALUATE, job.seed, seed), Watch() as watch:
            loss = cast("Any", job.loss)(some, cut(targets, start, stop))
        gradients: Sequence[torch.Tensor | None] = [None] * len(leaves)
        if loss.requires_grad:
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        known = [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(leaves, gradients, strict=True)
        ]
        return _Part(stop - start, float(loss.detach()), watch.calls, known)

    return loss_of


def _as_a_whole(job: Job, model: nn.Module, samples: Sequence[Any]) -> _LossOf:
    """The model and its loss, or the job's step, of some samples."""

    def loss_of(start: int, stop: int, seed: int) -> _Part:
        batch = default_collate(list(samples[start:stop]))
        with torch.no_grad(), seeded(EVALUATE, job.seed, seed), Watch() as watch:
            loss = forward(job, model, batch).loss
        return _Part(stop - start, float(loss), watch.calls, ())

    return loss_of


def _rows(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.ndim > 0


def _tried(loss_of: _LossOf, start: int, stop: int) -> _Part | None:
    """The loss of some samples; None if it fails on so few, as BatchNorm does on one."""
    try:
        return loss_of(start, stop, 0)
    except DayflyError:
        raise
    except Exception:
        return None


def _cut(loss_of: _LossOf, at: int, count: int) -> tuple[_Part, _Part] | None:
    before, behind = _tried(loss_of, 0, at), _tried(loss_of, at, count)
    return (before, behind) if before is not None and behind is not None else None


def _combine(whole: _Part, parts: Sequence[_Part], weights: Sequence[float | None]) -> bool:
    """Whether the parts' weighted mean is the whole, and so are the gradients."""
    if None in weights or not (total := math.fsum(cast("Sequence[float]", weights))):
        return False
    shares = [cast("float", weight) / total for weight in weights]
    losses = [part.loss * share for part, share in zip(parts, shares, strict=True) if share]
    largest = max(abs(whole.loss), *(abs(part.loss) for part in parts if math.isfinite(part.loss)))
    if not abs(math.fsum(losses) - whole.loss) <= _TOLERANCE * largest:
        return False
    for number, gradient in enumerate(whole.gradients):
        rows = [
            part.gradients[number] * share if share else torch.zeros_like(part.gradients[number])
            for part, share in zip(parts, shares, strict=True)
        ]
        tolerance = max(_TOLERANCE, 8 * torch.finfo(gradient.dtype).eps)
        allowed = tolerance * float(gradient.abs().max()) if gradient.numel() else 0.0
        if not bool(((torch.cat(rows) - gradient).abs() <= allowed).all()):
            return False
    return True


def _refusal(whole: _Part, pairs: Sequence[Sequence[_Part]]) -> RequestError:
    if all(
        math.isclose(sum(part.loss for part in pair), whole.loss, rel_tol=_TOLERANCE)
        for pair in pairs
    ):
        return RequestError(
            "the job's loss is a sum over its samples: make it their mean (reduction='mean'), "
            "as the workers' shares are weighted by their sizes"
        )
    before, behind = max(pairs, key=lambda pair: min(part.samples for part in pair))
    return RequestError(
        f"the job's loss is no mean over its samples, so workers cannot share a batch: of "
        f"{whole.samples} samples it is {whole.loss:.4g}, of the first {before.samples} and the "
        f"other {behind.samples} of them {before.loss:.4g} and {behind.loss:.4g}: {_WAY_OUT}"
    )
