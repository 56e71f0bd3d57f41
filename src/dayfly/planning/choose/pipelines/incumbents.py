"""What is known while a search goes on: the best plans so far, and what still may improve on them.

    t_i, u_i   seconds and dollars of a step of a plan that is known
    C          dollars a second of a plan's functions: it costs C t
    tau(C)     least over i of max(t_i, u_i / C)

A plan of price C improves on what is known if it takes less than tau(C): otherwise some i is no
slower, and no dearer. tau falls as C rises.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from dayfly.planning.choose.arrays import Array, undominated

P = TypeVar("P")

#: More than any step takes; finite, so that differences are numbers.
_ENDLESS_S = 1e100
#: Improvements below this part of themselves are rounding.
ROUNDING = 1e-11


@dataclass(slots=True)
class Incumbents(Generic[P]):
    """The front of all that was added."""

    seconds: Array = field(default_factory=lambda: np.empty(0))
    usd: Array = field(default_factory=lambda: np.empty(0))
    plans: list[P] = field(default_factory=list)

    def add(self, found: list[tuple[float, float, P]]) -> None:
        """Plans, by seconds and dollars."""
        seconds = np.concatenate([self.seconds, [t for t, _, _ in found]])
        usd = np.concatenate([self.usd, [u for _, u, _ in found]])
        plans = [*self.plans, *(plan for _, _, plan in found)]
        keep = undominated(seconds, usd)
        self.seconds, self.usd = seconds[keep], usd[keep]
        self.plans = [plans[at] for at in keep.tolist()]

    def tau(self, usd_per_s: Array, within: float = 0.0) -> Array:
        """Of prices above 0; finite. within: only what is better by this part counts."""
        if not len(self.seconds):
            return np.full(len(usd_per_s), _ENDLESS_S)
        at_price = self.usd[:, None] / usd_per_s
        least: Array = np.maximum(self.seconds[:, None], at_price).min(axis=0)
        return least * ((1 - ROUNDING) / (1 + within))
