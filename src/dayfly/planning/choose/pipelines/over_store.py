"""FuncPipe's problem, exactly: every degree and collective as a case, all with one front in view.

    1  bounds for any price, and a few plans, of each case
    2  bounds by price in coarse classes, then in finer ones of what is still open
    3  a beam, for better plans to compare with
    4  all labels: what is not found then is no better than what is known

`bounds` and `labels` say how. A case whose bounds are no better than what is known is
closed at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dayfly.planning.choose.arrays import Ints
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.bounds import Case, Found, Known, first_look, look, refine
from dayfly.planning.choose.pipelines.engine import Engine
from dayfly.planning.choose.pipelines.incumbents import Incumbents
from dayfly.planning.choose.pipelines.labels import OutOfTime, search
from dayfly.planning.choose.pipelines.model import over_store, thousandths
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import StagesOverStore
from dayfly.planning.choose.pipelines.taken import step_s, step_usd

#: With a time limit, what is better by this part is looked for first.
_FIRST_WITHIN = 0.01
_ANY_NUMBER = 10**15


@dataclass(frozen=True, slots=True)
class _Way:
    """Options of stages as pairs of memory option and replicas, and how replicas sum up."""

    problem: StagesOverStore
    choices: tuple[tuple[int, int], ...]
    pipelined: bool


def search_over_store(
    problems: Sequence[StagesOverStore], engine: Engine, deadline: float | None
) -> tuple[list[Point[PipelinePlan]], float]:
    """The front of all problems together, and its gap; nothing, if nothing fits.

    deadline: of time.perf_counter; the first look is always taken.
    """
    known: Known = Incumbents()
    ways = [way for problem in problems for way in _ways(problem)]
    cases = []
    for number, way in enumerate(ways):
        model = over_store(way.problem, way.choices, pipelined=way.pipelined)
        case = first_look(number, model, engine, known, _most(way.problem))
        if case is not None:
            cases.append(case)
    gap = _search(cases, engine, known, deadline)
    return [_point(ways[found.case], found) for found in known.plans], gap


def _search(cases: list[Case], engine: Engine, known: Known, deadline: float | None) -> float:
    """Gives the gap."""
    sure = [0.0 if deadline is None else float("inf")] * len(cases)

    def is_late() -> bool:
        return deadline is not None and time.perf_counter() > deadline

    for step in (_by_price, refine):
        for case in cases:
            if not is_late():
                step(case, engine, known)
    try:
        for case in cases:
            case.close(known)
            if len(case.classes):
                search(case, engine, known, beam=True, deadline=deadline)
        for within in (0.0,) if deadline is None else (_FIRST_WITHIN, 0.0):
            for at, case in enumerate(cases):
                case.close(known)
                if len(case.classes):
                    search(case, engine, known, within=within, deadline=deadline)
                sure[at] = within
    except OutOfTime:
        pass
    gaps = (min(case.gap(known), part) for case, part in zip(cases, sure, strict=True) if part)
    return max(gaps, default=0.0)


def _by_price(case: Case, engine: Engine, known: Known) -> None:
    look(case, engine, known, case.classes)
    case.close(known)


def _most(problem: StagesOverStore) -> Ints:
    """Functions, and thousandths of vCPUs."""
    vcpus = problem.vcpus_at_once
    return np.array(
        [
            problem.functions_at_once or _ANY_NUMBER,
            _ANY_NUMBER if vcpus is None else thousandths([vcpus])[0],
        ]
    )


def _ways(problem: StagesOverStore) -> list[_Way]:
    options = range(len(problem.options))
    # With two replicas both scatter-reduces take as long, and one sums nothing.
    first = (True in problem.pipelined,)
    ways = [
        _Way(problem, tuple((j, d) for j in options), pipelined)
        for d in problem.divisors
        for pipelined in (first if d <= 2 else sorted(set(problem.pipelined), reverse=True))
    ]
    if problem.mixed and len(problem.divisors) > 1:
        mixed = tuple((j, d) for d in problem.divisors for j in options)
        both = sorted(set(problem.pipelined), reverse=True)
        ways += [_Way(problem, mixed, pipelined) for pipelined in both]
    return ways


def _point(way: _Way, found: Found) -> Point[PipelinePlan]:
    problem = way.problem
    stages = [(int(r), *way.choices[k]) for r, k in reversed(found.path.tolist())]
    plan = PipelinePlan(
        layers=len(problem.layers),
        starts=tuple(r + 1 for r, _, _ in stages[:-1]),
        options=tuple(j for _, j, _ in stages),
        memory_mib=tuple(problem.options[j].memory_mib for _, j, _ in stages),
        replicas=tuple(d for _, _, d in stages),
        micro_batches=problem.micro_batches,
        collective="pipelined" if way.pipelined else "scatter-reduce",
        store=problem.store,
    )
    limits = []
    most = problem.functions_at_once
    if most is not None and plan.functions + min(problem.divisors) > most:
        limits.append(f"{most} functions at once")
    if problem.vcpus_at_once is not None:
        used = sum(problem.options[j].vcpus * d for _, j, d in stages)
        if used + min(one.vcpus for one in problem.options) > problem.vcpus_at_once:
            limits.append(f"{problem.vcpus_at_once:g} vCPUs at once")
    largest = max(option.memory_mib for option in problem.options)
    if largest in plan.memory_mib:
        limits.append(f"functions of {largest} MiB")
    return Point(step_s(problem, plan), step_usd(problem, plan), plan, tuple(limits))
