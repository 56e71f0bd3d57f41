"""Every plan of hybrid asynchronous workers, beside what `dayfly plan --sync hap` shows.

FasDL's problem says which plans there are: functions, memory, aggregators, and the batches of both
roles up to the job's. The planner goes by its equations; the judge is the prediction of each, with
the epochs that its number of aggregators takes, as given by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from benchmarks.parts.enumerated import k_reduce, problems
from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.k_reduce_from_profile import k_reduce_problem
from dayfly.planning.choose.k_reduce_problem import KReducePlan
from dayfly.planning.configuration import Configuration
from dayfly.planning.efficiency import TOLERANCE
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.choice import choice_of
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target

#: Functions of a plan, at most.
MOST_WORKERS = 4
#: A function's life on Lambda.
_LIFETIME_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HapProblem:
    """A job, how its gradients travel, and how many times the samples of bsp each number of
    aggregators takes."""

    profile: Profile
    compress: str
    samples: dict[int, float]

    def method(self, aggregators: int | None = None) -> str:
        """Its name; None: with any number of aggregators."""
        name = "hap" if aggregators is None else f"hap:{aggregators}"
        return name if self.compress == "none" else f"{name}+{self.compress}"

    @property
    def asked(self) -> PlanQuery:
        """What `dayfly plan` is asked, with time to predict all that is near the front."""
        batch = self.profile.batch_size
        return PlanQuery(
            workers=MOST_WORKERS,
            methods=(self.method(),),
            efficiencies=tuple(f"{self.method(k)}@{batch}={f!r}" for k, f in self.samples.items()),
            time_limit_s=60.0,
            least_predicted=300,
        )

    def epochs(self, aggregators: int) -> int:
        """Of a plan with so many aggregators and others beside them, at any batch size."""
        samples, epochs = self.samples[aggregators], self.profile.epochs
        if 1 / (1 + TOLERANCE) <= samples <= 1 + TOLERANCE:
            return epochs
        return max(1, math.ceil(round(samples * epochs, 6)))


def random_problem(chance: Random) -> HapProblem:
    """Some numbers of aggregators take as many samples as bsp, some more."""
    made = replace(problems.job(chance), listed=False, epochs=chance.randint(1, 6))
    return HapProblem(
        profile=replace(made, host=problems.host(chance)),
        compress=chance.choice(("none", "none", "int8")),
        samples={
            k: chance.choice((1.0, 1.05, chance.uniform(1.1, 2.0))) for k in range(1, MOST_WORKERS)
        },
    )


def chosen(problem: HapProblem) -> Front[object]:
    """The front of `dayfly plan`. Raises RequestError for no plan."""
    return choice_of((Target.of(problem.profile, Catalogue()),), problem.asked).front


def every_plan(problem: HapProblem) -> Iterator[Point[Configuration]]:
    """Each plan of FasDL's problem that fits, predicted with the epochs that it takes."""
    target = Target.of(problem.profile, Catalogue())
    asked = k_reduce_problem(
        target.profile,
        target.platform,
        target.store,
        workers=tuple(range(1, MOST_WORKERS + 1)),
        most_global_samples=min(problem.profile.batch_size or 1, problem.profile.samples),
        sync="hap",
        compress=problem.compress,
    )
    for _, _, plan in k_reduce.every_plan(asked):
        c = _configuration(problem, plan)
        if c is None:
            continue
        said = predict(target.profile, c, target.platform, target.store)
        if all(peak <= plan.memory_mib for peak in said.memory_mib):
            yield Point(said.total_s, said.cost_usd, c)


def _configuration(problem: HapProblem, plan: KReducePlan) -> Configuration | None:
    """Of a run; None: it is compressed bsp, which is another method."""
    k, others = plan.aggregators, plan.workers - plan.aggregators
    own = {
        "workers": plan.workers,
        "memory_mib": (plan.memory_mib,),
        "collective": "k-reduce",
        "aggregators": k,
        "batch_size": plan.global_samples,
        "lifetime_s": _LIFETIME_S,
        "epochs": problem.profile.epochs,
    }
    if plan.workers == 1:
        own |= {"collective": "scatter-reduce", "aggregators": None}
    if not others:
        alone = plan.workers == 1 or problem.compress == "none"
        return Configuration(**own) if alone else None
    shares = (plan.aggregators_samples,) * k + (plan.others_samples,) * others
    own |= {"sync": "hap", "compress": problem.compress, "epochs": problem.epochs(k)}
    return Configuration(**own, shares=shares if len(set(shares)) > 1 else ())
