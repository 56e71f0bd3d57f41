"""What the exact planners propose for one target, as settings of runs.

pipeline        FuncPipe's problem over a store, Hydrozoa's over direct links
data parallel   functions, memory, collective and micro-batches
k-reduce        the same with the batch free, FasDL's problem; of hap by its own closed forms
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dayfly.batches import Batches
from dayfly.errors import RequestError
from dayfly.planning.choose import forked
from dayfly.planning.choose.arrays import undominated
from dayfly.planning.choose.data_parallel import (
    least_of,
    near_data_parallel,
)
from dayfly.planning.choose.from_profile import kinds_of_sizes, limited
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.known import KnownPlans, short_error
from dayfly.planning.function_kinds import FunctionKind
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.candidate import (
    CLOSED_FORM_ERROR,
    DATA_PARALLEL,
    K_REDUCE,
    MOST_NEAR,
    PIPELINE,
    Candidate,
    at_target,
    candidate_of,
    k_reduce_settings,
)
from dayfly.runs.choosing.cut_models import cut_models
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.choosing.whole_models import collectives_with, whole_models
from dayfly.runs.plans import JobSpec

if TYPE_CHECKING:
    from dayfly.planning.choose.k_reduce_problem import KReducePlan

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Proposed:
    """What the planners propose for one target.

    Attributes:
        candidates: of all planners.
        gap: certified gap of the search for pipelines; 0: exact.
        refused: reason by planner, of those that found nothing.
    """

    candidates: tuple[Candidate, ...]
    gap: float = 0.0
    refused: Mapping[str, str] = field(default_factory=dict)


def proposed(
    target: Target, asked: PlanQuery, *, time_limit_s: float, known: KnownPlans | None = None
) -> Proposed:
    """What all planners find; a parameter server does nothing but sum whole models' gradients.

    Args:
        time_limit_s: of the search for pipelines.
        known: gets what is found; what it beats is left out.

    Raises:
        RequestError: for what no planner can be asked.
    """
    limited(target.profile)  # refuses a profile of no sizes, for all of them
    wanted = JobSpec.profiled(target.profile, batch_size=asked.batch_size, epochs=asked.epochs)
    if asked.method.protocol.staleness:
        return _hybrid(target, asked, wanted)
    if asked.collectives:  # else cuts, which sum in their own way, would be the answer
        try:
            collectives_with(target, asked)
        except RequestError as refusal:
            return Proposed((), refused={DATA_PARALLEL: str(refusal)})
    planners = [(DATA_PARALLEL, partial(_data_parallel, target, asked, wanted, known))]
    # A cut model sums the gradients of every step, and so does FasDL's problem.
    if asked.method.is_plain and not target.sums:
        if asked.most_batch_size is not None:
            planners.append((K_REDUCE, partial(_k_reduce, target, asked, wanted)))
        cuts = partial(_pipelines, target, asked, wanted, time_limit_s, known)
        planners.append((PIPELINE, cuts))
    # Side by side, the search for cuts in this process; one after another if each reads what the
    # others found.
    if known is None:
        found = forked.each(_answer, planners[::-1])[::-1]
    else:
        found = [_answer(planner) for planner in planners]
    return Proposed(
        # Plans of a fork have copies of the target. Caches find the original itself soonest.
        tuple(replace(each, target=target) for one in found for each in one.candidates),
        max(one.gap for one in found),
        {planner: why for one in found for planner, why in one.refused.items()},
    )


def _answer(planner: tuple[str, Callable[[], Proposed]]) -> Proposed:
    """What a planner of this name finds, or why it finds nothing."""
    name, ask = planner
    try:
        return ask()
    except RequestError as refusal:
        return Proposed((), refused={name: str(refusal)})


def _hybrid(target: Target, asked: PlanQuery, wanted: JobSpec) -> Proposed:
    """Plans of hap alone, which has batches of its own."""
    method = asked.method
    if target.sums:
        why = f"its servers sum, and {method.sync} has workers that do: leave out {method} there"
        return Proposed((), refused={K_REDUCE: why})
    # Few ask for it, and it takes a while to import.
    from dayfly.planning.choose.hybrid import near_hybrid
    from dayfly.runs.choosing.hybrid import hybrid_problem

    try:
        points = near_hybrid(hybrid_problem(target, asked, wanted), CLOSED_FORM_ERROR, MOST_NEAR)
    except RequestError as refusal:
        return Proposed((), refused={K_REDUCE: str(refusal)})
    return Proposed(tuple(_of_k_reduce(target, asked, wanted, one) for one in points))


def in_order(targets: Sequence[Target], asked: PlanQuery) -> list[int]:
    """Returns numbers of targets in an order in which what is found first spares most of the rest.

    First come those of which some whole model's least seconds and dollars are on the front of all
    such bounds, then the others by the least dollars.
    """
    seconds, usd, of = [], [], []
    for number, target in enumerate(targets):
        wanted = JobSpec.profiled(target.profile, batch_size=asked.batch_size, epochs=asked.epochs)
        try:
            least = [least_of(problem) for problem in whole_models(target, asked, wanted)]
        except RequestError:  # no function of it is allowed, which its search will say
            continue
        for least_s, least_usd in least:
            seconds.append(least_s.ravel())
            usd.append(least_usd.ravel())
            of.append(np.full(least_s.size, number))
    if not of:
        return list(range(len(targets)))
    every_usd, every = np.concatenate(usd), np.concatenate(of)
    front = every[undominated(np.concatenate(seconds), every_usd)].tolist()
    by_usd = every[np.argsort(every_usd, kind="stable")].tolist()
    return list(dict.fromkeys((*front, *by_usd, *range(len(targets)))))


def beaten(one: Candidate, known: KnownPlans) -> bool:
    """Returns whether a known plan that may spare it is better by more than closed forms err."""
    if one.kind == PIPELINE:
        of_cuts = known.cuts.beats(one.seconds, one.usd)
        return of_cuts or known.whole.beats(one.seconds, one.usd)
    steps = Batches(one.target.profile.samples, one.wanted.batch_size).steps * one.wanted.epochs
    return known.whole.beats(one.seconds, one.usd, short_error(one.seconds, steps))


def _data_parallel(
    target: Target, asked: PlanQuery, wanted: JobSpec, known: KnownPlans | None
) -> Proposed:
    made = []
    refused: list[RequestError] = []
    whole = None if known is None else known.whole
    problems, learning = whole_models(target, asked, wanted), asked.method.settings
    for problem in problems:
        try:
            points = near_data_parallel(problem, CLOSED_FORM_ERROR, MOST_NEAR, whole)
        except RequestError as refusal:
            refused.append(refusal)
            continue
        for point in points:
            plan = point.plan
            own: dict[str, Any] = {"workers": plan.workers, "memory_mib": plan.memory_mib}
            own |= {**plan.has.settings, **learning}
            if plan.micro_batches > 1 or wanted.accumulate > 1:
                own["micro_batches"] = plan.micro_batches
            if plan.workers > 1:
                own |= {"collective": plan.collective, "aggregators": plan.aggregators}
            made.append(candidate_of(target, DATA_PARALLEL, point, own, wanted))
    if len(refused) == len(problems):
        raise refused[0]  # of the fewest workers
    return Proposed(tuple(made))


def _k_reduce(target: Target, asked: PlanQuery, wanted: JobSpec) -> Proposed:
    points_of = partial(_k_reduce_points, target, asked, wanted.epochs)
    return Proposed(
        tuple(
            _of_k_reduce(target, asked, wanted, replace(one, plan=replace(one.plan, has=kind)))
            for kind, one in near_by_kind(target.profile, points_of)
        )
    )


def _of_k_reduce(
    target: Target, asked: PlanQuery, wanted: JobSpec, point: Point[KReducePlan]
) -> Candidate:
    plan = point.plan
    batch = JobSpec.profiled(target.profile, batch_size=plan.global_samples, epochs=wanted.epochs)
    own = k_reduce_settings(plan, asked.method.sync) | plan.has.settings
    if plan.workers > 1 and asked.method.compress != "none":
        own["compress"] = asked.method.compress
    return candidate_of(target, K_REDUCE, point, own, batch)


def _k_reduce_points(
    target: Target, asked: PlanQuery, epochs: int, kind: FunctionKind
) -> Sequence[Point[KReducePlan]]:
    # Few ask for it, and it takes a while to import.
    from dayfly.planning.choose.k_reduce import near_k_reduce
    from dayfly.planning.choose.k_reduce_from_profile import k_reduce_problem

    assert asked.most_batch_size is not None
    problem = k_reduce_problem(
        replace(target.profile, epochs=epochs),
        target.platform,
        target.store,
        workers=tuple(range(1, asked.workers + 1)),
        most_global_samples=min(asked.most_batch_size, target.profile.samples),
        vcpus_at_once=asked.vcpus_of(target.profile),
        kind=kind,
    )
    points = near_k_reduce(problem, CLOSED_FORM_ERROR, MOST_NEAR)
    return [at_target(target, point, point.plan.workers) for point in points]


def near_by_kind(
    profile: Profile, points_of: Callable[[FunctionKind], Sequence[Point[P]]]
) -> list[tuple[FunctionKind, Point[P]]]:
    """Returns what is near the front over all kinds of functions, each with its kind.

    Args:
        profile: of the job.
        points_of: what there is to choose among with one kind.

    Raises:
        RequestError: all kinds are refused.
    """
    found: list[Point[tuple[FunctionKind, Point[P]]]] = []
    refused: list[RequestError] = []
    kinds = kinds_of_sizes(profile)
    for kind in kinds:
        try:
            points = points_of(kind)
        except RequestError as refusal:
            refused.append(refusal)
            continue
        found += [Point(point.seconds, point.usd, (kind, point)) for point in points]
    if len(refused) == len(kinds):
        raise refused[-1]
    if not found:
        return []
    return [point.plan for point in Front.of(found).near(found, CLOSED_FORM_ERROR, MOST_NEAR)]


def _pipelines(
    target: Target,
    asked: PlanQuery,
    wanted: JobSpec,
    time_limit_s: float,
    known: KnownPlans | None,
) -> Proposed:
    found, gap = cut_models(target, asked, wanted, time_limit_s, known)
    return Proposed(tuple(found), gap)
