"""Seconds and dollars of single allocations (n, m, s), by the product's equations."""

from __future__ import annotations

import numpy as np

from benchmarks.parts.choosing.store_problem import MemorySize, StoreOption, StorePlan, StoreProblem
from benchmarks.parts.choosing.stores import Sizes, run_of
from dayfly.planning.choose.arrays import undominated
from dayfly.planning.choose.front import Point


def fits(problem: StoreProblem, size: MemorySize, workers: int) -> bool:
    """Whether there may be so many functions, and a batch of theirs fits into memory."""
    return workers <= size.most_workers and problem.batch_of(workers) <= size.most_batch_bytes


def point(
    problem: StoreProblem, store: StoreOption, size: MemorySize, workers: int
) -> Point[StorePlan]:
    """One allocation."""
    seconds, usd = run_of(problem, store, np.array([float(workers)]), Sizes.of((size,)))
    plan = StorePlan(workers=workers, memory_mib=size.memory_mib, store=store.name)
    return Point(float(seconds[0, 0]), float(usd[0, 0]), plan)


def points(
    problem: StoreProblem, stores: tuple[StoreOption, ...], workers: list[int]
) -> list[Point[StorePlan]]:
    """Those over each store, of all that fit, that none over the same store dominates."""
    found = []
    n, sizes = np.array(workers, dtype=float), Sizes.of(problem.sizes)
    held = np.array([problem.batch_of(count) for count in workers])
    size_at, worker_at = np.nonzero((held <= sizes.most_batch_bytes) & (n <= sizes.most_workers))
    for store in stores:
        seconds, usd = (one[size_at, worker_at] for one in run_of(problem, store, n, sizes))
        for at in undominated(seconds, usd).tolist():
            plan = StorePlan(
                workers=workers[worker_at[at]],
                memory_mib=problem.sizes[size_at[at]].memory_mib,
                store=store.name,
            )
            found.append(Point(float(seconds[at]), float(usd[at]), plan))
    return found
