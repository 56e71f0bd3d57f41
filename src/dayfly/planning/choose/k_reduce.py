"""Workers, memory, aggregators and batches of K-REDUCE (FasDL section VI), to the proven optimum.

All (M, W, K, B^a) that bounds leave open (`k_reduce_bounds`) are gone through, as arrays. B^n is
not. With A = K B^a and x = 1/B^g it is (1/x - A)/(W - K), so that

    T = (T_load + T_step D x) E,    T_load = (S_m + S_d B^n x)/tp_down

is a straight line in x as long as T_step does not depend on B^n, and so is the price, P T + R x.
T_step is the slower of two rounds (`fasdl.hybrid_step_s`): an aggregator's, which does not depend
on B^n, and another's, which grows by a line with B^n: T is a straight line in x then, too. So B^n
has two pieces, up to where both rounds take as long, and beyond, and their ends are what matters:

    B^a ........ balance | balance + 1 ........ cap

Nothing between two ends is faster or cheaper than both. But one may be the faster and the other the
cheaper, as where more samples take others longer and save requests. Then all between may belong to
the front: they are gone through, unless something dominates the corner that both ends would make.

Limits (section VI, corrected as in docs/errata.md): B^g <= its limit; B^a <= B_M; B^n at least B^a,
without which equation 5 would not hold, and at most what B_M, B^g and equation 16 allow, rounded
down. FasDL itself searches in two stages: for W, M and B^a with K = W, then
for K and B^n.

A function lives for an epoch, as in the paper, however long that is: lifetimes are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dayfly.errors import RequestError
from dayfly.planning.choose.arrays import Ints, dominated
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.k_reduce_bounds import Candidates, Taken, open_candidates
from dayfly.planning.choose.k_reduce_problem import KReducePlan, KReduceProblem, Rounds, Tables

#: B^n that are gone through at once.
_AT_ONCE = 500_000


def plan_k_reduce(problem: KReduceProblem) -> Front[KReducePlan]:
    """All plans that none dominates.

    Raises RequestError if none keeps the limits of memory and of the global batch.
    """
    tables, found = _searched(problem, 0.0)
    return Front(tuple(_points(tables, Taken.front(found))))


def near_k_reduce(problem: KReduceProblem, slack: float, most: int) -> list[Point[KReducePlan]]:
    """Returns the plans that are as near to the front as `Front.near` has it, of those at the ends
    of both pieces of B^n, and the front.

    Args:
        problem: of the job.
        slack: relative error of the equations.
        most: plans to return.

    Raises:
        RequestError: as of `plan_k_reduce`.
    """
    tables, found = _searched(problem, slack)
    return _points(tables, Taken.joined(found).near(slack, most))


def _searched(problem: KReduceProblem, slack: float) -> tuple[Tables, list[Taken]]:
    """The front, and the ends of all pieces that are worse by no more than the slack."""
    _check(problem)
    tables = Tables.of(problem)
    found = open_candidates(tables, slack)
    if found is None:
        raise RequestError(
            f"of no size that holds a batch there may be {min(problem.workers)} functions at once: "
            "allow more vCPUs, or fewer functions"
        )
    candidates, best = found
    ends = [candidates.taken(others) for others in candidates.ends()]
    best = Taken.front([*ends, best])
    for low, high in (ends[:2], ends[2:]):
        opposed = (low.seconds - high.seconds) * (low.usd - high.usd) < 0
        at = np.flatnonzero(opposed & (high.others - low.others > 1))
        for rows, others in _between(best, low.only(at), high.only(at)):
            rounds = Rounds.of(tables, low.size[at[rows]], low.pair[at[rows]])
            between = Candidates.of(rounds, low.samples[at[rows]]).taken(others)
            best = Taken.front([best, between])
    return tables, [best, *ends]


def _points(tables: Tables, taken: Taken) -> list[Point[KReducePlan]]:
    largest_mib = max(one.memory_mib for one in tables.problem.sizes)
    return [_point(tables, taken, at, largest_mib) for at in range(len(taken.size))]


def _between(best: Taken, low: Taken, high: Taken) -> Iterator[tuple[Ints, Ints]]:
    """Of which piece, and B^n between its ends, for pieces that may have better ones."""
    corner_s = np.minimum(low.seconds, high.seconds)
    corner_usd = np.minimum(low.usd, high.usd)
    open_ = np.flatnonzero(~dominated(corner_s, corner_usd, best.seconds, best.usd))
    counts = high.others[open_] - low.others[open_] - 1
    parts = np.split(open_, np.flatnonzero(np.diff(np.cumsum(counts) // _AT_ONCE)) + 1)
    for part in parts if len(open_) else []:
        count = high.others[part] - low.others[part] - 1
        first = np.repeat(np.cumsum(count) - count, count)
        inside = np.arange(count.sum()) - first
        yield np.repeat(part, count), np.repeat(low.others[part] + 1, count) + inside


def _check(problem: KReduceProblem) -> None:
    p, least = problem, min(problem.aggregators_samples)
    largest = max(p.sizes, key=lambda size: size.most_samples)
    if largest.most_samples < least:
        holds = (
            f"functions of {largest.memory_mib} MiB hold {largest.most_samples} of it: allow "
            "smaller batches"
            if largest.most_samples
            else f"functions of {largest.memory_mib} MiB hold none of it: cut it into stages"
        )
        raise RequestError(
            f"the model fits nowhere with {least} samples a function: even {holds}, or take larger "
            "functions"
        )
    workers = next((one for one in sorted(p.workers) if len(p.aggregators_of(one))), None)
    if workers is None:
        fewest = min(p.aggregators or (1,))
        raise RequestError(
            f"{fewest} aggregators are more than {max(p.workers)} functions: allow {fewest} "
            "functions, or fewer aggregators"
        )
    if workers * least > p.most_global_samples:
        raise RequestError(
            f"a global batch of {p.most_global_samples} is too small for {workers} functions with "
            f"{least} samples each: allow {workers * least}, or fewer functions or samples"
        )


def _point(tables: Tables, taken: Taken, at: int, largest_mib: int) -> Point[KReducePlan]:
    problem, grid = tables.problem, tables.grid
    pair = int(taken.pair[at])
    workers, aggregators = int(grid.workers[pair]), int(grid.aggregators[pair])
    plan = KReducePlan(
        workers=workers,
        memory_mib=problem.sizes[int(taken.size[at])].memory_mib,
        aggregators=aggregators,
        aggregators_samples=int(taken.samples[at]),
        others_samples=int(taken.others[at]) if workers > aggregators else 0,
    )
    limits = _limits(problem, plan, int(taken.size[at]), largest_mib)
    return Point(float(taken.seconds[at]), float(taken.usd[at]), plan, limits)


def _limits(
    problem: KReduceProblem, plan: KReducePlan, number: int, largest_mib: int
) -> tuple[str, ...]:
    """What the plan is at the limit of: more of it might allow a better one."""
    size, found = problem.sizes[number], []
    if plan.workers in (max(problem.workers), size.most_workers):
        found.append(f"{plan.workers} functions at once")
    if size.memory_mib == largest_mib:
        found.append(f"functions of {size.memory_mib} MiB")
    # The next larger plan has a sample more for each of the others, or the next batch for all.
    more = plan.workers - plan.aggregators
    if not more:
        batch = plan.aggregators_samples
        larger = min((one for one in problem.aggregators_samples if one > batch), default=batch)
        more = plan.workers * (larger - batch)
    if more and plan.global_samples + more > problem.most_global_samples:
        found.append(f"a global batch of {problem.most_global_samples}")
    if max(plan.others_samples, plan.aggregators_samples) == size.most_samples:
        found.append(f"{size.most_samples} samples in {size.memory_mib} MiB")
    return tuple(found)
