"""What a plan takes, costs and holds, by the papers' equations: no search comes in here.

    t        seconds of a step: FuncPipe equation 7, Hydrozoa section 3.4 (corrected)
    dollars  of a step: t for each function of each stage, at its price (FuncPipe equation 6)

Equation 7 is taken stage by stage here, which is quicker than layer by layer. So stages may have
different numbers of replicas, too, which no paper has: each stage's own mu = M/d counts where it,
or its side of a boundary, sets the pace. `pipeline_of` is for the equations as they are printed.
"""

from __future__ import annotations

from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MicroBatches,
    Problem,
    StagesOverLinks,
    StagesOverStore,
)
from dayfly.planning.formulas import funcpipe, hydrozoa


def step_s(problem: Problem, plan: PipelinePlan) -> float:
    """Seconds of a step."""
    if isinstance(problem, StagesOverLinks):
        return _over_links_s(problem, plan)
    return _over_store_s(problem, plan)


def usd_per_s(problem: Problem, plan: PipelinePlan) -> float:
    """Of all functions together."""
    if isinstance(problem, StagesOverLinks):
        return plan.functions * of(problem, plan).container.usd_per_s
    prices = [problem.options[option].usd_per_s for option in plan.options]
    return sum(map(float.__mul__, prices, map(float, plan.replicas)))


def step_usd(problem: Problem, plan: PipelinePlan) -> float:
    """Dollars of a step."""
    return step_s(problem, plan) * usd_per_s(problem, plan)


def memory_bytes(problem: Problem, plan: PipelinePlan) -> tuple[float, ...]:
    """What a function of each stage needs: mu a + copies s + s_0 (FuncPipe 3b)."""
    if isinstance(problem, StagesOverLinks):
        layers: tuple[LayerBytes, ...] = of(problem, plan).layers
        bases = [of(problem, plan).container.base_bytes] * len(plan.options)
    else:
        layers, bases = problem.layers, [problem.options[one].base_bytes for one in plan.options]
    held = []
    for stage, replicas, base_bytes in zip(plan.stages, plan.replicas, bases, strict=True):
        copies = problem.copies[replicas > 1]
        kept = plan.micro_batches // replicas * sum(layers[i].activation_bytes for i in stage)
        held.append(kept + copies * sum(layers[i].parameter_bytes for i in stage) + base_bytes)
    return tuple(held)


def of(problem: StagesOverLinks, plan: PipelinePlan) -> MicroBatches:
    """The micro-batches of a plan. Raises ValueError if the problem has no such."""
    found = [one for one in problem.micro_batches if one.micro_batches == plan.micro_batches]
    if not found:
        raise ValueError(f"no way to make {plan.micro_batches} micro-batches")
    return found[0]


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


def _over_links_s(problem: StagesOverLinks, plan: PipelinePlan) -> float:
    way, replicas = of(problem, plan), plan.replicas[0]
    rate = way.container.bytes_per_s
    pipeline_s = hydrozoa.pipeline_s(
        [sum(way.container.forward_s[i] for i in stage) for stage in plan.stages],
        [sum(way.container.backward_s[i] for i in stage) for stage in plan.stages],
        [hydrozoa.boundary_s(way.layers[start - 1].output_bytes, rate) for start in plan.starts],
        plan.micro_batches // replicas,
    )
    return hydrozoa.iteration_s(
        pipeline_s,
        [
            hydrozoa.synchronisation_s(
                sum(way.layers[i].parameter_bytes for i in stage),
                replicas,
                rate,
                problem.ring_s_per_byte,
                problem.ring_round_s,
            )
            for stage in plan.stages
        ],
    )


def _over_store_s(problem: StagesOverStore, plan: PipelinePlan) -> float:
    """Equation 7, from the last stage to the first; see above."""
    forward_s = lag_f = behind_s = lag_b = latest_s = 0.0
    above = None
    for number in reversed(range(len(plan.options))):
        option = problem.options[plan.options[number]]
        stage, replicas = plan.stages[number], plan.replicas[number]
        more = plan.micro_batches // replicas - 1
        f = problem.beta * sum(option.forward_s[i] for i in stage)
        b = problem.beta * sum(option.backward_s[i] for i in stage)
        if above is not None:  # the boundary behind this stage
            rates = [(option.bytes_per_s, more), above]
            for size, backward in (
                (problem.layers[stage[-1]].output_bytes, False),
                (problem.layers[stage[-1] + 1].gradient_bytes, True),
            ):
                ways = [(size / rate + problem.latency_s, mu) for rate, mu in rates]
                total, lag = sum(s for s, _ in ways), max(s * mu for s, mu in ways)
                if backward:
                    behind_s, lag_b = behind_s + total, max(lag_b, lag)
                else:
                    forward_s, lag_f = forward_s + total, max(lag_f, lag)
        forward_s, lag_f = forward_s + f, max(lag_f, more * f)
        behind_s, lag_b = behind_s + b, max(lag_b, more * b)
        sync_s = 0.0
        if replicas > 1:
            gamma, delta = funcpipe.gamma_and_delta(replicas, pipelined=plan.pipelined)
            size = sum(problem.layers[i].parameter_bytes for i in stage)
            sync_s = gamma * size / option.bytes_per_s + delta * problem.latency_s
        latest_s = max(latest_s, behind_s + lag_b + sync_s)
        above = (option.bytes_per_s, more)
    return forward_s + lag_f + latest_s
