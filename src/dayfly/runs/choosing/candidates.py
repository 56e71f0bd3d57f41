"""What the exact planners propose for one target, as settings of runs.

pipeline        FuncPipe's problem over a store, Hydrozoa's over direct links
data parallel   functions, memory, collective and micro-batches
k-reduce        the same with the batch free, FasDL's problem
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel import (
    DataParallelProblem,
    collectives_of,
    near_data_parallel,
)
from dayfly.planning.choose.from_profile import (
    k_reduce_problem,
    kinds_of_sizes,
    limited,
    stages_problems,
)
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.k_reduce import plan_k_reduce
from dayfly.planning.choose.k_reduce_problem import KReducePlan
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.problem import PipelinePlan
from dayfly.planning.function_kinds import FunctionKind
from dayfly.planning.memory import excess_mib
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.query import MICRO_SAMPLES, PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import JobSpec, configuration, profile_settings
from dayfly.runs.settings import Settings

#: Closed forms are mostly nearer to virtual time (docs/planning.md): plans that are worse than the
#: front by less are candidates, too, the nearest so many of them.
CLOSED_FORM_ERROR, MOST_NEAR = 0.10, 200
P = TypeVar("P")
PIPELINE, DATA_PARALLEL, K_REDUCE = "pipeline", "data parallel", "k-reduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan as its planner has it. seconds, usd: of the run, by the planner's model. own: settings
    that it decides. settings: of a run. wanted: of the job. limits: as `Point`'s."""

    target: Target
    kind: str
    seconds: float
    usd: float
    words: str
    own: Mapping[str, Any] = field(compare=False)
    settings: Settings
    wanted: JobSpec
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.words} on {self.target.platform.name}"


@dataclass(frozen=True, slots=True)
class Proposed:
    """candidates: of all planners. gap: the pipelines', certified. refused: why, by planner."""

    candidates: tuple[Candidate, ...]
    gap: float = 0.0
    refused: Mapping[str, str] = field(default_factory=dict)


def proposed(target: Target, asked: PlanQuery, *, time_limit_s: float) -> Proposed:
    """What all planners find; a parameter server does nothing but sum whole models' gradients.

    time_limit_s: of the search for pipelines.

    Raises RequestError for what no planner can be asked.
    """
    limited(target.profile)  # refuses a profile of no sizes, for all of them
    wanted = JobSpec.profiled(target.profile, batch_size=asked.batch_size, epochs=asked.epochs)
    found: list[Candidate] = []
    refused: dict[str, str] = {}
    gap = 0.0
    try:
        found += _data_parallel(target, asked, wanted)
    except RequestError as refusal:
        refused[DATA_PARALLEL] = str(refusal)
    if target.sums:
        return Proposed(tuple(found), gap, refused)
    if asked.most_batch_size is not None:
        try:
            found += _k_reduce(target, asked, wanted)
        except RequestError as refusal:
            refused[K_REDUCE] = str(refusal)
    try:
        cut, gap = _pipelines(target, asked, wanted, time_limit_s)
        found += cut
    except RequestError as refusal:
        refused[PIPELINE] = str(refusal)
    return Proposed(tuple(found), gap, refused)


def _data_parallel(target: Target, asked: PlanQuery, wanted: JobSpec) -> list[Candidate]:
    powers = tuple(2**n for n in range(wanted.batch_size.bit_length()))
    problem = DataParallelProblem(
        profile=target.profile,
        platform=target.platform,
        store=target.store,
        workers=tuple(range(1, asked.workers + 1)),
        collectives=asked.collectives or collectives_of(target.profile),
        micro_batches=asked.micro_batches or powers,
        batch_size=wanted.batch_size,
        epochs=wanted.epochs,
        validate_every=wanted.validate_every,
        vcpus_at_once=asked.vcpus_of(target.profile),
    )
    made = []
    for point in near_data_parallel(problem, CLOSED_FORM_ERROR, MOST_NEAR):
        plan = point.plan
        own: dict[str, Any] = {"workers": plan.workers, "memory_mib": plan.memory_mib}
        own |= plan.has.settings
        if plan.micro_batches > 1 or wanted.accumulate > 1:
            own["micro_batches"] = plan.micro_batches
        if plan.workers > 1:
            own |= {"collective": plan.collective, "aggregators": plan.aggregators}
        made.append(_candidate(target, DATA_PARALLEL, point, own, wanted))
    return made


def _k_reduce(target: Target, asked: PlanQuery, wanted: JobSpec) -> list[Candidate]:
    made = []
    points_of = partial(_k_reduce_points, target, asked)
    for kind, point in front_by_kind(target.profile, points_of):
        plan = point.plan
        batch = JobSpec.profiled(
            target.profile, batch_size=plan.global_samples, epochs=wanted.epochs
        )
        own = k_reduce_settings(plan) | kind.settings
        made.append(_candidate(target, K_REDUCE, point, own, batch))
    return made


def _k_reduce_points(
    target: Target, asked: PlanQuery, kind: FunctionKind
) -> Sequence[Point[KReducePlan]]:
    assert asked.most_batch_size is not None
    problem = k_reduce_problem(
        target.profile,
        target.platform,
        target.store,
        workers=tuple(range(1, asked.workers + 1)),
        most_global_samples=min(asked.most_batch_size, target.profile.samples),
        vcpus_at_once=asked.vcpus_of(target.profile),
        kind=kind,
    )
    return with_servers(plan_k_reduce(problem), target.store).points


def front_by_kind(
    profile: Profile, points_of: Callable[[FunctionKind], Sequence[Point[P]]]
) -> list[tuple[FunctionKind, Point[P]]]:
    """Returns the front over all kinds of functions, each with its kind.

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
    return [point.plan for point in Front.of(found).points] if found else []


def with_servers(front: Front[P], store: StoreFacts | None) -> Front[P]:
    """Returns a front with the dollars of the store's servers on top.

    They only rise with time, so no plan that another one dominated without them is better now.
    """
    if store is None or not store.rented:
        return front
    return Front.of(
        replace(point, usd=point.usd + store.servers_usd(point.seconds)) for point in front.points
    )


def _pipelines(
    target: Target, asked: PlanQuery, wanted: JobSpec, time_limit_s: float
) -> tuple[list[Candidate], float]:
    """Cut models, and the search's gap.

    All functions of a run are of one kind, so each is a search of its own.
    """
    until = time.monotonic() + time_limit_s
    gap = 0.0
    kinds = kinds_of_sizes(target.profile)

    def points_of(kind: FunctionKind) -> list[Point[Candidate]]:
        nonlocal gap
        left_s = (until - time.monotonic()) / (len(kinds) - kinds.index(kind))
        found, its_gap = _pipelines_of(target, asked, wanted, max(0.01, left_s), kind)
        gap = max(gap, its_gap)
        return [Point(one.seconds, one.usd, one) for one in found]

    if len(kinds) == 1:
        return _pipelines_of(target, asked, wanted, time_limit_s, kinds[0])
    found = front_by_kind(target.profile, points_of)
    return [point.plan for _, point in found], gap


def _pipelines_of(
    target: Target, asked: PlanQuery, wanted: JobSpec, time_limit_s: float, kind: FunctionKind
) -> tuple[list[Candidate], float]:
    """The same of functions of one kind.

    What the equation of memory leaves out is found afterwards, and makes the search begin again
    once with as much less.
    """
    micro_batches = asked.micro_batches or (_usual_micro_batches(wanted),)
    steps = wanted.epochs * target.profile.samples / wanted.batch_size
    until = time.monotonic() + time_limit_s
    found: dict[Settings, Candidate] = {}
    spare_mib, gap = 0.0, 0.0
    for last in (False, True):
        problems = stages_problems(
            target.profile,
            target.platform,
            batch_size=wanted.batch_size,
            micro_batches=[m for m in micro_batches if m <= wanted.batch_size],
            functions_at_once=asked.workers,
            vcpus_at_once=asked.vcpus_of(target.profile),
            kind=kind,
            spare_mib=spare_mib,
        )
        choice = choose(*problems, time_limit_s=max(0.01, until - time.monotonic()))
        gap = max(gap, choice.gap)
        excess = 0.0
        for point in choice.front.points:
            if not point.plan.starts:
                continue  # not cut: the other planner's
            limits = point.limits or _limits(target, asked, point.plan)
            whole_s = point.seconds * steps
            usd = point.usd * steps + (target.store.servers_usd(whole_s) if target.store else 0.0)
            whole = Point(whole_s, usd, point.plan, limits)
            own = pipeline_settings(point.plan) | kind.settings
            one = _candidate(target, PIPELINE, whole, own, wanted)
            over = _excess_mib(one)
            excess = max(excess, over)
            if over <= 0:
                found.setdefault(one.settings, one)
        if excess <= 0 or last or time.monotonic() > until:
            break
        spare_mib += excess
    return list(found.values()), gap


def _usual_micro_batches(wanted: JobSpec) -> int:
    """A power of two has the most divisors, which are what replicas there may be."""
    return int(2 ** max(0, (wanted.batch_size // MICRO_SAMPLES).bit_length() - 1))


def search_work(target: Target, asked: PlanQuery) -> int:
    """Returns layers x memory sizes x degrees of the search for cuts, about; 0: there is none."""
    if target.sums or not target.profile.listed:
        return 0
    wanted = JobSpec.profiled(target.profile, batch_size=asked.batch_size, epochs=asked.epochs)
    micro_batches = asked.micro_batches or (_usual_micro_batches(wanted),)
    degrees = sum(m % d == 0 for m in micro_batches for d in range(1, m + 1))
    sizes = len(limited(target.of_sizes(asked.memory_mib).profile))
    return len(target.profile.layers) * sizes * degrees


def _limits(target: Target, asked: PlanQuery, plan: PipelinePlan) -> tuple[str, ...]:
    """What a cut model is at the limit of: more of it might allow a better one."""
    largest = max(size for size, _ in limited(target.profile))
    found = []
    if plan.functions == asked.workers:
        found.append(f"{plan.functions} functions at once")
    if largest in plan.memory_mib:
        found.append(f"functions of {largest} MiB")
    return tuple(found)


def k_reduce_settings(plan: KReducePlan) -> dict[str, Any]:
    """Of a run. All functions of a run have as many samples, so the batch is shared evenly."""
    own: dict[str, Any] = {"workers": plan.workers, "memory_mib": plan.memory_mib}
    return own | (
        {"collective": "k-reduce", "aggregators": plan.aggregators} if plan.workers > 1 else {}
    )


def pipeline_settings(plan: PipelinePlan) -> dict[str, Any]:
    """Of a run; all of its stages have as many replicas."""
    degree = plan.degree
    assert degree is not None, "stages of one run have as many replicas each"
    own: dict[str, Any] = {"micro_batches": plan.micro_batches // degree}
    if plan.starts:
        own |= {"cut": plan.starts, "replicas": degree, "stage_memory_mib": plan.memory_mib}
    else:
        own |= {"workers": degree, "memory_mib": plan.memory_mib[0]}
    return own | ({"collective": plan.collective} if degree > 1 else {})


def _candidate(
    target: Target, kind: str, point: Point[Any], own: Mapping[str, Any], wanted: JobSpec
) -> Candidate:
    return Candidate(
        target=target,
        kind=kind,
        seconds=point.seconds,
        usd=point.usd,
        words=f"{point.plan}{_in_words(kind, own)}",
        own=own,
        settings=_settings(target, own),
        wanted=wanted,
        limits=point.limits,
    )


def _in_words(kind: str, own: Mapping[str, Any]) -> str:
    """vCPUs and GPUs, where the plan itself does not say them."""
    has = str(FunctionKind.of_settings(own)) if kind != DATA_PARALLEL else ""
    return f", each{has.removeprefix(' and')}" if has else ""


def over(candidate: Candidate, target: Target) -> Candidate:
    """The same functions at another target. Raises RequestError for a collective that it lacks.

    Where one store sums and the other does not, they sum as is usual there.
    """
    own = candidate.own
    if target.sums != candidate.target.sums:
        own = {key: own[key] for key in own if key not in ("collective", "aggregators")}
    return replace(candidate, target=target, own=own, settings=_settings(target, own))


def with_settings(candidate: Candidate, own: Mapping[str, Any]) -> Candidate:
    """The same job at the same target with these settings. Raises RequestError for what is none."""
    return replace(candidate, own=own, settings=_settings(candidate.target, own))


def _settings(target: Target, own: Mapping[str, Any]) -> Settings:
    asked = dict(own)
    if target.own is not None:
        asked["catalogue"] = target.own
    return Settings(**profile_settings(target.profile, asked))


def _excess_mib(candidate: Candidate) -> float:
    """By how much the fullest function needs more than it has; 0 or less: it fits."""
    c = configuration(candidate.settings, candidate.wanted)
    return max(excess_mib(candidate.target.profile, c, stage) for stage in range(c.stages))
