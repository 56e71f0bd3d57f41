"""Prices in whole units, so that tables can have a column for each.

Platforms' prices are multiples of one price most often, such as that of the memory step; then units
are exact. If not, or if there would be too many columns, stages count fewer units than they cost:
bounds then get weaker, not wrong. Labels have exact prices in either case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from dayfly.planning.choose.arrays import Array, Ints

#: The least price is so many units at most, when one unit is sought that divides all prices.
_MOST_OF_LEAST = 64
#: The least price in units where there is no such unit.
_OF_LEAST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """usd_per_s: of one unit. cost: units of each option, rounded down. price: not rounded."""

    usd_per_s: float
    cost: Ints
    price: Array

    @classmethod
    def of(cls, usd_per_s: Array) -> Self:
        """Of options' prices, all above 0."""
        least = float(usd_per_s.min())
        for parts in range(1, _MOST_OF_LEAST + 1):
            price = usd_per_s / (least / parts)
            whole = np.rint(price)
            if np.all(np.abs(price - whole) <= 1e-9 * whole):
                return cls(usd_per_s=least / parts, cost=whole.astype(np.int64), price=whole)
        return cls._rounded(usd_per_s, least / _OF_LEAST)

    def coarser(self, times: int) -> Self:
        """So many units as one."""
        return self._rounded(self.price * self.usd_per_s, self.usd_per_s * times)

    @classmethod
    def _rounded(cls, usd_per_s: Array, unit: float) -> Self:
        price = usd_per_s / unit
        return cls(usd_per_s=unit, cost=np.floor(price).astype(np.int64), price=price)
