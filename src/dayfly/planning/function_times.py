"""Times of a function in a run: interpolated near its samples, under contention, and as stragglers.

A profile has times of a function that computes and sends alone. Four things change them.

Interpolation. What is measured does not grow by one straight line: of few samples more fits into
caches, of many less. A profile has a line through all that was measured, and the passes themselves;
a prediction takes the line that fits best near the samples that a worker has. Other measured passes
count the less the further they are,

    w(p) = exp(-(ln(p / n))^2 / (2 x 0.5^2)),  n samples wanted, p measured

so those of twice as many have a weight of 0.38, and of four times as many 0.02. One pass that was
disturbed is then still smoothed by its neighbours.

Contention. Functions on one machine share caches and memory bandwidth, limits or not. A profile
says how much more CPU time passes take beside neighbours on so many cores (`SizeProfile.crowd`,
`crowd_cores`). With fewer cores at work beside it, a function loses less.

Decline. The more functions use a store at once, the less bandwidth each may have. A profile may say
how much is left (`Profile.decline`); nothing that measures one function tells it.

Stragglers. Workers that do the same are not done at the same moment, and a step waits for the
slowest.

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
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from statistics import NormalDist

from dayfly.elementwise import by_value, least
from dayfly.planning.affine import total
from dayfly.planning.decline import left_of_bandwidth
from dayfly.planning.fits import fit_affine
from dayfly.planning.profile import Affine, Figure, SizeProfile

#: Phases of ranks' CPU periods lie apart by this share of one, so that all are as far from each
#: other as can be, however many there are: the golden ratio's.
APART = 0.6180339887498949
#: Standard deviation of ln(p / n).
_WIDTH = 0.5
#: With fewer measured passes there is one line.
_BENT = 3


@lru_cache(maxsize=1024)
def interpolated(size: SizeProfile, samples: int) -> SizeProfile:
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


def slowdown(crowd: float, crowd_cores: float, others_cores: float) -> float:
    """By how much computing takes longer while others compute on so many cores.

    In between it grows evenly; more cores than were measured are taken to cost no more.

    Args:
        crowd: measured beside neighbours on `crowd_cores`; 0: it was not measured.
        others_cores: on which others compute; elementwise.
    """
    if crowd_cores <= 0:
        return 1.0
    part: float = least(1.0, others_cores / crowd_cores)
    return 1 + (crowd - 1) * part


def contended(size: SizeProfile, others_cores: float) -> SizeProfile:
    """Functions of this size while others compute on so many cores: passes, reading samples, the
    optimizer's step and what else a step takes are slower by `slowdown`."""
    factor = slowdown(size.crowd.value, size.crowd_cores, others_cores)
    if factor == 1:
        return size
    return replace(
        size,
        forward=tuple(line.times(factor) for line in size.forward),
        backward=tuple(line.times(factor) for line in size.backward),
        data=size.data.times(factor),
        apply=size.apply.times(factor),
        step_s=size.step_s.times(factor),
    )


def declined(
    size: SizeProfile, decline: Sequence[tuple[float, float]], functions: int
) -> SizeProfile:
    """Functions of this size while so many run, each with the part of its bandwidth that is left.

    Args:
        decline: as `left_of_bandwidth` has it.
    """
    part = left_of_bandwidth(decline, functions)
    if part == 1:
        return size
    up, down = (
        replace(way, peak_bytes_per_s=way.peak_bytes_per_s.times(part))
        for way in (size.up, size.down)
    )
    return replace(size, up=up, down=down)


#: No worker is so much faster than the average, however many there are.
_LEAST = 0.5


@lru_cache(maxsize=1024)
def speed_places(workers: int) -> tuple[int, ...]:
    """Of each rank its place by time, from 0, the fastest. Neighbours' lie far apart."""
    order = sorted(range(workers), key=lambda rank: rank * APART % 1.0)
    found = [0] * workers
    for place, rank in enumerate(order):
        found[rank] = place
    return tuple(found)


def factor(jitter: float, place: int, workers: int, passes: int) -> float:
    """What passes take of the worker at this place of so many, over the average worker's.

    Args:
        passes: that each computes before it waits for the others.
    """
    if not jitter or workers == 1:
        return 1.0
    z = NormalDist().inv_cdf((place + 1 - 3 / 8) / (workers + 1 / 4))
    return max(_LEAST, 1 + jitter * z / math.sqrt(passes))


def pace(size: SizeProfile, rank: int, workers: int, passes: int) -> float:
    """Returns what passes take of this rank, over the average worker's; arguments as of `factor`.

    Args:
        size: of the workers' functions.
        rank: whose pace is asked.
    """
    return factor(size.jitter, speed_places(workers)[rank], workers, passes)


def paced(size: SizeProfile, times: float) -> SizeProfile:
    """Returns functions whose passes and reading take so many times as long."""
    if times == 1:
        return size
    return replace(
        size,
        forward=tuple(line.times(times) for line in size.forward),
        backward=tuple(line.times(times) for line in size.backward),
        data=size.data.times(times),
    )


def straggling(size: SizeProfile, rank: int, workers: int, passes: int) -> SizeProfile:
    """The function that this rank has: its passes and reading are slower or faster."""
    return paced(size, pace(size, rank, workers, passes))


def slowest(size: SizeProfile, workers: int, passes: int) -> SizeProfile:
    """The function of the slowest of so many."""
    return paced(size, slowest_pace(size, workers, passes))


def slowest_pace(size: SizeProfile, workers: int, passes: int) -> float:
    """Returns what passes take of the slowest of so many, over the average worker's; elementwise.

    Args:
        size: of the workers' functions.
        workers: how many there are.
        passes: as of `factor`.
    """
    once = by_value(lambda many: factor(size.jitter, many - 1, many, 1), workers)
    found: float = 1 + (once - 1) / passes**0.5
    return found


def passed(times: Sequence[Affine], samples: float) -> float:
    """Seconds of a pass of so many samples through these layers."""
    return total(times, samples)


def cut_backward(times: Sequence[Affine], samples: float, at: Sequence[float]) -> list[float]:
    """Seconds of a backward pass, cut where so many layers are over, from the last one on."""
    layers = [time(samples) for time in reversed(times)]
    up_to = [0.0, *accumulate(layers)]
    edges = [0.0]
    for over in at:
        whole = min(int(over), len(layers))
        rest = (over - whole) * layers[whole] if whole < len(layers) else 0.0
        edges.append(up_to[whole] + rest)
    edges.append(up_to[-1])
    return [max(0.0, after - before) for before, after in pairwise(edges)]
