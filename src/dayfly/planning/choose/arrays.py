"""Candidates as arrays, of seconds and of dollars: which are on the front, and which near it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def on_arrays(equation: Callable[..., float]) -> Callable[..., Array]:
    """The same equation of `formulas`, element by element: it only adds, multiplies and divides."""
    return cast("Callable[..., Array]", equation)


def undominated(seconds: Array, usd: Array) -> Ints:
    """Indices of the front: by rising seconds, falling dollars.

    A candidate is dominated if another takes no longer and costs no more; of equal ones the first
    stays. O(n log n).
    """
    order = np.argsort(seconds)
    cheapest_before = np.minimum.accumulate(usd[order])
    # Sorting by one key is quick, and leaves few: all that cost no more than anything faster. What
    # is equal in seconds may stand in any order until they are sorted by both.
    few = np.sort(order[usd[order] <= cheapest_before])
    few = few[np.lexsort((usd[few], seconds[few]))]
    cheapest_before = np.minimum.accumulate(usd[few])
    first = np.ones(len(few), dtype=bool)
    first[1:] = usd[few][1:] < cheapest_before[:-1]
    return few[first].astype(np.int64)


def dominated(seconds: Array, usd: Array, front_s: Array, front_usd: Array) -> NDArray[np.bool_]:
    """Of each candidate, whether a front (rising seconds, falling dollars) has one no worse."""
    at = np.searchsorted(front_s, seconds, side="right")
    # What costs least of all that take no longer is the last of them; before the first is nothing.
    return np.concatenate([[np.inf], front_usd])[at] <= usd


def nearest(seconds: Array, usd: Array, slack: ArrayLike, most: int) -> Ints:
    """Indices of `Front.near`, of candidates of which none is made yet."""
    on = undominated(seconds, usd)
    return near(seconds, usd, np.stack([seconds[on], usd[on]], axis=1), slack, most)


def near(seconds: Array, usd: Array, front: Array, slack: ArrayLike, most: int) -> Ints:
    """Indices of `Front.near`.

    Args:
        front: (points, 2), its seconds and dollars.
        slack: of all candidates, or of each.
    """
    excess = over_front(seconds, usd, front)
    order = np.argsort(excess, kind="stable")[:most]
    return order[(excess <= 1 + np.asarray(slack))[order]].astype(np.int64)


def over_front(seconds: Array, usd: Array, front: Array) -> Array:
    """Returns of each candidate how many times as slow and as dear it is as a plan of the front, of
    that plan which is better by most; 1: it is on the front.

    Args:
        front: (points, 2), as of `near`.
    """
    excess = np.zeros(len(seconds))
    for one_s, one_usd in front:
        np.maximum(excess, np.minimum(seconds / one_s, usd / one_usd), out=excess)
    return excess
