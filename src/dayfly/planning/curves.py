"""Epochs to a target: a curve through what the first epochs of a run measured.

    l(e) = c + 1/(a e + b)      loss after epoch e; a, b > 0, c >= 0 (Optimus, Peng and others,
                                EuroSys 2018, equation 1; CE-scaling, section III-D, predicts so)

    loss
     |*
     | *                        c is what the curve levels off at. For each c on a grid a and b are
     |   *  *                   the line through 1/(l - c), weighted so that its errors count as
     |- - - - - *- - - - target those of l do. The best c has the least squares of l's errors.
     |               *    *
     |________________________ c
       measured  |   e*         epochs to the target: (1/(target - c) - b)/a

Each c whose squares are not significantly larger (F test of one parameter, 90%) would be possible,
too: the least and the most epochs of them are the interval. An accuracy is a loss of 1 less it.
What was reached by an epoch that was measured is not predicted, but read off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dayfly.errors import RequestError

LOSS, ACCURACY = "loss", "accuracy"
#: Epochs that a curve of three coefficients needs, so that its errors say something.
LEAST_EPOCHS = 4
#: Values of c that are tried, from none to just below the least loss.
_GRID = 400
_NEAR_LEAST = 1e-4
#: 90% quantiles of F with 1 and n degrees of freedom: n up to so many, then as of any number.
_F_90 = (39.86, 8.53, 5.54, 4.54, 4.06, 3.78, 3.59, 3.46, 3.36, 3.29)
_F_90_MANY = 2.71
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsToTarget:
    """Epochs after which a validation is expected to reach a target.

    Attributes:
        what: `loss` or `accuracy`, of validations.
        target: its value.
        epochs: the first that reaches it.
        low: 9 of 10 runs are to take so many at least.
        high: so many at most; None: the curve may level off before.
        seen: epochs that were measured.
    """

    what: str
    target: float
    epochs: int
    low: int
    high: int | None
    seen: int

    def __str__(self) -> str:
        if self.epochs <= self.seen:
            return f"validation {self.what} {self.target:g} was reached in epoch {self.epochs}"
        return (
            f"validation {self.what} {self.target:g} after {self.epochs} epochs, by the curve of "
            f"the first {self.seen} (9 of 10: {self.low} to {self.high or 'never'})"
        )


def epochs_to(measured: Mapping[int, float], what: str, target: float) -> EpochsToTarget:
    """Returns the epochs to a target, by what a run has measured.

    Args:
        measured: validation's loss or accuracy after each epoch, which count from 1.
        what: `loss` or `accuracy`.
        target: of it.

    Raises:
        RequestError: too few epochs, values that are no numbers, or a curve that levels off before
            the target; says at what.
    """
    epochs = sorted(measured)
    values = [measured[epoch] for epoch in epochs]
    if not all(map(math.isfinite, values)):
        raise RequestError(f"the run's validation {what} is not finite: it says nothing of others")
    losses = [1 - value for value in values] if what == ACCURACY else values
    aim = 1 - target if what == ACCURACY else target
    for epoch, loss in zip(epochs, losses, strict=True):
        if loss <= aim:
            return EpochsToTarget(
                what=what, target=target, epochs=epoch, low=epoch, high=epoch, seen=epochs[-1]
            )
    if len(epochs) < LEAST_EPOCHS:
        raise RequestError(
            f"{len(epochs)} epochs with a validation are too few for a curve: train "
            f"{LEAST_EPOCHS} at least, or say --epochs"
        )
    reached, level = _reached(np.array(epochs, dtype=float), np.array(losses), aim)
    best, possible = reached[0], reached[1:]
    if not math.isfinite(best):
        at = "" if level is None else f" at {1 - level if what == ACCURACY else level:.4g}"
        raise RequestError(
            f"by its first {len(epochs)} epochs the run's validation {what} levels off{at}, and "
            f"does not reach {target:g}: give a target that it reaches, or --epochs"
        )
    first = epochs[-1] + 1
    return EpochsToTarget(
        what=what,
        target=target,
        epochs=max(first, math.ceil(best)),
        low=max(first, math.ceil(min(possible))),
        high=max(first, math.ceil(max(possible))) if math.isfinite(max(possible)) else None,
        seen=epochs[-1],
    )


def _reached(epochs: Array, losses: Array, aim: float) -> tuple[Sequence[float], float | None]:
    """When the best curve reaches it, then when each possible one does; infinite: never. And what
    the best one levels off at; None: the losses do not fall."""
    least = float(losses.min())
    levels = np.linspace(0.0, least * (1 - _NEAR_LEAST), _GRID) if least > 0 else np.zeros(1)
    fits = [_fit(epochs, losses, float(level)) for level in levels]
    squares = np.array([one[2] for one in fits])
    at = int(squares.argmin())
    freedom = len(epochs) - 3
    f = _F_90[freedom - 1] if freedom <= len(_F_90) else _F_90_MANY
    most = squares[at] * (1 + f / freedom)

    def when(number: int) -> float:
        a, b, _ = fits[number]
        level = float(levels[number])
        return (1 / (aim - level) - b) / a if a > 0 and level < aim else math.inf

    possible = [when(at), *(when(number) for number in np.flatnonzero(squares <= most).tolist())]
    return possible, float(levels[at]) if fits[at][0] > 0 else None


def _fit(epochs: Array, losses: Array, level: float) -> tuple[float, float, float]:
    """a, b and the sum of squares of l's errors with this c."""
    above = losses - level
    # An error of l is one of 1/(l - c) by 1/(l - c)^2 as much.
    weights = above**2
    terms = np.stack([epochs, np.ones_like(epochs)], axis=1) * weights[:, None]
    (a, b), *_ = np.linalg.lstsq(terms, weights / above, rcond=None)
    line = a * epochs + b
    if a <= 0 or (line <= 0).any():
        return 0.0, 1.0, float(np.sum((losses - losses.mean()) ** 2))
    return float(a), float(b), float(np.sum((losses - level - 1 / line) ** 2))
