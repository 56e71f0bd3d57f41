"""A function's times near so many samples: what is measured does not grow by one straight line.

Of few samples more fits into caches, of many less. A profile has a line through all that was
measured, and the passes themselves; a prediction takes the line that is best near the samples that
a worker has, other measured passes counting the less the further they are:

    w(p) = exp(-(ln(p / n))^2 / (2 x 0.5^2)),  n samples wanted, p measured

so those of twice as many have a weight of 0.38, and of four times as many 0.02.
One pass that was disturbed is then still smoothed by its neighbours.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from dayfly.plan.fits import fit_lines
from dayfly.plan.profile import SizeProfile

#: Standard deviation of ln(p / n).
_WIDTH = 0.5
#: With fewer measured passes there is one line.
_BENT = 3


@lru_cache(maxsize=1024)
def near(size: SizeProfile, samples: int) -> SizeProfile:
    """The size with lines for passes of about so many samples; as it is, without enough passes."""
    if len(size.passes) < _BENT or samples < 1:
        return size
    counts = np.array([one.samples for one in size.passes], dtype=float)
    weights = np.exp(-((np.log(counts / samples) / _WIDTH) ** 2) / 2)
    times = [
        [figure.value for figure in (*one.forward, *one.backward, one.data)] for one in size.passes
    ]
    lines = fit_lines(counts, np.array(times), weights)
    layers = len(size.forward)
    return replace(
        size, forward=lines[:layers], backward=lines[layers : 2 * layers], data=lines[-1]
    )
