"""One pass of the job's model over a batch: its loss, and what metrics are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.training.weighting import SAMPLES, Weighting

#: What a step of the user's own may return in a mapping.
_KEYS = {"loss", "outputs", "targets", "weight"}
#: Under which a batch that is a mapping may have its targets, in the order in which they are tried.
TARGET_KEYS = ("targets", "target", "labels", "label", "y")


@dataclass(frozen=True, slots=True)
class Passed:
    """A batch that passed the model.

    loss: a tensor of one number. outputs, targets: None if nobody says what they are. weight: what
    the loss was divided by, such as the sum of its samples' class weights; None: its samples, or
    nobody asked.
    """

    loss: torch.Tensor
    outputs: Any
    targets: Any
    weight: float | None = None


def forward(job: Job, model: nn.Module, batch: Any, weighting: Weighting = SAMPLES) -> Passed:
    """Runs the model and the loss on a batch.

    Args:
        job: whose `loss`, or `step`, is computed.
        model: in the mode that is wanted.
        batch: (x, y), or what the job's step takes; on the model's device.
        weighting: how losses of batches are combined; decides whether `weight` is found.

    Raises:
        RequestError: the step returned something that it cannot mean.
    """
    if job.step is None:
        x, y = batch
        outputs = model(x)
        loss, weight = weighting.watched(lambda: cast("Any", job.loss)(outputs, y))
        return Passed(loss, outputs, y, weight)
    step = job.step
    result, weight = weighting.watched(lambda: step(model, batch))
    return _of_step(result, targets_of(batch), weight)


def targets_of(batch: Any) -> Any:
    """The targets of a batch: y of (x, y), or the value of a mapping's `targets`, `target`,
    `labels`, `label` or `y`; None if it has none of these."""
    if isinstance(batch, Mapping):
        return next((batch[key] for key in TARGET_KEYS if key in batch), None)
    return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None


def _of_step(result: Any, targets: Any, weight: float | None) -> Passed:
    if isinstance(result, Mapping):
        unknown = sorted(str(key) for key in result.keys() - _KEYS)
        if unknown or "loss" not in result:
            wrong = f"has {', '.join(unknown)}" if unknown else "has no loss"
            raise RequestError(
                f"the job's step returned a mapping that {wrong}: return loss, and of outputs, "
                "targets and weight those that are known"
            )
        if result.get("weight") is not None:
            weight = _own_weight(result["weight"])
        return Passed(result["loss"], result.get("outputs"), result.get("targets", targets), weight)
    if not isinstance(result, tuple):
        return Passed(result, None, targets, weight)
    if len(result) != 2:
        raise RequestError(
            f"the job's step returned a tuple of {len(result)}: return the loss, (loss, outputs), "
            "or a mapping of loss, outputs, targets and weight"
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
