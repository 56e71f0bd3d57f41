"""Which plans a case of the search has: options of stages, how replicas sum up, and functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dayfly.planning.choose.arrays import Ints
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.bounds import Found
from dayfly.planning.choose.pipelines.model import thousandths
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    StagesOverStore,
    memory_bytes,
    step_s,
    usd_per_s,
)
from dayfly.planning.decline import left_of_bandwidth

_ANY_NUMBER = 10**15
#: Of bytes, added up in another order.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Way:
    """What stages may be, and how a step's gradients are summed.

    Attributes:
        choices: of a stage, pairs of memory option and replicas.
        pipelined: whether replicas sum up by pipelined scatter-reduce: all that there are.
        functions: at most, and the number of which the bandwidth is.
        most: replicas of a stage, at most, by which others hold more micro-batches; None: they do
            not.
    """

    problem: StagesOverStore
    choices: tuple[tuple[int, int], ...]
    pipelined: tuple[bool, ...]
    functions: int
    most: int | None = None


def most_of(way: Way) -> Ints:
    """Returns (2,), functions and thousandths of vCPUs that a plan may have.

    Args:
        way: of the plan.
    """
    vcpus = way.problem.vcpus_at_once
    return np.array(
        [way.functions, _ANY_NUMBER if vcpus is None else thousandths([vcpus])[0]],
    )


def ways_of(problem: StagesOverStore, *, tight: bool) -> list[Way]:
    """Returns the ways of a problem, which have all its plans.

    Args:
        problem: of cuts over a store.
        tight: whether each has a largest number of replicas, by which its plans fit; else they may
            hold more than there is room for.
    """
    options = range(len(problem.options))
    both = tuple(sorted(set(problem.pipelined), reverse=True))
    # With two replicas both scatter-reduces take as long, and one sums nothing.
    first = both[:1]
    ways: list[tuple[Sequence[int], int | None]] = [((d,), None) for d in problem.divisors]
    if problem.mixed:
        mosts = problem.divisors if tight else (None,)
        ways = [([d for d in problem.divisors if not most or d <= most], most) for most in mosts]
    return [
        Way(
            problem,
            tuple((j, d) for d in degrees for j in options),
            first if max(degrees) <= 2 else both,
            functions,
            most,
        )
        for degrees, most in ways
        for functions in _numbers(problem, min(degrees))
    ]


def _numbers(problem: StagesOverStore, step: int) -> list[int]:
    """The largest number of functions with each part of the bandwidth that may be left.

    step: between numbers, replicas of a stage.
    """
    largest = {
        left_of_bandwidth(problem.decline, number): number
        for number in range(step, problem.most_functions + 1, step)
    }
    return sorted(largest.values()) or [problem.most_functions]


def path_of(plan: PipelinePlan, way: Way) -> Ints | None:
    """Returns the stages of a plan as a case has them (`Found`); None: it is none of this way's.

    Args:
        plan: any.
        way: of the case.
    """
    one = way.problem
    if (plan.schedule, plan.micro_batches) != (one.schedule, one.micro_batches):
        return None
    number = {choice: k for k, choice in enumerate(way.choices)}
    choices = [number.get(choice) for choice in zip(plan.options, plan.replicas, strict=True)]
    if None in choices or (max(plan.replicas) > 1 and plan.pipelined not in way.pipelined):
        return None
    ends = [stage[-1] for stage in plan.stages]
    return np.array([*zip(ends, choices, strict=True)][::-1], dtype=np.int64)


def fits(way: Way, found: Found) -> bool:
    """Returns whether each stage has the memory that it needs beside the others as they are.

    Args:
        way: of the plan.
        found: the plan.
    """
    plan, options = _plan(way, found), way.problem.options
    needs = memory_bytes(way.problem, plan)
    room = (options[j].memory_bytes for j in plan.options)
    return all(need <= (1 + _ROUNDING) * least for need, least in zip(needs, room, strict=True))


def _plan(way: Way, found: Found) -> PipelinePlan:
    problem = way.problem
    stages = [(int(r), *way.choices[k]) for r, k in reversed(found.path.tolist())]
    return PipelinePlan(
        layers=len(problem.layers),
        starts=tuple(r + 1 for r, _, _ in stages[:-1]),
        options=tuple(j for _, j, _ in stages),
        memory_mib=tuple(problem.options[j].memory_mib for _, j, _ in stages),
        replicas=tuple(d for _, _, d in stages),
        micro_batches=problem.micro_batches,
        collective="pipelined" if way.pipelined[found.summed] else "scatter-reduce",
        store=problem.store,
        schedule=problem.schedule,
    )


def point_of(way: Way, found: Found) -> Point[PipelinePlan]:
    """Returns a plan with its seconds and dollars a step, and what limits it.

    Args:
        way: of the plan.
        found: the plan.
    """
    problem, plan = way.problem, _plan(way, found)
    limits = []
    most = problem.functions_at_once
    if most is not None and plan.functions + min(problem.divisors) > most:
        limits.append(f"{most} functions at once")
    if problem.vcpus_at_once is not None:
        stages = zip(plan.options, plan.replicas, strict=True)
        used = sum(problem.options[j].vcpus * d for j, d in stages)
        if used + min(one.vcpus for one in problem.options) > problem.vcpus_at_once:
            limits.append(f"{problem.vcpus_at_once:g} vCPUs at once")
    largest = max(option.memory_mib for option in problem.options)
    if largest in plan.memory_mib:
        limits.append(f"functions of {largest} MiB")
    seconds = step_s(problem, plan)
    return Point(seconds, seconds * usd_per_s(problem, plan), plan, tuple(limits))
