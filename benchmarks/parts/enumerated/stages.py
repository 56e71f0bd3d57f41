"""Cut models: every cut, memory sizes, replicas and micro-batches, by the papers' equations."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations, product

from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    Problem,
    StagesOverLinks,
    StagesOverStore,
    memory_bytes,
    of,
    step_s,
    step_usd,
)


def every_point(
    problem: Problem, begins: Collection[int] | None = None
) -> list[Point[PipelinePlan]]:
    """What every plan takes.

    Args:
        problem: over a store or links.
        begins: layers at which a stage may begin; None: any.
    """
    plans = over_links(problem) if isinstance(problem, StagesOverLinks) else over_store(problem)
    return [
        Point(step_s(problem, plan), step_usd(problem, plan), plan)
        for plan in plans
        if (begins is None or set(plan.starts) <= set(begins)) and fits(problem, plan)
    ]


def over_links(problem: StagesOverLinks) -> Iterator[PipelinePlan]:
    """All A x B, micro-batches and cuts, whether they fit or not."""
    for way, n in product(problem.micro_batches, problem.containers):
        for replicas in range(1, n + 1):
            if n % replicas or way.micro_batches % replicas:
                continue
            shards, count = n // replicas, len(way.layers)
            for starts in combinations(range(1, count), shards - 1):
                yield PipelinePlan(
                    layers=count,
                    starts=starts,
                    options=(0,) * shards,
                    memory_mib=(way.container.memory_mib,) * shards,
                    replicas=(replicas,) * shards,
                    micro_batches=way.micro_batches,
                    collective="ring",
                    schedule=problem.schedule,
                )


def over_store(problem: StagesOverStore) -> Iterator[PipelinePlan]:
    """All cuts, memory sizes, replicas and collectives, whether they fit or not."""
    count, sizes = len(problem.layers), range(len(problem.options))
    for stages in range(1, count + 1):
        replicas = [(d,) * stages for d in problem.divisors]
        if problem.mixed:
            replicas = list(product(problem.divisors, repeat=stages))
        for starts, options, each, pipelined in product(
            combinations(range(1, count), stages - 1),
            product(sizes, repeat=stages),
            replicas,
            problem.pipelined,
        ):
            yield PipelinePlan(
                layers=count,
                starts=starts,
                options=options,
                memory_mib=tuple(problem.options[j].memory_mib for j in options),
                replicas=each,
                micro_batches=problem.micro_batches,
                collective="pipelined" if pipelined else "scatter-reduce",
                store=problem.store,
                schedule=problem.schedule,
            )


def fits(problem: Problem, plan: PipelinePlan) -> bool:
    """Whether each stage's functions hold it (FuncPipe 3b), and no more are there than may be."""
    if isinstance(problem, StagesOverStore):
        room = [problem.options[one].memory_bytes for one in plan.options]
        if plan.functions > (problem.functions_at_once or plan.functions):
            return False
        vcpus = [problem.options[j].vcpus for j in plan.options]
        used = sum(round(1000 * each) * d for each, d in zip(vcpus, plan.replicas, strict=True))
        if problem.vcpus_at_once is not None and used > round(1000 * problem.vcpus_at_once):
            return False
    else:
        room = [of(problem, plan).container.memory_bytes] * len(plan.options)
    return all(need <= has for need, has in zip(memory_bytes(problem, plan), room, strict=True))
