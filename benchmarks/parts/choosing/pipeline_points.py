"""Cut models as FuncPipe and its peers make them: one number of replicas for all stages."""

from __future__ import annotations

from collections.abc import Sequence

from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    StagesOverLinks,
    StagesOverStore,
    memory_bytes,
    of,
    step_s,
    step_usd,
)


def plan_over_store(
    problem: StagesOverStore,
    starts: Sequence[int],
    options: Sequence[int],
    replicas: int,
    *,
    pipelined: bool = True,
) -> PipelinePlan:
    """starts: layers that begin a stage, but for the first. options: of each stage."""
    return PipelinePlan(
        layers=len(problem.layers),
        starts=tuple(starts),
        options=tuple(options),
        memory_mib=tuple(problem.options[one].memory_mib for one in options),
        replicas=(replicas,) * len(options),
        micro_batches=problem.micro_batches,
        collective="pipelined" if pipelined else "scatter-reduce",
        store=problem.store,
        schedule=problem.schedule,
    )


def holds(problem: StagesOverStore | StagesOverLinks, plan: PipelinePlan) -> bool:
    """Whether each stage fits its functions (FuncPipe 3b), and no more run than may."""
    if isinstance(problem, StagesOverStore):
        room = [problem.options[one].memory_bytes for one in plan.options]
        if plan.functions > (problem.functions_at_once or plan.functions):
            return False
        vcpus = sum(
            d * problem.options[j].vcpus for j, d in zip(plan.options, plan.replicas, strict=True)
        )
        if problem.vcpus_at_once is not None and vcpus > problem.vcpus_at_once * (1 + 1e-9):
            return False
    else:
        room = [of(problem, plan).container.memory_bytes] * len(plan.options)
    return all(need <= has for need, has in zip(memory_bytes(problem, plan), room, strict=True))


def point(problem: StagesOverStore | StagesOverLinks, plan: PipelinePlan) -> Point[PipelinePlan]:
    """What it takes and costs, by the product's equations."""
    return Point(step_s(problem, plan), step_usd(problem, plan), plan)
