"""A plan as its planner has it, for one target, as settings of a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dayfly.planning import memory
from dayfly.planning.choose.arrays import Array, on_arrays
from dayfly.planning.choose.data_parallel_problem import DataParallelPlan
from dayfly.planning.choose.front import Point
from dayfly.planning.choose.pipelines.plan import PipelinePlan, in_words
from dayfly.planning.choose.whole_runs import at_place, billed_s, cut_run_s
from dayfly.planning.efficiency import Efficiency
from dayfly.planning.function_kinds import FunctionKind
from dayfly.planning.plan import Prediction
from dayfly.planning.predict import predict
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import JobSpec, configuration, profile_settings
from dayfly.runs.settings import Settings
from dayfly.specs.methods import BSP, Method

if TYPE_CHECKING:
    from dayfly.planning.choose.k_reduce_problem import KReducePlan

P = TypeVar("P")
PIPELINE, DATA_PARALLEL, K_REDUCE = "pipeline", "data parallel", "k-reduce"
#: Closed forms are mostly this near to virtual time (docs/planning.md), as a share: plans that are
#: worse than the front by less are candidates, too.
CLOSED_FORM_ERROR = 0.10
#: Candidates of a planner, at most: those nearest to the front.
MOST_NEAR = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan as its planner has it.

    Attributes:
        seconds, usd: of the run, by the planner's model.
        own: settings that it decides.
        settings: of a run.
        wanted: of the job.
        limits: as `Point`'s.
        efficiency: samples that it takes, relative to bsp's; None: nobody asked.
    """

    target: Target
    kind: str
    seconds: float
    usd: float
    words: str
    own: Mapping[str, Any] = field(compare=False)
    settings: Settings
    wanted: JobSpec
    limits: tuple[str, ...] = ()
    efficiency: Efficiency | None = field(default=None, compare=False)

    @property
    def samples(self) -> str:
        """How many samples it takes, after a comma; empty: it learns as the job says, by bsp."""
        one = self.efficiency
        usual = one is None or not learning(self.target, self.settings, self.wanted)
        return "" if usual or one is None else f", {one.short} samples"

    @property
    def run(self) -> Hashable:
        """What it is, whoever proposed it."""
        return str(self.target), self.settings, self.wanted

    def __str__(self) -> str:
        return f"{self.words} on {self.target.platform.name}"


def at_target(target: Target, point: Point[P], workers: int) -> Point[P]:
    """A run with what its place adds to it: interruptions, servers, and time that is billed."""
    seconds, usd = at_place(
        point.seconds,
        point.usd,
        workers,
        target.platform,
        None,
        start_s=_start_s(target),
    )
    usd *= billed_s(target.platform, seconds) / seconds
    usd += target.store.servers_usd(seconds) if target.store is not None else 0.0
    return replace(point, seconds=seconds, usd=usd)


def as_run(candidate: Candidate) -> Candidate:
    """A cut model whose seconds and dollars are of its steps, as a run at its place."""
    one, target = candidate, candidate.target
    c = configuration(one.settings, one.wanted)
    seconds = cut_run_s(target.profile, c, one.seconds)
    run = Point(seconds, one.usd * (seconds / one.seconds), None)
    at = at_target(target, run, c.workers)
    return replace(one, seconds=at.seconds, usd=at.usd)


def on_arrays_at(target: Target, seconds: Array, usd: Array, workers: Array) -> tuple[Array, Array]:
    """The same of what many runs take at least, (runs,) each; returns seconds and dollars.

    That a place bills a least time is left out: what costs so much at least may take longer.
    """
    at = on_arrays(cast("Callable[..., float]", at_place))
    found: Any = at(seconds, usd, workers, target.platform, target.store, start_s=_start_s(target))
    return found[0], found[1]


def _start_s(target: Target) -> float:
    return max(size.init_s.value + size.start_s.value for size in target.profile.sizes)


def k_reduce_settings(plan: KReducePlan, sync: str = "bsp") -> dict[str, Any]:
    """Returns the settings of a run.

    Args:
        plan: of FasDL's problem.
        sync: hap: as the paper has it, its others lag and have batches of their own; bsp: all wait,
            and the batch is shared evenly. Where all are aggregators there is no difference.
    """
    own: dict[str, Any] = {"workers": plan.workers, "memory_mib": plan.memory_mib}
    others = plan.workers - plan.aggregators
    if plan.workers == 1:
        return own
    own["aggregators"] = plan.aggregators
    if sync == "bsp" or not others:
        return {**own, "collective": "k-reduce"}
    shares = (plan.aggregators_samples,) * plan.aggregators + (plan.others_samples,) * others
    common = gcd(*shares)
    own["sync"] = sync
    if len(set(shares)) > 1:
        own["shares"] = tuple(one // common for one in shares)
    return own


def pipeline_settings(plan: PipelinePlan) -> dict[str, Any]:
    """Of a run."""
    most = max(plan.replicas)
    own: dict[str, Any] = {"micro_batches": plan.micro_batches // most}
    if plan.starts:
        replicas = plan.replicas if plan.degree is None else plan.degree
        own |= {"cut": plan.starts, "replicas": replicas, "stage_memory_mib": plan.memory_mib}
        own |= {"schedule": plan.schedule}
    else:
        own |= {"workers": most, "memory_mib": plan.memory_mib[0]}
    return own | ({"collective": plan.collective} if most > 1 else {})


def candidate_of(
    target: Target, kind: str, point: Point[Any], own: Mapping[str, Any], wanted: JobSpec
) -> Candidate:
    """A planner's plan for a target, with what of a run it decides, and the job that it is for."""
    settings = _settings(target, own)
    return Candidate(
        target=target,
        kind=kind,
        seconds=point.seconds,
        usd=point.usd,
        words=f"{point.plan}{_in_words(kind, own)}{learning(target, settings, wanted)}",
        own=own,
        settings=settings,
        wanted=wanted.of_workers(settings.members),
        limits=point.limits,
    )


def learning(target: Target, settings: Settings, wanted: JobSpec) -> str:
    """Returns how a run learns, in a few words after a comma; empty: as the job says, by bsp."""
    method = Method.of(settings)
    other = (wanted.batch_per_worker or wanted.batch_size) != target.profile.batch_size
    batch = f", batch {wanted.batch_size}" if other else ""
    return f"{'' if method == BSP else f', {method}'}{batch}"


def _in_words(kind: str, own: Mapping[str, Any]) -> str:
    """vCPUs and GPUs, where the plan itself does not say them."""
    has = str(FunctionKind.of_settings(own)) if kind != DATA_PARALLEL else ""
    return f", each{has.removeprefix(' and')}" if has else ""


#: Settings of how whole models are summed.
_SUMS = ("collective", "aggregators")


def over(candidate: Candidate, target: Target) -> Candidate:
    """The same functions at another target. Raises RequestError for a collective that it lacks.

    Where one store sums and the other does not, they sum as is usual there.
    """
    there = replace(candidate, target=target)
    if target.sums != candidate.target.sums:
        left = {key: candidate.own[key] for key in candidate.own if key not in _SUMS}
        return changed(there, left, candidate.limits)
    here, other = candidate.target.profile.channel, target.profile.channel
    words = candidate.words.replace(f" over {here}", f" over {other}")
    return replace(with_settings(there, candidate.own), words=words)


def changed(
    candidate: Candidate, own: Mapping[str, Any], limits: tuple[str, ...] = ()
) -> Candidate:
    """Returns another plan for the same job at the same target, which has words of its own, but
    the seconds and dollars of the former one.

    Args:
        candidate: the former one.
        own: all settings of the other one.
        limits: as of `Point`.

    Raises:
        RequestError: settings that cannot be.
    """
    one = with_settings(candidate, own)
    return replace(one, words=_settings_in_words(one), limits=limits)


def _settings_in_words(one: Candidate) -> str:
    """As the planner of whole models has it, or that of cuts; of FasDL's without the samples of
    each role, which share the batch evenly when another setting is changed."""
    s, store = one.settings, one.target.profile.channel
    micro_batches = s.micro_batches or 1
    if s.cut:
        plan = in_words(
            s.cut,
            s.stage_memory_mib,
            s.layout.each,
            micro_batches * s.members,
            collective=s.algorithm,
            store=store,
            schedule=s.schedule,
        )
        return f"{plan}{_in_words(PIPELINE, one.own)}{learning(one.target, s, one.wanted)}"
    whole = DataParallelPlan(
        workers=s.workers,
        memory_mib=s.memory_mib or 0,
        collective=s.algorithm,
        aggregators=s.aggregators,
        micro_batches=micro_batches,
        store=store,
        has=FunctionKind.of_settings(one.own),
    )
    return f"{whole}{learning(one.target, s, one.wanted)}"


def with_settings(candidate: Candidate, own: Mapping[str, Any]) -> Candidate:
    """The same job at the same target with these settings. Raises RequestError for what is none."""
    settings = _settings(candidate.target, own)
    wanted = candidate.wanted.of_workers(settings.members)
    return replace(candidate, own=own, settings=settings, wanted=wanted)


def _settings(target: Target, own: Mapping[str, Any]) -> Settings:
    asked = dict(own)
    if target.own is not None:
        asked["catalogue"] = target.own
    return Settings(**profile_settings(target.profile, asked))


def by_closed_forms(candidate: Candidate) -> Prediction:
    """Returns the prediction by closed forms, however few messages there are."""
    target = candidate.target
    c = configuration(candidate.settings, candidate.wanted)
    return predict(target.profile, c, target.platform, target.store, most_simulated=0)


def excess_mib(candidate: Candidate) -> float:
    """By how much the fullest function needs more than it has; 0 or less: it fits."""
    c = configuration(candidate.settings, candidate.wanted)
    profile = candidate.target.profile
    return max(memory.excess_mib(profile, c, stage) for stage in range(c.stages))
