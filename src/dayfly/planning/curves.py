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

The first epochs differ from the rest, so an epoch counts half as much as one that is half of all
epochs later. An accuracy is a loss of 1 less it. What was reached by an epoch that was measured is
not predicted, but read off.

Other curves are as likely, and the least and the most epochs of them say how sure it is:

    each c         whose squares are not significantly larger (F test of one parameter, 90%)
    one epoch less the best curve without any one of the epochs
    the last ones  the best curve through the last n epochs, for each n of 3 or more: the first
                   epochs are seldom on the curve of the rest
    geometric      l(e) = exp(r - s e) through the same: losses fall so while a model learns fast,
                   and no curve of the others is as steep

`tests/planning/test_curve_coverage.py` counts how often epochs of real runs lie in that range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dayfly.errors import RequestError

LOSS, ACCURACY = "loss", "accuracy"
#: Epochs that a curve of three coefficients needs, so that its errors say something.
LEAST_EPOCHS = 4
#: Fewest of the last epochs that have curves of their own.
_LAST = 3
#: Values of c that are tried, from none to just below the least loss.
_GRID = 400
_NEAR_LEAST = 1e-4
#: Part of all epochs after which one counts half as much.
_HALF = 0.5
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
        low: the fewest by a curve that is about as likely.
        high: the most; None: by one of them it levels off before.
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
            f"the first {self.seen} (by others that are as likely: {self.low} to "
            f"{self.high or 'never'})"
        )


def epochs_to(measured: Mapping[int, float], what: str, target: float) -> EpochsToTarget:
    """Returns the epochs to a target, by what a run has measured.

    Args:
        measured: loss or accuracy of the validation, by epoch, counted from 1.
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
    counted = _counted(epochs)
    every = _Curves.through(epochs, losses, counted)
    at, when = int(every.squares.argmin()), every.reach(aim)
    freedom = len(epochs) - 3
    f = _F_90[freedom - 1] if freedom <= len(_F_90) else _F_90_MANY
    likely = every.squares <= every.squares[at] * (1 + f / freedom)
    possible = [float(when[at]), *when[likely].tolist()]
    for left_out in range(len(epochs)):
        kept = np.arange(len(epochs)) != left_out
        some = _Curves.through(epochs[kept], losses[kept], counted[kept])
        possible.append(float(some.reach(aim)[some.squares.argmin()]))
    for first in range(len(epochs) - _LAST + 1):
        last, theirs = epochs[first:], losses[first:]
        some = _Curves.through(last, theirs, _counted(last))
        possible.append(float(some.reach(aim)[some.squares.argmin()]))
        if aim > 0 and (theirs > 0).all():
            slope, start = np.polyfit(last, np.log(theirs), 1)
            possible += [float((math.log(aim) - start) / slope)] if slope < 0 else []
    return possible, float(every.level[at]) if every.a[at] > 0 else None


def _counted(epochs: Array) -> Array:
    """How much each epoch counts, (E,)."""
    counted: Array = 0.5 ** ((epochs[-1] - epochs) / (_HALF * (epochs[-1] - epochs[0])))
    return counted


@dataclass(frozen=True, slots=True)
class _Curves:
    """The best curve of each c; all (C,).

    Attributes:
        level: c.
        a: slope of the line; 0 where losses do not fall.
        b: intercept of the line.
        squares: sum of l's squared errors, weighted by how far each epoch counts.
    """

    level: Array
    a: Array
    b: Array
    squares: Array

    @classmethod
    def through(cls, epochs: Array, losses: Array, counted: Array) -> Self:
        """Of all c from none to just below the least loss."""
        least = float(losses.min())
        level = np.linspace(0.0, least * (1 - _NEAR_LEAST), _GRID) if least > 0 else np.zeros(1)
        above = losses - level[:, None]
        # The line is fitted to 1/(l - c), whose variance is that of l over (l - c)^4.
        weights = counted * above**4
        weights /= weights.sum(axis=1, keepdims=True)
        mean_e, mean_l = (weights * epochs).sum(axis=1), (weights / above).sum(axis=1)
        apart = epochs - mean_e[:, None]
        a = (weights * apart / above).sum(axis=1) / (weights * apart**2).sum(axis=1)
        b = mean_l - a * mean_e
        line = a[:, None] * epochs + b[:, None]
        falls = (a > 0) & (line > 0).all(axis=1)
        errors = above - 1 / np.where(falls[:, None], line, np.inf)
        errors[~falls] = losses - np.average(losses, weights=counted)
        return cls(level, np.where(falls, a, 0.0), b, (counted * errors**2).sum(axis=1))

    def reach(self, aim: float) -> Array:
        """Returns the epochs, (C,), after which each is at so little; infinite: it never is."""
        found = np.full(len(self.level), np.inf)
        some = (self.a > 0) & (self.level < aim)
        found[some] = (1 / (aim - self.level[some]) - self.b[some]) / self.a[some]
        return found
