"""What the planners of cut models propose for one target, as candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dayfly.errors import RequestError
from dayfly.planning.choose import forked
from dayfly.planning.choose.arrays import Array
from dayfly.planning.choose.from_profile import kinds_of_sizes, of_kind
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.known import KnownPlans
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.floors import all_beaten
from dayfly.planning.choose.pipelines.merging import MergedLayers
from dayfly.planning.choose.pipelines.messages import with_messages
from dayfly.planning.choose.pipelines.near import near_cuts, same_cuts
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import Problem
from dayfly.planning.choose.stage_memory import with_extra_memory
from dayfly.planning.function_kinds import FunctionKind
from dayfly.runs.choosing.candidate import (
    MOST_NEAR,
    PIPELINE,
    Candidate,
    as_run,
    at_target,
    by_closed_forms,
    candidate_of,
    excess_mib,
    on_arrays_at,
    pipeline_settings,
)
from dayfly.runs.choosing.cuts import cut_problems, limits_of, usual_micro_batches
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import JobSpec
from dayfly.wire.pipelines.orders import FILL_DRAIN, ORDERS

#: Plans that are worse than the front by less than this share are candidates, too. Large models are
#: compared by the papers' equations, which err by about so much; closed forms mostly err by less.
_CUTS_ERROR = 0.25
#: Micro-batches of plans around those that were found, as parts of the usual number.
_OTHER_MICRO_BATCHES = (0.5, 2, 4)
#: How often cuts are searched at most, if plans need more memory than the search says.
_SEARCHES = 2
#: Seconds of a run that is so long that one interruption does not matter.
_LONG_S = 1e6


def cut_models(
    target: Target,
    asked: PlanQuery,
    wanted: JobSpec,
    time_limit_s: float,
    known: KnownPlans | None = None,
) -> tuple[list[Candidate], float]:
    """Returns cut models near the front of each schedule, and the search's certified gap.

    All functions of a run are of one kind, so each is a search of its own.

    Args:
        target: where.
        asked: what the choice is among.
        wanted: of the job.
        time_limit_s: of the search.
        known: gets what is found; cuts that it beats are not sought, and kinds of which it beats
            every cut not searched.

    Raises:
        RequestError: no kind has any, or the batch follows the workers.
    """
    if wanted.batch_per_worker is not None:
        raise RequestError(
            "cuts are searched for one batch, and the job's batch_per_worker has one for each "
            "number of replicas: give --batch-size to search them, too"
        )
    until = forked.cpu_s() + time_limit_s
    gap = 0.0
    kinds = kinds_of_sizes(target.profile)
    # The search leaves out interruptions, which lengthen a run by this factor at most.
    spread = at_target(target, Point(_LONG_S, 0.0, None), asked.workers).seconds / _LONG_S
    every: list[Point[Candidate]] = []
    refused: list[RequestError] = []
    for number, kind in enumerate(kinds):
        left_s = max(0.01, (until - forked.cpu_s()) / (len(kinds) - number))
        try:
            found, its_gap = _OfKind(target, asked, wanted, kind, known).searched(left_s)
        except RequestError as refusal:
            refused.append(refusal)
            continue
        if found or its_gap:  # else rivals beat all cuts, even if nobody interrupts these
            gap = max(gap, (1 + its_gap) * spread - 1)
        if known is not None:
            # What else a schedule costs, virtual time alone knows.
            sure = [one for one in found if one.settings.schedule == FILL_DRAIN]
            known.cuts.add([one.seconds for one in sure], [one.usd for one in sure])
        every += [Point(one.seconds, one.usd, one) for one in found]
    if len(refused) == len(kinds):
        raise refused[-1]
    slack = _CUTS_ERROR if known is None else 0.0
    fronts = [[one for one in every if one.plan.settings.schedule == name] for name in ORDERS]
    near = [Front.of(own).near(own, slack, MOST_NEAR) for own in fronts if own]
    return [one.plan for own in near for one in own], gap


class _OfKind:
    """Cut models of functions of one kind.

    known: plans of other places, with which runs are compared: start-up and validation count, too.
    """

    def __init__(
        self,
        target: Target,
        asked: PlanQuery,
        wanted: JobSpec,
        kind: FunctionKind,
        known: KnownPlans | None,
    ) -> None:
        self._target, self._asked, self._wanted = target, asked, wanted
        self._kind, self._known = kind, known
        self._steps = wanted.epochs * target.profile.samples / wanted.batch_size
        #: By plan its candidate, and the MiB by which it lacks memory.
        self._made: dict[PipelinePlan, tuple[Candidate, float]] = {}

    def searched(self, time_limit_s: float) -> tuple[list[Candidate], float]:
        """Returns the plans that fit into memory, and the search's gap.

        If passes were measured, plans may need more memory than the search counts. Then a second
        search keeps that much free in every function.
        """
        target, asked, known, steps = self._target, self._asked, self._known, self._steps
        init_s = min(size.init_s.value for size in target.profile.sizes)
        profile = of_kind(target.profile, self._kind)
        rivals = [] if known is None else known.of_steps(steps, init_s)

        def run_of(step_s: Array, step_usd: Array, workers: Array) -> tuple[Array, Array]:
            return on_arrays_at(target, steps * step_s + init_s, steps * step_usd, workers)

        until, spare_mib, gap = forked.cpu_s() + time_limit_s, 0.0, 0.0
        good: tuple[PipelinePlan, ...] = ()
        every: dict[PipelinePlan, Point[PipelinePlan]] = {}
        unspared: Sequence[Problem] = ()
        for _ in range(_SEARCHES):
            merged, problems = cut_problems(target, asked, self._wanted, self._kind, spare_mib)
            if known is not None and not self._made and all_beaten(problems, known, run_of):
                return [], 0.0
            unspared = unspared or problems
            problems = with_extra_memory(profile, self._wanted.batch_size, problems, merged.firsts)
            left_s = max(0.01, until - forked.cpu_s())
            choice = choose(*problems, time_limit_s=left_s, good=good, rivals=rivals)
            good, gap = tuple(point.plan for point in choice.points), choice.gap
            points = with_messages(problems, choice.points, target.store)
            every |= {one.plan: one for one in points}
            cuts = [self._candidate(merged, one) for one in points if one.plan.starts]
            excess = max([0.0, *(over_mib for _, over_mib in cuts)])
            if forked.cpu_s() > until or not excess:
                break
            spare_mib += excess
        plans = list(self._made)
        left_s = until - forked.cpu_s()
        if known is None and left_s > 0:
            judge, points = partial(self._judged, merged), list(every.values())
            # By the equation of memory alone: `_judged` checks what a plan needs exactly.
            around = self._around(merged, unspared)
            points += same_cuts(around, points, target.store)
            near = near_cuts(around, points, judge, _CUTS_ERROR, target.store, left_s)
            # Costs by closed forms are not compared with costs by the equations.
            plans = [merged.unmerged(one.plan) for one in near]
            if not near:
                for point in points:
                    self._candidate(merged, point)
                plans = list(self._made)
        # Plans without cuts are left to the planner of whole models. Without replicas nothing is
        # summed, so plans that differ only in the collective have the same settings: one is kept.
        made = [self._made[plan] for plan in plans if plan.starts]
        return list({one.settings: one for one, over_mib in made if over_mib <= 0}.values()), gap

    def _around(self, merged: MergedLayers, problems: Sequence[Problem]) -> Sequence[Problem]:
        """Adds problems of other numbers of micro-batches, unless `--micro-batches` says some."""
        if self._asked.micro_batches:
            return problems
        usual = usual_micro_batches(self._wanted)
        parts = {round(usual * part) for part in _OTHER_MICRO_BATCHES}
        others = tuple(sorted(parts & {*range(1, self._wanted.batch_size + 1)}))
        if not others:
            return problems
        asked = replace(self._asked, micro_batches=others)
        found = cut_problems(self._target, asked, self._wanted, self._kind, merged=merged)
        return (*problems, *found[1])

    def _candidate(
        self, merged: MergedLayers, point: Point[PipelinePlan]
    ) -> tuple[Candidate, float]:
        """Returns the plan as a candidate, and the MiB by which its fullest function lacks memory
        (0 or less: it fits)."""
        plan = merged.unmerged(point.plan)
        if plan not in self._made:
            target, steps = self._target, self._steps
            limits = point.limits or limits_of(target, self._asked, plan.functions, plan.memory_mib)
            run = Point(point.seconds * steps, point.usd * steps, plan, limits)
            own = pipeline_settings(plan) | self._kind.settings
            one = candidate_of(target, PIPELINE, run, own, self._wanted)
            self._made[plan] = as_run(one), excess_mib(one)
        return self._made[plan]

    def _judged(self, merged: MergedLayers, plan: PipelinePlan) -> Point[PipelinePlan] | None:
        """Returns the plan with seconds and dollars of its run by closed forms, which its candidate
        has from then on; None if it does not fit, or cannot be run."""
        try:
            one, over_mib = self._candidate(merged, Point(1.0, 1.0, plan))
            if over_mib > 0:
                return None
            said = by_closed_forms(one)
        except RequestError:  # such as replicas for which a cache has no room
            return None
        one = replace(one, seconds=said.total_s, usd=said.cost_usd)
        self._made[merged.unmerged(plan)] = one, over_mib
        return Point(one.seconds, one.usd, plan)
