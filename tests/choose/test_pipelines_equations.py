"""What a plan takes, costs and holds is what the papers' equations say, as they are printed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.parts.enumerated.stages import over_store as every_plan
from benchmarks.parts.papers.formulas import funcpipe

from dayfly.planning.choose.pipelines.bound_kernels import weigh
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.model import over_store
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    StagesOverStore,
    memory_bytes,
    step_s,
    step_usd,
    usd_per_s,
)
from tests.choose.pipelines_by_hand import random_problem

PROBLEMS = [
    random_problem(seed, layers=5, options=2, beta=beta, latency_s=latency_s)
    for seed in range(4)
    for beta, latency_s in ((1.0, 0.0), (1.3, 0.2))
]


def some_plans(problem: StagesOverStore, seed: int = 0) -> list[PipelinePlan]:
    plans = list(every_plan(problem))
    return [plans[i] for i in np.random.default_rng(seed).integers(len(plans), size=60)]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_funcpipes_equations(problem: StagesOverStore) -> None:
    for plan in some_plans(problem):
        printed = pipeline_of(problem, plan)
        exactly = {"rel": 1e-12}
        assert step_s(problem, plan) == pytest.approx(funcpipe.iteration_s(printed), **exactly)
        price = problem.options[0].usd_per_s / problem.options[0].memory_mib  # all are of it
        assert plan.degree is not None
        total = funcpipe.total_memory(plan.degree, plan.memory_mib)
        usd = funcpipe.iteration_usd(price, funcpipe.iteration_s(printed), total)
        assert step_usd(problem, plan) == pytest.approx(usd, **exactly)
        base = problem.options[0].base_bytes
        held = funcpipe.memory_bytes(printed, base)
        assert memory_bytes(problem, plan) == pytest.approx(held, **exactly)


@pytest.mark.parametrize("mixed", [False, True])
def test_the_searchs_model_is_the_same(mixed: bool) -> None:
    problem = random_problem(3, layers=4, options=2, mixed=mixed, latency_s=0.1)
    choices = [(j, d) for j in range(2) for d in problem.divisors]
    for pipelined in (True, False):
        model = over_store(problem, choices, pipelined=pipelined)
        for plan in some_plans(problem):
            if plan.pipelined is not pipelined:
                continue
            stages = zip(plan.stages, plan.options, plan.replicas, strict=True)
            path = [(stage[-1], choices.index((j, d))) for stage, j, d in stages]
            (taken,) = weigh(
                np.array(path[::-1]),
                model.stages,
                model.sides,
                np.isfinite(model.lag_f_s),
                model.tail_s[None],
                model.uses,
                model.deepest,
                np.array([10**9, 10**9]),
            )
            if np.isfinite(taken):  # it is not, where the layers do not fit
                assert taken == pytest.approx(step_s(problem, plan), rel=1e-12)
            stages_usd = model.usd_per_s[[k for _, k in path]].sum()
            assert usd_per_s(problem, plan) == pytest.approx(stages_usd, rel=1e-12)


def test_equal_replicas_are_the_same_as_one_number_of_them() -> None:
    """And others pass more micro-batches each: the stage with fewer replicas sets the pace."""
    problem = random_problem(0, layers=3, options=1, mixed=True)
    plans = {plan.replicas: plan for plan in every_plan(problem) if plan.starts == (1,)}
    times = {replicas: step_s(problem, plan) for replicas, plan in plans.items()}
    assert times[1, 1] > times[1, 2]
    with pytest.raises(ValueError, match="one number of replicas"):
        pipeline_of(problem, plans[1, 2])


def test_in_words() -> None:
    plan = PipelinePlan(
        layers=9,
        starts=(3, 5),
        options=(1, 1, 0),
        memory_mib=(2048, 2048, 1024),
        replicas=(2, 2, 2),
        micro_batches=16,
        collective="pipelined",
        store="s3",
    )
    assert str(plan) == (
        "3 stages (cut before layer 3, 5) of 2 x 2048 MiB, 1 x 1024 MiB, 2 replicas, "
        "16 micro-batches, pipelined over s3"
    )
    assert plan.functions == 6
    assert plan.degree == 2
    assert plan.stages == (range(3), range(3, 5), range(5, 9))
    with pytest.raises(ValueError, match="give layers 1 to the last"):
        PipelinePlan(
            layers=2,
            starts=(2,),
            options=(0, 0),
            memory_mib=(1, 1),
            replicas=(1, 1),
            micro_batches=1,
            collective="ring",
        )
    with pytest.raises(ValueError, match="2 stages have values for"):
        PipelinePlan(
            layers=2,
            starts=(1,),
            options=(0,),
            memory_mib=(1,),
            replicas=(1,),
            micro_batches=1,
            collective="ring",
        )


def pipeline_of(problem: StagesOverStore, plan: PipelinePlan) -> funcpipe.Pipeline:
    """The plan as FuncPipe's equations have it. Raises ValueError for different replicas."""
    if plan.degree is None:
        raise ValueError("FuncPipe has one number of replicas for all stages")
    chosen = [problem.options[option] for option in plan.options]
    on = [option for option, stage in zip(chosen, plan.stages, strict=True) for _ in stage]
    return funcpipe.Pipeline(
        layers=tuple(
            funcpipe.Layer(
                parameter_bytes=layer.parameter_bytes,
                activation_bytes=layer.activation_bytes,
                output_bytes=layer.output_bytes,
                gradient_bytes=layer.gradient_bytes,
                forward_s=on[i].forward_s[i],
                backward_s=on[i].backward_s[i],
            )
            for i, layer in enumerate(problem.layers)
        ),
        starts=plan.starts,
        replicas=plan.degree,
        micro_batches=plan.micro_batches,
        bytes_per_s=tuple(option.bytes_per_s for option in chosen),
        latency_s=problem.latency_s,
        beta=problem.beta,
        pipelined=plan.pipelined,
    )


def test_replicas_of_a_stage_share_the_store() -> None:
    """Four replicas of W each over a store of 2 W have W/2 each, as if their links had no more; one
    replica has all of W."""
    problem = random_problem(7, layers=5, options=2)
    rate = problem.options[0].bytes_per_s
    shared = replace(problem, store_bytes_per_s=2 * rate)
    narrow = replace(
        problem, options=tuple(replace(one, bytes_per_s=rate / 2) for one in problem.options)
    )
    for plan in every_plan(problem):
        expected = {1: problem, 2: problem, 4: narrow}[plan.replicas[0]]
        assert step_s(shared, plan) == step_s(expected, plan)
    assert choose(shared).front.fastest.seconds > choose(problem).front.fastest.seconds
