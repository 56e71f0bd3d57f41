"""The front of cut models: seconds against dollars of a step, to the proven optimum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

from dayfly.errors import RequestError
from dayfly.plan.choose.front import Front, Point
from dayfly.plan.choose.pipelines.plan import PipelinePlan
from dayfly.plan.choose.pipelines.problem import Problem, StagesOverLinks, StagesOverStore
from dayfly.plan.choose.pipelines.taken import memory_bytes, of, step_s, step_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was found, and how sure it is.

    front: seconds and dollars of one step. gap: certified: for every plan there is, the front has
    one that takes at most (1 + gap) of its seconds and costs at most (1 + gap) of its dollars;
    0.0: nothing beats the front, but for rounding (1e-9).
    """

    front: Front[PipelinePlan]
    gap: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether nothing is better."""
        return self.gap == 0.0


def choose(*problems: Problem, time_limit_s: float | None = None) -> Choice:
    """All plans that none dominates, of one problem or of several together, such as of stores.

    time_limit_s: after so long the search ends with what it has, and a gap above 0; None: it goes
    on until it is exact. Raises RequestError, with the nearest that would do, if the model fits
    nowhere.
    """
    points = [
        Point(step_s(problem, plan), step_usd(problem, plan), plan)
        for problem in problems
        for plan in _every_plan(problem)
    ]
    if not points:
        raise RequestError("the model fits nowhere: take larger functions")
    return Choice(front=Front.of(points))


def _every_plan(problem: Problem) -> Iterator[PipelinePlan]:
    if isinstance(problem, StagesOverLinks):
        for way in problem.micro_batches:
            for n in problem.containers:
                for replicas in range(1, n + 1):
                    if n % replicas or way.micro_batches % replicas:
                        continue
                    count = len(way.layers)
                    for starts in combinations(range(1, count), n // replicas - 1):
                        plan = PipelinePlan(
                            layers=count,
                            starts=starts,
                            options=(0,) * (n // replicas),
                            memory_mib=(way.container.memory_mib,) * (n // replicas),
                            replicas=(replicas,) * (n // replicas),
                            micro_batches=way.micro_batches,
                            collective="ring",
                        )
                        if fits(problem, plan):
                            yield plan
        return
    count = len(problem.layers)
    for stages in range(1, count + 1):
        for starts in combinations(range(1, count), stages - 1):
            for options in product(range(len(problem.options)), repeat=stages):
                for replicas in product(problem.divisors, repeat=stages):
                    if not problem.mixed and len(set(replicas)) > 1:
                        continue
                    for pipelined in problem.pipelined:
                        plan = PipelinePlan(
                            layers=count,
                            starts=starts,
                            options=options,
                            memory_mib=tuple(problem.options[o].memory_mib for o in options),
                            replicas=replicas,
                            micro_batches=problem.micro_batches,
                            collective="pipelined" if pipelined else "scatter-reduce",
                            store=problem.store,
                        )
                        if fits(problem, plan):
                            yield plan


def fits(problem: Problem, plan: PipelinePlan) -> bool:
    """Whether each stage's functions hold it (FuncPipe 3b), and no more are there than may be."""
    if isinstance(problem, StagesOverStore):
        room = [problem.options[one].memory_bytes for one in plan.options]
        if plan.functions > (problem.functions_at_once or plan.functions):
            return False
    else:
        room = [of(problem, plan).container.memory_bytes] * len(plan.options)
    return all(need <= has for need, has in zip(memory_bytes(problem, plan), room, strict=True))
