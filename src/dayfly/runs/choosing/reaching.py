"""Epochs of a plan that is to reach a target, from the curve of a run that began to learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dayfly.errors import RequestError
from dayfly.planning.curves import ACCURACY, LOSS, EpochsToTarget, epochs_to
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.home import local_directory
from dayfly.runs.report.reading import read_history
from dayfly.specs.events import epochs_from_1


def reaching(asked: PlanQuery, curve: str | Path) -> PlanQuery:
    """Returns what is asked with the epochs that its target takes. Raises as `epochs_by`."""
    found = epochs_by(
        curve,
        target_loss=asked.target_loss,
        target_accuracy=asked.target_accuracy,
        epochs=asked.epochs,
    )
    return replace(asked, epochs=found.epochs, reaching=found)


def epochs_by(
    curve: str | Path,
    *,
    target_loss: float | None,
    target_accuracy: float | None,
    epochs: int | None,
) -> EpochsToTarget:
    """Returns how many epochs a target takes by what a run has measured.

    Args:
        curve: the run: its directory, or its URL.
        target_loss: of validations.
        target_accuracy: of validations, a share of 1; one of the two is given.
        epochs: asked for beside it, which is refused.

    Raises:
        RequestError: no target, two, or epochs beside it; no run, or one without validations; too
            few epochs, or a curve that does not reach the target.
    """
    if (target_loss is None) == (target_accuracy is None):
        raise RequestError(
            f"--curve {curve}: give the one target that is to be reached, with --target-loss or "
            "--target-accuracy"
        )
    if epochs is not None:
        raise RequestError(
            f"--curve {curve} says how many epochs there are: leave out --epochs, or --curve"
        )
    what = LOSS if target_accuracy is None else ACCURACY
    history = read_history(local_directory(curve))
    measured = {
        int(one["epoch"] or 0): value
        for one in epochs_from_1(() if history is None else history.epochs)
        if (value := one.get(f"val_{what}")) is not None
    }
    if not measured:
        raise RequestError(
            f"--curve {curve}: the run has no validation {what} yet: give one that trained a few "
            "epochs of this job"
        )
    target = target_loss if target_accuracy is None else target_accuracy
    assert target is not None
    try:
        return epochs_to(measured, what, target)
    except RequestError as refusal:
        raise RequestError(f"--curve {curve}: {refusal}") from None
