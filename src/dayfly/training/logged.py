"""Values that a job's step logs: means, combined over parts as a loss is.

    part p    value v_p, weight w_p           w_p: its samples, or the weight that the step says
    summed    (sum w_p v_p, sum w_p)          over micro-batches, workers, phases, steps of an epoch
    whole     sum w_p v_p / sum w_p

Of validation the parts are its blocks, added up in their order. A value that a part does not have
has no say there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dayfly.errors import RequestError

#: A value of a batch, and what it was divided by; None: its samples.
Given = tuple[Any, Any]
#: Of each name what is summed: the weighted values, and the weights.
Sums = dict[str, tuple[float, float]]
#: Numbers that are summed for a name.
NUMBERS = 2
#: What names begin with in the history, of training and of validation.
TRAIN, VAL = "train_", "val_"
#: What has these names in the history anyway.
_TAKEN = ("loss", "accuracy")
_FORMS = "return log as a dict of names and values: numbers, or pairs (value, weight)"


def values_given(log: Any) -> dict[str, Given]:
    """Returns what a step gives as `log`, by name.

    Raises:
        RequestError: it is no mapping of names to numbers or pairs of numbers.
    """
    if not isinstance(log, Mapping):
        raise RequestError(f"the job's step returned a log of type {type(log).__name__}: {_FORMS}")
    found: dict[str, Given] = {}
    for name, value in log.items():
        if not isinstance(name, str) or not name or name in _TAKEN:
            raise RequestError(
                f"the job's step logs {name!r}, which is no name of its own: give each value a "
                f"text as its name, and none of {', '.join(_TAKEN)}, which are measured anyway"
            )
        pair = isinstance(value, tuple) and len(value) == 2
        one, weight = value if pair else (value, None)
        if not _is_number(one) or not (weight is None or _is_number(weight)):
            raise RequestError(f"the job's step logs a {_named(value)} as {name!r}: {_FORMS}")
        found[name] = _alone(one), _alone(weight)
    return found


def _alone(value: Any) -> Any:
    """Without the graph by which it was computed, which would stay in memory."""
    return value.detach() if isinstance(value, torch.Tensor) else value


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, (int, float, np.floating, np.integer))


def _named(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {list(value.shape)}"
    return type(value).__name__


def numbers_of(names: Sequence[str], given: Mapping[str, Given], samples: int) -> list[float]:
    """Returns what is summed of a part of so many samples, (NUMBERS * names,).

    Args:
        names: all that the job's step logs.
        given: of the part, from `values_given`; asks a GPU for its numbers.
        samples: of the part.

    Raises:
        RequestError: a name is not among these, or a weight is no number from 0.
    """
    if unknown := given.keys() - set(names):
        raise RequestError(
            f"the job's step logs {', '.join(sorted(unknown))}, which it did not of its first "
            "samples: let it log the same names from the first batch on"
        )
    numbers: list[float] = []
    for name in names:
        value, weight = given.get(name, (0.0, 0.0))
        divisor = float(samples) if weight is None else float(weight)
        if not 0.0 <= divisor < math.inf:
            raise RequestError(
                f"the job's step logs {name!r} with the weight {divisor:g}: give what the value "
                "was divided by, a number from 0"
            )
        numbers += [divisor * float(value) if divisor else 0.0, divisor]
    return numbers


def added(several: Iterable[Sequence[float]], names: Sequence[str]) -> list[float]:
    """Returns the sum of the numbers of parts, in their order; zeros of none."""
    total = [0.0] * (NUMBERS * len(names))
    for numbers in several:
        total = [before + one for before, one in zip(total, numbers, strict=True)]
    return total


def by_name(names: Sequence[str], numbers: Sequence[float]) -> Sums:
    """Returns summed numbers by name."""
    pairs = zip(numbers[::NUMBERS], numbers[1::NUMBERS], strict=True)
    return dict(zip(names, pairs, strict=True))


def means(sums: Mapping[str, Sequence[float]], prefix: str = "") -> dict[str, float | None]:
    """Returns each name's mean, with a prefix; None if no part had the value."""
    return {
        f"{prefix}{name}": total / weight if weight else None
        for name, (total, weight) in sums.items()
    }
