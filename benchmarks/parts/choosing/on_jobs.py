"""What dayfly and the papers' methods choose for a job.

`beside` is of what `dayfly plan` chose, whose page shows these choices, too. `chosen_plans` is of
two jobs that can be run on this machine. There all choose from one profile, among the same
functions: Lambda's of 663 to 1769 MiB, six and 1.5 vCPUs at once at most, which talk over files at
Lambda's rates. Of each job two questions:

    deadline   the least dollars within twice the seconds of the fastest plan
    weights    the least alpha1 dollars + alpha2 seconds; alphas are such that both are worth as
               much at dayfly's recommended plan

dayfly answers with what `dayfly plan` chooses, by its own model of a whole run. A method answers by
the paper's model of a step or an epoch: FasDL's and CE-scaling's (and LambdaML's, as FasDL compares
itself) the first, FuncPipe's and what it compares itself with the second. CE-scaling's choice of a
store is none here. A plan is run as `dayfly train --plan` would, with the job's batch: FasDL, which
may choose a smaller one, would train another job, and a run shares it evenly, not between
aggregators and others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.parts.choosing import k_reduce_fixed, pipeline_fixed, store_greedy
from benchmarks.parts.choosing.answer import Answer, Goal, cheapest_within, exact
from benchmarks.parts.choosing.bayes import ROUNDS, bayes
from benchmarks.parts.choosing.miqp import miqp
from benchmarks.parts.choosing.store_problem import StoreOption, store_problem
from benchmarks.parts.choosing.tpdmp import tpdmp
from benchmarks.parts.choosing.two_stage import two_stage
from benchmarks.parts.choosing.v_bounds import v_bounds
from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.from_profile import stages_problems
from dayfly.planning.choose.front import seconds
from dayfly.planning.choose.k_reduce_from_profile import k_reduce_problem
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    Problem,
    StagesOverStore,
)
from dayfly.planning.function_kinds import BY_MEMORY, FunctionKind
from dayfly.planning.plan import Plan, Prediction
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from dayfly.runs.choosing import query as of_runs
from dayfly.runs.choosing.candidate import k_reduce_settings, pipeline_settings, with_settings
from dayfly.runs.choosing.choice import Choice, PaperChoice, choice_of
from dayfly.runs.choosing.option import predicted, shorthand
from dayfly.runs.choosing.query import MICRO_SAMPLES, PlanQuery
from dayfly.runs.choosing.ranking import MESSAGES_PER_S
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import JobSpec, configuration, plan_of, profile_settings
from dayfly.runs.settings import Settings

EXACT, DEADLINE, WEIGHTS = "dayfly", "deadline", "weights"
FUNCTIONS, VCPUS = 6, 1.5
#: Times the seconds of the fastest plan.
_LATER = 2.0
#: Layers after merging, seconds of the solver, as in `bench`.
_GROUPS, _LIMIT_S = 8, 15.0
#: V of Hydrozoa's bounds for `beside`; the paper's 1000 takes minutes.
_BOUNDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a method answered. question: `DEADLINE` or `WEIGHTS`; limit: its seconds, or its pair of
    weights. plan: None: the method found none. words: the plan's. stopped: how the search ended.
    stages: of the plan."""

    question: str
    limit: float | tuple[float, float]
    method: str
    plan: Plan | None
    words: str = ""
    stopped: str = ""
    stages: int = 1

    @property
    def prediction(self) -> Prediction | None:
        """dayfly's, of the plan."""
        return None if self.plan is None else self.plan.prediction


@dataclass(frozen=True, slots=True)
class _Job:
    """Of which all choose."""

    target: Target
    wanted: JobSpec
    workers: int = FUNCTIONS
    vcpus: float = VCPUS
    kind: FunctionKind = BY_MEMORY

    @property
    def profile(self) -> Profile:
        """Of the target."""
        return self.target.profile

    def choice(self, goal: of_runs.Goal) -> Choice:
        """What `dayfly plan` chooses."""
        asked = PlanQuery(
            goal=goal,
            workers=self.workers,
            vcpus=self.vcpus,
            batch_size=self.wanted.batch_size,
            epochs=self.wanted.epochs,
        )
        return choice_of((self.target,), asked)

    def chosen(self, own: Mapping[str, Any] | None, **said: Any) -> Chosen:
        """Of settings, predicted; None: no plan was found."""
        if own is None:
            return Chosen(plan=None, **said)
        settings = Settings(**profile_settings(self.profile, own))
        asked = configuration(settings, self.wanted)
        prediction = predict(self.profile, asked, self.target.platform, self.target.store)
        return Chosen(
            plan=plan_of(self.profile, settings, self.wanted, prediction),
            words=shorthand(settings),
            stages=settings.stages,
            **said,
        )


def chosen_plans(profile: Profile, *, batch_size: int, epochs: int) -> Iterator[Chosen]:
    """Each method's answer to each question of a job."""
    wanted = JobSpec.profiled(profile, batch_size=batch_size, epochs=epochs)
    job = _Job(Target.of(profile, Catalogue()), wanted)
    front = job.choice(of_runs.Goal())
    deadline_s = _LATER * front.front.fastest.seconds
    weights = (1 / front.chosen.usd, 1 / front.chosen.seconds)
    for question, limit, goal in (
        (DEADLINE, deadline_s, of_runs.Goal(deadline_s=deadline_s)),
        (WEIGHTS, weights, of_runs.Goal(weights=weights)),
    ):
        best = job.choice(goal).chosen.plan
        yield Chosen(
            question=question,
            limit=limit,
            method=EXACT,
            plan=best.plan,
            words=best.short,
            stages=best.candidate.settings.stages,
        )
        methods = _within(job, deadline_s) if question == DEADLINE else _weighted(job, weights)
        for method, answered in methods:
            answer, own = answered()
            yield job.chosen(
                own, question=question, limit=limit, method=method, stopped=answer.stopped
            )


#: An answer, and settings of a run; None: no plan.
_Answered = tuple[Answer[Any], dict[str, Any] | None]
_Method = tuple[str, Callable[[], _Answered]]


def _within(job: _Job, deadline_s: float) -> list[_Method]:
    """FasDL's and CE-scaling's, and what FasDL compares itself with."""
    goal, workers = cheapest_within(deadline_s), tuple(range(1, job.workers + 1))
    batch = job.wanted.batch_size
    profile = replace(job.profile, epochs=job.wanted.epochs)
    # Batches in steps of one: the job's are small.
    hybrid = k_reduce_problem(
        profile,
        job.target.platform,
        job.target.store,
        workers=workers,
        most_global_samples=batch,
        rate=0.0,
        step=1,
        vcpus_at_once=job.vcpus,
        kind=job.kind,
    )

    def k_reduce(method: Callable[[Any, Goal], Answer[Any]], collective: str | None) -> _Answered:
        answer = method(hybrid, goal)
        if answer.point is None:
            return answer, None
        plan = answer.point.plan
        own = k_reduce_settings(plan)
        if collective is not None and plan.workers > 1:
            own |= {"collective": collective, "aggregators": None}
        return answer, own

    def stores() -> _Answered:
        largest = profile.sizes[-1]
        rate = min(largest.up.peak_bytes_per_s.value, largest.down.peak_bytes_per_s.value)
        latency_s = max(largest.up.latency_s.value, largest.down.latency_s.value)
        store = StoreOption(
            name=profile.channel, bytes_per_s=rate, latency_s=latency_s, facts=job.target.store
        )
        problem = store_problem(
            profile,
            job.target.platform,
            [store],
            workers=workers,
            batch_size=batch,
            vcpus_at_once=job.vcpus,
        )
        answer = store_greedy.greedy(problem, goal)
        if answer.point is None:
            return answer, None
        plan = answer.point.plan
        own = {"workers": plan.workers, "memory_mib": plan.memory_mib}
        return answer, own | ({"collective": "all-reduce"} if plan.workers > 1 else {})

    return [
        ("two-stage search (FasDL)", partial(k_reduce, two_stage, None)),
        (
            "ScatterReduce, searched",
            partial(k_reduce, k_reduce_fixed.scatter_opt, "scatter-reduce"),
        ),
        ("AllReduce, searched", partial(k_reduce, k_reduce_fixed.all_opt, "all-reduce")),
        ("greedy (CE-scaling)", stores),
        ("LambdaML, fixed", partial(k_reduce, k_reduce_fixed.lambda_ml, "scatter-reduce")),
    ]


def _weighted(job: _Job, weights: tuple[float, float]) -> list[_Method]:
    """FuncPipe's, and what it compares itself with, of a step: it says nothing of starting."""
    (problem,) = _stages(job)
    assert isinstance(problem, StagesOverStore)
    theirs = replace(problem, pipelined=(True,))
    answered = partial(_answered, Goal(alpha1=weights[0], alpha2=weights[1]))
    program = partial(miqp, groups=_GROUPS, time_limit_s=_LIMIT_S)
    searched = partial(bayes, groups=_GROUPS, rounds=ROUNDS)
    plain = replace(problem, pipelined=(False,))
    return [
        ("MIQP (FuncPipe)", partial(answered, program, theirs)),
        ("TPDMP, grid", partial(answered, tpdmp, theirs)),
        (f"Bayes, {ROUNDS} rounds", partial(answered, searched, theirs)),
        ("LambdaML, fixed", partial(answered, pipeline_fixed.lambda_ml, plain)),
    ]


def _answered(goal: Goal, method: Callable[[Any, Goal], Answer[Any]], of: Any) -> _Answered:
    answer = method(of, goal)
    own = None if answer.point is None else pipeline_settings(answer.point.plan)
    return answer, own


def _stages(job: _Job) -> tuple[Problem, ...]:
    """Of cut models: one problem over a store, one for each memory size over direct links."""
    batch = job.wanted.batch_size
    return stages_problems(
        job.profile,
        job.target.platform,
        batch_size=batch,
        micro_batches=(max(1, batch // MICRO_SAMPLES),),
        functions_at_once=job.workers,
        vcpus_at_once=job.vcpus,
        kind=job.kind,
    )


def beside(choice: Choice) -> Iterator[PaperChoice]:
    """What the papers' methods choose where `dayfly plan` chose, of the same job and functions.

    The question is dayfly's: the least dollars within the deadline asked for, or else within what
    its own choice takes; FuncPipe's and Hydrozoa's methods, of a step, weigh both as much as they
    are worth at dayfly's choice. Programs that take longer than a person waits are left out.
    """
    best, asked = choice.chosen.plan, choice.asked
    target, wanted = best.candidate.target, best.candidate.wanted
    kind = FunctionKind.of_settings(best.candidate.own)
    job = _Job(target, wanted, asked.workers, asked.vcpus_of(target.profile), kind)
    limit_s = asked.goal.deadline_s or choice.chosen.seconds
    weights = Goal(alpha1=1 / choice.chosen.usd, alpha2=1 / choice.chosen.seconds)
    methods = [
        (f"the least dollars within {seconds(limit_s)}", one) for one in _within(job, limit_s)
    ] + [("both goals, weighed as at dayfly's choice", one) for one in _quick(job, weights)]
    for question, (name, answered) in methods:
        try:
            _, own = answered()
            if own is None:
                yield PaperChoice(method=name, why=f"it finds no plan: asked for {question}")
                continue
            candidate = with_settings(best.candidate, {**own, **kind.settings, **asked.ends})
            option = predicted(candidate, MESSAGES_PER_S * asked.time_limit_s)
        except RequestError as refusal:
            yield PaperChoice(method=name, why=str(refusal))
            continue
        yield PaperChoice(method=name, option=option)


def _quick(job: _Job, goal: Goal) -> list[_Method]:
    """Those of cut models that answer at once; none for a model that cannot be cut."""
    try:
        problems = _stages(job)
    except RequestError:
        return []
    answered, (first, *_) = partial(_answered, goal), problems
    if not isinstance(first, StagesOverStore):
        bounds = partial(v_bounds, v=_BOUNDS)
        return [("V bounds (Hydrozoa)", partial(answered, _best_of(bounds), problems))]
    theirs = replace(first, pipelined=(True,))
    return [
        ("FuncPipe, solved exactly", partial(answered, _exactly, theirs)),
        ("TPDMP, grid", partial(answered, tpdmp, theirs)),
    ]


def _exactly(problem: StagesOverStore, goal: Goal) -> Answer[PipelinePlan]:
    return exact(choose(problem).front, goal)


def _best_of(
    method: Callable[[Any, Goal], Answer[PipelinePlan]],
) -> Callable[[Sequence[Any], Goal], Answer[PipelinePlan]]:
    """A method that is asked of one problem, asked of several."""

    def answer(problems: Sequence[Any], goal: Goal) -> Answer[PipelinePlan]:
        found = [method(one, goal).point for one in problems]
        return Answer(goal.best(one for one in found if one is not None))

    return answer
