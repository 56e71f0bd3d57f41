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
from dayfly.planning.choose.arrays import Array, undominated
from dayfly.planning.choose.data_parallel import (
    least_of,
    near_data_parallel,
)
from dayfly.planning.choose.from_profile import kinds_of_sizes, limited
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.known import KnownPlans, short_error
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.floors import all_beaten
from dayfly.planning.choose.pipelines.merging import MergedLayers
from dayfly.planning.choose.pipelines.messages import with_messages
from dayfly.planning.choose.pipelines.near import near_cuts
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.function_kinds import FunctionKind
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.candidate import (
    DATA_PARALLEL,
    K_REDUCE,
    PIPELINE,
    Candidate,
    as_run,
    at_target,
    candidate_of,
    excess_mib,
    k_reduce_settings,
    on_arrays_at,
    pipeline_settings,
)
from dayfly.runs.choosing.cuts import cut_problems, limits_of
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.choosing.whole_models import whole_models
from dayfly.runs.plans import JobSpec
from dayfly.runs.settings import Settings
from dayfly.wire.pipelines.orders import FILL_DRAIN, ORDERS

if TYPE_CHECKING:
    from dayfly.planning.choose.k_reduce_problem import KReducePlan

#: Closed forms are mostly nearer to virtual time (docs/planning.md): plans that are worse than the
#: front by less are candidates, too, the nearest so many of them. Equations of cuts err by more.
CLOSED_FORM_ERROR, MOST_NEAR = 0.10, 200
_CUTS_ERROR = 0.25
P = TypeVar("P")
#: By what part plans may be better than what a first search finds, which is to tell their memory.
_ROUGHLY = 0.05
#: A run that is longer than what an interruption delays.
_LONG_S = 1e6


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
    known: KnownPlans | None = None,
) -> Proposed:
    """Cut models, and the search's gap. Raises RequestError for a batch that follows the workers.

    All functions of a run are of one kind, so each is a search of its own. known: gets what is
    found; cuts that it beats are not sought, and kinds of which it beats every cut not searched.
    """
    if wanted.batch_per_worker is not None:
        raise RequestError(
            "cuts are searched for one batch, and the job's batch_per_worker has one for each "
            "number of replicas: give --batch-size to search them, too"
        )
    until = forked.cpu_s() + time_limit_s
    gap = 0.0
    kinds = kinds_of_sizes(target.profile)
    # Interruptions make cuts of more functions a little longer than the search had them.
    spread = at_target(target, Point(_LONG_S, 0.0, None), asked.workers).seconds / _LONG_S

    def points_of(kind: FunctionKind) -> list[Point[Candidate]]:
        nonlocal gap
        left_s = (until - forked.cpu_s()) / (len(kinds) - kinds.index(kind))
        found, its_gap = _pipelines_of(target, asked, wanted, max(0.01, left_s), kind, known)
        if found or its_gap:  # else rivals beat all cuts, even if nobody interrupts these
            gap = max(gap, (1 + its_gap) * spread - 1)
        if known is not None:
            # What else a schedule costs, virtual time alone knows.
            sure = [one for one in found if one.settings.schedule == FILL_DRAIN]
            known.cuts.add([one.seconds for one in sure], [one.usd for one in sure])
        return [Point(one.seconds, one.usd, one) for one in found]

    every: list[Point[Candidate]] = []
    refused: list[RequestError] = []
    for kind in kinds:
        try:
            every += points_of(kind)
        except RequestError as refusal:
            refused.append(refusal)
    if len(refused) == len(kinds):
        raise refused[-1]
    slack = _CUTS_ERROR if known is None else 0.0
    fronts = [[one for one in every if one.plan.settings.schedule == name] for name in ORDERS]
    near = [Front.of(own).near(own, slack, MOST_NEAR) for own in fronts if own]
    return Proposed(tuple(one.plan for own in near for one in own), gap)


def _pipelines_of(
    target: Target,
    asked: PlanQuery,
    wanted: JobSpec,
    time_limit_s: float,
    kind: FunctionKind,
    known: KnownPlans | None,
) -> tuple[list[Candidate], float]:
    """The same of functions of one kind.

    known: plans of other places, with which runs are compared: start-up and validation count, too.
    What the equation of memory leaves out is found by a first search, and is left free in the
    second, which is exact. The first may miss plans that are a little better, unless there are
    rivals: with these an exact search is quick, too, and is often the only one.
    """
    steps = wanted.epochs * target.profile.samples / wanted.batch_size
    init_s = min(size.init_s.value for size in target.profile.sizes)
    rivals = [] if known is None else known.of_steps(steps, init_s)

    def run_of(step_s: Array, step_usd: Array, workers: Array) -> tuple[Array, Array]:
        return on_arrays_at(target, steps * step_s + init_s, steps * step_usd, workers)

    def over_mib(merged: MergedLayers, point: Point[PipelinePlan]) -> float:
        """Takes a plan as a candidate, unless it needs more memory than it has: so much more."""
        if not point.plan.starts:
            return 0.0  # not cut: the other planner's
        plan = merged.unmerged(point.plan)
        if plan not in seen:
            limits = point.limits or limits_of(target, asked, plan)
            whole = Point(point.seconds * steps, point.usd * steps, plan, limits)
            if known is None:
                whole = at_target(target, whole, plan.functions)
            own = pipeline_settings(plan) | kind.settings
            one = candidate_of(target, PIPELINE, whole, own, wanted)
            one = one if known is None else as_run(one)
            seen[plan] = one, excess_mib(one)
        one, over = seen[plan]
        if over <= 0:
            found.setdefault(one.settings, one)
        return over

    found: dict[Settings, Candidate] = {}
    seen: dict[PipelinePlan, tuple[Candidate, float]] = {}
    until, spare_mib, gap = forked.cpu_s() + time_limit_s, 0.0, 0.0
    good: tuple[PipelinePlan, ...] = ()
    for within in (0.0 if rivals else _ROUGHLY, 0.0):
        merged, problems = cut_problems(target, asked, wanted, kind, spare_mib)
        if known is not None and not seen and all_beaten(problems, known, run_of):
            return [], 0.0
        left_s = max(0.01, until - forked.cpu_s())
        choice = choose(*problems, time_limit_s=left_s, good=good, within=within, rivals=rivals)
        good, gap = tuple(point.plan for point in choice.points), choice.gap
        points = with_messages(problems, choice.points, target.store)
        excess = max((over_mib(merged, point) for point in points), default=0.0)
        if forked.cpu_s() > until or (choice.exact and not excess):
            break
        spare_mib += excess
    if known is None and forked.cpu_s() < until:
        for point in near_cuts(problems, points, _CUTS_ERROR, target.store):
            over_mib(merged, point)
    return list(found.values()), gap
