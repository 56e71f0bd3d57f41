"""Dollars of a step's messages, which the equations of cuts leave out.

FuncPipe's equation 3a has the dollars of functions alone. Requests of a small model may cost as
much, and the more micro-batches there are:

    each boundary          an output and a gradient of each micro-batch are put and got
    d replicas of a stage  each puts a part of its gradients for each other one, and a summed part
                           for all of them, and gets one of either from each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dayfly.catalogue.store import StoreFacts
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import Problem, StagesOverStore, over_store


def with_messages(
    problems: Sequence[Problem], points: Sequence[Point[PipelinePlan]], store: StoreFacts | None
) -> list[Point[PipelinePlan]]:
    """Returns plans in dollars of functions and of messages.

    Args:
        problems: that were searched.
        points: what was found, in dollars of functions.
        store: what the messages go through; None: they cost nothing, as over direct links.
    """
    stores = over_store(problems)
    return [
        replace(one, usd=one.usd + messages_usd(stores[one.plan.way], one.plan, store))
        if one.plan.way in stores
        else one
        for one in points
    ]


def messages_usd(problem: StagesOverStore, plan: PipelinePlan, store: StoreFacts | None) -> float:
    """Returns the dollars of a step's messages.

    Args:
        problem: that the plan is of.
        plan: a cut model, or a whole one.
        store: what the messages go through; None: they cost nothing.
    """
    if store is None:
        return 0.0
    layers, many = problem.layers, plan.micro_batches
    moved = [(many, many, layers[start - 1].output_bytes) for start in plan.starts]
    moved += [(many, many, layers[start].gradient_bytes) for start in plan.starts]
    for stage, d in zip(plan.stages, plan.replicas, strict=True):
        part_bytes = sum(layers[at].parameter_bytes for at in stage) / d
        moved += [(d * d, 2 * d * (d - 1), part_bytes)] if d > 1 else []
    usd = 0.0
    for puts, gets, each_bytes in moved:
        up_bytes, down_bytes = round(puts * each_bytes), round(gets * each_bytes)
        usd += store.puts_usd(puts, up_bytes) + store.gets_usd(gets, down_bytes)
        usd += store.transfer_usd(up_bytes, down_bytes)
    return usd
