"""What systems do that do not choose a store, or choose nothing.

s3-only, server-only   the store of Siren and of Cirrus "by default" (CE-scaling section II-C3);
                       functions and memory as good as can be
lambda-ml, cirrus      no search: over S3, and over a server. Where all functions share a batch:
                       those of the most memory, as few as it fits into (FuncPipe section 5.1).
                       Where each has its own: table II's 10 of 1769 MB, or what is nearest
"""

from __future__ import annotations

from benchmarks.parts.choosing.answer import Answer, Goal
from benchmarks.parts.choosing.store_greedy import START_MIB, START_WORKERS
from benchmarks.parts.choosing.store_points import fits, point, points
from benchmarks.parts.choosing.store_problem import StoreOption, StorePlan, StoreProblem
from benchmarks.parts.choosing.stores import allowed_workers


def s3_only(problem: StoreProblem, goal: Goal) -> Answer[StorePlan]:
    """The best over the first store that does not sum up."""
    return _best(problem, goal, sums=False)


def server_only(problem: StoreProblem, goal: Goal) -> Answer[StorePlan]:
    """The best over the first server."""
    return _best(problem, goal, sums=True)


def lambda_ml(problem: StoreProblem, goal: Goal) -> Answer[StorePlan]:
    """One allocation, over the first store that does not sum up. It asks for no limits."""
    return _one(problem, goal, sums=False)


def cirrus(problem: StoreProblem, goal: Goal) -> Answer[StorePlan]:
    """One allocation, over the first server."""
    return _one(problem, goal, sums=True)


def _first(problem: StoreProblem, sums: bool) -> StoreOption | None:
    return next((one for one in problem.stores if one.sums is sums), None)


def _best(problem: StoreProblem, goal: Goal, *, sums: bool) -> Answer[StorePlan]:
    store = _first(problem, sums)
    if store is None:
        return Answer(None, "no such store")
    return Answer(goal.best(points(problem, (store,), allowed_workers(problem).tolist())))


def _one(problem: StoreProblem, goal: Goal, *, sums: bool) -> Answer[StorePlan]:
    store, workers = _first(problem, sums), allowed_workers(problem).tolist()
    if store is None:
        return Answer(None, "no such store")
    if problem.shared_batch:
        size = max(problem.sizes, key=lambda one: one.memory_mib)
        chosen = next((n for n in workers if fits(problem, size, n)), None)
    else:
        size = min(problem.sizes, key=lambda one: abs(one.memory_mib - START_MIB))
        chosen = min(workers, key=lambda n: abs(n - START_WORKERS))
    if chosen is None or not fits(problem, size, chosen):
        return Answer(None)
    return Answer(goal.best([point(problem, store, size, chosen)]))
