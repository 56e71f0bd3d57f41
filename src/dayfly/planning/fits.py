"""Coefficients from measurements: times that grow with samples, transfers, FasDL's a, b, m.

All are least squares of relative errors, as a step of a millisecond is to be as true as one of a
second. None of the coefficients that are times or rates comes out below zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dayfly.planning.profile import Affine, Fit

#: How much better, relatively, a saturating throughput has to fit than an even one to be believed.
_WORTH = 0.3
#: Mean relative error of an even one up to which nothing is looked for beyond it.
_NOISE = 0.02
#: Memory beyond so many times the largest size: it makes no difference here.
_FAR = 30.0

Array = NDArray[np.float64]


def fit_affine(
    points: Iterable[tuple[float, float]], weights: Sequence[float] | None = None
) -> Affine:
    """fixed + each * n through points (n, value); of one n, all is taken to grow with it.

    Points of value 0 count nothing.

    Args:
        weights: how much the square of each point's relative error counts; None: all as much.

    Raises:
        ValueError: without points.
    """
    found = list(points)
    if not found:
        raise ValueError("a line through no points")
    given = [1.0] * len(found) if weights is None else weights
    used = [(n, value, w) for (n, value), w in zip(found, given, strict=True) if value > 0]
    if not used:
        return Affine(0.0, 0.0)
    if len({n for n, _, _ in used}) == 1:
        n = used[0][0]
        mean = sum(value for _, value, _ in used) / len(used)
        return Affine(0.0, mean / n) if n else Affine(mean, 0.0)
    counts, values, counted = (np.array(side, dtype=float) for side in zip(*used, strict=True))
    (fixed, each), _ = _two(np.ones_like(counts), counts, values, counted)
    return Affine(fixed, each)


def fit_transfer(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Of points (bytes, seconds of a message): latency_s, peak_bytes_per_s, saturation_per_byte.

    seconds = latency + s / (p (1 - exp(-t s))), the throughput as FasDL eq. 2 has it. For small s
    the second term goes to 1 / (p t), which is a latency as well; so a finite t is taken only if it
    fits clearly better than an even throughput (infinite t) does. Raises ValueError with less than
    two sizes.
    """
    if len({s for s, _ in points}) < 2:
        raise ValueError("a throughput from less than two sizes of messages")
    s, seconds = (np.array(side, dtype=float) for side in zip(*points, strict=True))

    def at(t: float) -> tuple[float, tuple[float, float]]:
        occupied = s if math.isinf(t) else s / -np.expm1(-t * s)
        both, error = _two(np.ones_like(s), occupied, seconds)
        return error, both

    even_error, (latency, per_byte) = at(math.inf)
    # From where all that is measured is far from saturated, to where all of it is saturated.
    log_t = np.log([0.03 / s.max(), 30.0 / s.min()])
    t = math.exp(_least(lambda x: at(math.exp(x))[0], *log_t))
    error, both = at(t)
    if error < (1 - _WORTH) * even_error and even_error > _NOISE and both[1] > 0:
        return both[0], 1 / both[1], t
    if per_byte <= 0:  # too fast to be told from the latency
        per_byte = float((seconds / s).min())
    return latency, 1 / per_byte, math.inf


def fit_fasdl(points: Sequence[tuple[float, float, float]]) -> Fit | None:
    """FasDL eq. 4 through points (samples, MiB, seconds of a step): a (B + b) / (M + m).

    For a given m, (M + m) t is a line in B, so only m is searched for. None with less than two
    memory sizes, or if memory makes no difference to the time.
    """
    if len({memory for _, memory, _ in points}) < 2 or len({b for b, _, _ in points}) < 2:
        return None
    samples, memory, seconds = (np.array(side, dtype=float) for side in zip(*points, strict=True))
    least = memory.min()

    def at(m: float) -> tuple[float, tuple[float, float]]:
        both, error = _two(1 / (memory + m), samples / (memory + m), seconds)
        return error, both

    # m from just above -M of the smallest function; the logarithm is of the smallest's M + m.
    log_first, log_last = np.log([1e-3 * least, _FAR * memory.max()])
    x = _least(lambda x: at(math.exp(x) - least)[0], log_first, log_last)
    m = math.exp(x) - least
    fixed, each = at(m)[1]
    if each <= 0 or x > log_last - 0.01:
        return None
    predicted = (fixed + each * samples) / (memory + m)
    return Fit(a=each, b=fixed / each, m=m, error=float(np.mean(np.abs(predicted / seconds - 1))))


def _two(
    one: Array, other: Array, value: Array, weights: Array | float = 1.0
) -> tuple[tuple[float, float], float]:
    """Factors, 0 or more, of two terms that add up to `value`; and the root of the mean square of
    the relative errors, as weighted."""
    wanted = np.sqrt(weights) * np.ones_like(value)
    terms = np.stack([one / value, other / value], axis=1) * wanted[:, None]

    def error(x: Array) -> float:
        return float(np.sqrt(np.mean((terms @ x - wanted) ** 2)))

    # Scaled, as the terms may be of very different sizes.
    scale = np.sqrt((terms**2).sum(axis=0))
    scale[scale == 0] = 1.0
    solved = np.linalg.lstsq(terms / scale, wanted, rcond=None)[0] / scale
    if (solved < 0).any():
        alone = []
        for column in range(2):
            x = np.zeros(2)
            square = float(terms[:, column] @ terms[:, column])
            x[column] = float(terms[:, column] @ wanted) / square if square else 0.0
            alone.append(x)
        solved = min(alone, key=error)
    return (float(solved[0]), float(solved[1])), error(solved)


def _least(error: Callable[[float], float], first: float, last: float) -> float:
    """Where a function is least: a grid, and a golden section about its best point."""
    grid = np.linspace(first, last, 200)
    best = int(np.argmin([error(float(x)) for x in grid]))
    low, high = float(grid[max(0, best - 1)]), float(grid[min(len(grid) - 1, best + 1)])
    part = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        one, other = high - part * (high - low), low + part * (high - low)
        if error(one) < error(other):
            high = other
        else:
            low = one
    return (low + high) / 2
