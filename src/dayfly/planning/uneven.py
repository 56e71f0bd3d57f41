"""Workers that do the same are not done at the same moment, and a step waits for the slowest.

    worker   passes
    0        |=======|.....|           n workers draw the time of a pass from one distribution; the
    1        |=========|...|           i-th of them by time takes, on average, its i-th order
    2        |=============|           statistic:  mean + sd * z((i - 3/8) / (n + 1/4))

z is the quantile of the normal distribution (G. Blom, Statistical estimates and transformed
beta-variables, 1958). A profile says the standard deviation of a pass, relative to its time
(`SizeProfile.jitter`). Of m passes between two moments at which workers wait for each other the
relative one is 1/sqrt(m) of that. In virtual time each worker has its place among the others, so
that a step is as long as an average one, and no chance is in it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist

from dayfly.planning.profile import SizeProfile
from dayfly.planning.work import APART

#: No worker is so much faster than the average, however many there are.
_LEAST = 0.5


@lru_cache(maxsize=1024)
def places(workers: int) -> tuple[int, ...]:
    """Of each rank its place by time, from 0, the fastest. Neighbours' lie far apart."""
    order = sorted(range(workers), key=lambda rank: rank * APART % 1.0)
    found = [0] * workers
    for place, rank in enumerate(order):
        found[rank] = place
    return tuple(found)


def factor(jitter: float, place: int, workers: int, passes: int) -> float:
    """What passes take of the worker at this place of so many, over the average worker's.

    passes: that each computes before it waits for the others.
    """
    if not jitter or workers == 1:
        return 1.0
    z = NormalDist().inv_cdf((place + 1 - 3 / 8) / (workers + 1 / 4))
    return max(_LEAST, 1 + jitter * z / math.sqrt(passes))


def uneven(size: SizeProfile, rank: int, workers: int, passes: int) -> SizeProfile:
    """The function that this rank has: its passes and reading are slower or faster."""
    times = factor(size.jitter, places(workers)[rank], workers, passes)
    if times == 1:
        return size
    return replace(
        size,
        forward=tuple(line.times(times) for line in size.forward),
        backward=tuple(line.times(times) for line in size.backward),
        data=size.data.times(times),
    )


def slowest(size: SizeProfile, workers: int, passes: int) -> SizeProfile:
    """The function of the slowest of so many."""
    return uneven(size, places(workers).index(workers - 1), workers, passes)
