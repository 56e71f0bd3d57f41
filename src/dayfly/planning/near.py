"""A function's times near so many samples: what is measured does not grow by one straight line.

Of few samples more fits into caches, of many less. A profile has a line through all that was
measured, and the passes themselves; a prediction takes the line that is best near the samples that
a worker has, other measured passes counting the less the further they are:

    w(p) = exp(-(ln(p / n))^2 / (2 x 0.5^2)),  n samples wanted, p measured

so those of twice as many have a weight of 0.38, and of four times as many 0.02.
One pass that was disturbed is then still smoothed by its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from dayfly.planning.figures import Affine, Figure
from dayfly.planning.fits import fit_affine
from dayfly.planning.profile import SizeProfile

#: Standard deviation of ln(p / n).
_WIDTH = 0.5
#: With fewer measured passes there is one line.
_BENT = 3


@lru_cache(maxsize=1024)
def near(size: SizeProfile, samples: int) -> SizeProfile:
    """The size with lines for passes of about so many samples; as it is, without enough passes."""
    if len(size.passes) < _BENT or samples < 1:
        return size
    apart = [math.log(one.samples / samples) / _WIDTH for one in size.passes]
    weights = [math.exp(-(far**2) / 2) for far in apart]

    def through(figures: Iterable[Figure]) -> Affine:
        points = zip(size.passes, figures, strict=True)
        return fit_affine(((one.samples, figure.value) for one, figure in points), weights)

    return replace(
        size,
        forward=tuple(map(through, zip(*(one.forward for one in size.passes), strict=True))),
        backward=tuple(map(through, zip(*(one.backward for one in size.passes), strict=True))),
        data=through(one.data for one in size.passes),
    )
