"""LambdaML on FasDL's problem: one aggregator or all of them, each with as many samples.

    scatter-opt, all-opt   ScatterReduce (K = W) and AllReduce (K = 1), all of whose W, M and B are
                           tried (FasDL section VIII-D, table IV)
    lambda-ml              no search: functions of the most memory, each with as many samples as
                           fit, so as few as make up the global batch; ScatterReduce (FuncPipe
                           section 5.1)

All workers wait for each other: there is no hybrid protocol, and no one has more samples.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.parts.choosing.answer import Answer, Goal
from benchmarks.parts.choosing.k_reduce_costs import synchronous
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.k_reduce_problem import FunctionSize, KReducePlan, KReduceProblem


def scatter_opt(problem: KReduceProblem, goal: Goal) -> Answer[KReducePlan]:
    """The best ScatterReduce."""
    ways = ((workers, workers) for workers in problem.workers)
    return Answer(goal.best(_every(problem, goal, ways)))


def all_opt(problem: KReduceProblem, goal: Goal) -> Answer[KReducePlan]:
    """The best AllReduce."""
    return Answer(goal.best(_every(problem, goal, ((workers, 1) for workers in problem.workers))))


def lambda_ml(problem: KReduceProblem, goal: Goal) -> Answer[KReducePlan]:
    """The largest functions, as few as hold the global batch. It asks for no deadline."""
    size = max(problem.sizes, key=lambda one: one.memory_mib)
    for workers in sorted(problem.workers):
        samples = problem.most_global_samples // workers
        if size.allows(workers) and 1 <= samples <= size.most_samples:
            seconds, usd = synchronous(problem, size, workers, workers, samples)
            return Answer(goal.best([_point(size, workers, workers, samples, seconds, usd)]))
    return Answer(None)


def _every(
    problem: KReduceProblem, goal: Goal, ways: Iterable[tuple[int, int]]
) -> list[Point[KReducePlan]]:
    """The best B of each W, M, and K."""
    every = np.array(problem.aggregators_samples, dtype=np.int64)
    found = []
    for workers, aggregators in ways:
        for size in problem.sizes:
            most = min(size.most_samples, problem.most_global_samples // workers)
            samples = every[every <= most]
            if not len(samples) or not size.allows(workers):
                continue
            seconds, usd = synchronous(problem, size, workers, aggregators, samples)
            values = np.where(
                seconds <= goal.deadline_s, goal.alpha1 * usd + goal.alpha2 * seconds, np.inf
            )
            at = int(np.lexsort((seconds, values))[0])
            found.append(_point(size, workers, aggregators, int(samples[at]), seconds[at], usd[at]))
    return found


def _point(
    size: FunctionSize, workers: int, aggregators: int, samples: int, seconds: float, usd: float
) -> Point[KReducePlan]:
    plan = KReducePlan(
        workers=workers,
        memory_mib=size.memory_mib,
        aggregators=aggregators,
        aggregators_samples=samples,
        others_samples=samples if workers > aggregators else 0,
    )
    return Point(float(seconds), float(usd), plan)
