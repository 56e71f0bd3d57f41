"""TPDMP with a grid of resources, as FuncPipe compares itself with it (section 5.1).

For each number of stages, of replicas, and memory size of all functions, the cut of the greatest
throughput: the dynamic program of Tarnawski and others (NeurIPS 2020), in which the slowest stage
is as fast as can be,

    best(k, r) = min over l of max(best(k - 1, l), load(l, r)),

among the best of these (FuncPipe equation 3a) is then chosen. A load is here the slowest of what a
stage does for a micro-batch at once: computing, and its transfers each way, as in FuncPipe's lags;
stages that do not fit have none. Synchronisation is no part of it, and the grid has one memory size
for all stages: FuncPipe prints neither.
"""

from __future__ import annotations

import numpy as np

from benchmarks.parts.choosing.answer import Answer, Goal
from benchmarks.parts.choosing.pipeline_points import holds, plan_over_store, point
from dayfly.planning.choose.arrays import Array
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    StagesOverStore,
)


def tpdmp(problem: StagesOverStore, goal: Goal) -> Answer[PipelinePlan]:
    """The best of the grid for a pair of weights."""
    return Answer(goal.best(grid(problem)))


def grid(problem: StagesOverStore) -> list[Point[PipelinePlan]]:
    """The cut of the greatest throughput for each place in the grid."""
    found = []
    for degree in problem.divisors:
        for option in range(len(problem.options)):
            for starts in _cuts(_loads(problem, option, degree)):
                options = (option,) * (len(starts) + 1)
                plan = plan_over_store(
                    problem, starts, options, degree, pipelined=problem.pipelined[0]
                )
                if holds(problem, plan):
                    found.append(point(problem, plan))
    return found


def _loads(problem: StagesOverStore, option: int, degree: int) -> Array:
    """(L, L + 1): of a stage of layers l to r-1, by l and r; infinite where it does not fit."""
    p, on, count = problem, problem.options[option], len(problem.layers)

    def sums(values: list[float]) -> Array:
        before = np.concatenate([[0.0], np.cumsum(values)])
        whole: Array = before[None, :] - before[:-1, None]
        return whole

    computed = p.beta * (sums(list(on.forward_s)) + sums(list(on.backward_s)))
    mu, copies = p.micro_batches // degree, p.copies[degree > 1]
    needed = mu * sums([layer.activation_bytes for layer in p.layers])
    needed += copies * sums([layer.parameter_bytes for layer in p.layers]) + on.base_bytes
    # Behind layer i-1, before layer i: both ways. Nothing at the model's ends.
    passing = [
        (max(a.output_bytes, b.gradient_bytes) / on.bytes_per_s + p.latency_s)
        for a, b in zip(p.layers, p.layers[1:], strict=False)
    ]
    between = np.array([0.0, *passing, 0.0])
    loads = np.maximum(computed, np.maximum(between[:-1, None], between[None, :]))
    rows, columns = np.arange(count)[:, None], np.arange(count + 1)[None, :]
    return np.where((rows < columns) & (needed <= on.memory_bytes), loads, np.inf)


def _cuts(loads: Array) -> list[tuple[int, ...]]:
    """For each number of stages that is possible, the layers that begin one, but for the first."""
    count = len(loads)
    best = loads[0].copy()  # of the first r layers as one stage
    best[0] = np.inf
    froms: list[np.ndarray] = []
    found = [()] if np.isfinite(best[count]) else []
    for _ in range(1, count):
        through = np.maximum(best[:-1, None], loads)
        froms.append(through.argmin(axis=0))
        best = through.min(axis=0)
        if not np.isfinite(best).any():
            break
        if np.isfinite(best[count]):
            found.append(_back(froms, count))
    return found


def _back(froms: list[np.ndarray], count: int) -> tuple[int, ...]:
    starts, at = [], count
    for table in reversed(froms):
        at = int(table[at])
        starts.append(at)
    return tuple(reversed(starts))
