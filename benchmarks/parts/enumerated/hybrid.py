"""Every plan of hybrid asynchronous workers as `dayfly predict` has it, beside what `dayfly plan
--sync hap` shows.

FasDL's axes: functions, memory sizes, aggregators, their samples of a step by steps or none, and
any number of samples of each other function from those on. The judge is the prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from benchmarks.parts.enumerated import problems
from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.configuration import Configuration, stage_memory_mib
from dayfly.planning.plan import Prediction
from dayfly.planning.predict import predict
from dayfly.planning.profile import Affine, Figure, Profile
from dayfly.runs.choosing.choice import choice_of
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.wire.collectives import K_REDUCE

#: Functions of a plan, at most; FasDL's step of an aggregator's samples.
MOST_WORKERS, STEP = 3, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HapProblem:
    """A job, and the most samples of a step."""

    profile: Profile
    most: int

    @property
    def target(self) -> Target:
        """Where it runs."""
        return Target.of(self.profile, Catalogue())


def random_problem(chance: Random) -> HapProblem:
    """Of 16 to 48 samples a step at most, and one size of functions or more, some of which hold few
    samples; a step may take time beside its samples, so that the least batch is larger."""
    made = replace(problems.job(chance), listed=False, epochs=chance.randint(1, 4))
    beside_s = chance.choice((0.0, 0.0, 0.05))
    tight = chance.choice((1.0, 1.0, 100.0))
    layers = tuple(
        replace(one, activations=tight * one.activations, buffers=chance.choice((0, 4000)))
        for one in made.layers
    )
    sizes = tuple(
        replace(one, step_s=Figure.given(beside_s), apply=Affine(0.0, chance.choice((0.0, 1e-9))))
        for one in chance.sample(made.sizes, chance.choice((1, 1, 2, 3)))
    )
    made = replace(made, layers=layers, sizes=sizes, host=problems.host(chance))
    return HapProblem(profile=made, most=chance.choice((16, 17, 18, 20, 24, 33, 48)))


def chosen(problem: HapProblem) -> Front[object]:
    """The front of `dayfly plan`, with time to predict all that is near it. Raises RequestError for
    no plan."""
    asked = PlanQuery(
        workers=MOST_WORKERS,
        methods=("hap",),
        most_batch_size=problem.most,
        time_limit_s=60.0,
        least_predicted=300,
    )
    return choice_of((problem.target,), asked).front


def every_plan(problem: HapProblem) -> Iterator[Point[Configuration]]:
    """Each plan that fits, predicted."""
    target = problem.target
    for c in configurations(problem):
        said = predict(target.profile, c, target.platform, target.store)
        if fits(c, said):
            yield Point(said.total_s, said.cost_usd, c)


def fits(c: Configuration, said: Prediction) -> bool:
    """Whether functions of each role have the memory that they need."""
    return all(
        peak <= (stage_memory_mib(c, kind) or 0) for kind, peak in enumerate(said.memory_mib)
    )


def configurations(problem: HapProblem) -> Iterator[Configuration]:
    """Each that can be run, whatever memory it needs."""
    made = problem.profile
    most = min(problem.most, made.samples)
    # FasDL's equation 14: a batch b/(1/0.6 - 1) has 0.6 of the best rate.
    least = min(map(_fixed_in_samples, _each_s(made))) / (1 / 0.6 - 1)
    first = max(1, -int(-least // STEP)) * STEP
    batches = list(range(first, most + 1, STEP)) or [most]
    for workers in range(1, MOST_WORKERS + 1):
        for size in made.sizes:
            for k in range(1, workers + 1):
                for own in (0, *batches):
                    for others in _others(workers, k, own, batches[0], most):
                        yield Configuration(
                            workers=workers,
                            memory_mib=(size.memory_mib,),
                            lifetime_s=900.0,
                            epochs=made.epochs,
                            batch_size=k * own + (workers - k) * others,
                            **_roles(workers, k, own, others),
                        )


def _each_s(made: Profile) -> list[Affine]:
    trained = sum(layer.trained for layer in made.layers)
    return [
        sum(
            (*size.forward, *size.backward, size.data),
            Affine(size.step_s.value + size.apply(trained), 0.0),
        )
        for size in made.sizes
    ]


def _fixed_in_samples(line: Affine) -> float:
    return line.fixed / line.each


def _others(workers: int, k: int, own: int, least: int, most: int) -> range:
    """Samples of each other function; where there is none, one number if the batch may be."""
    if workers == k:
        return range(1) if 0 < workers * own <= most else range(0)
    return range(max(own, least), (most - k * own) // (workers - k) + 1)


def _roles(workers: int, k: int, own: int, others: int) -> dict[str, object]:
    """Where all are aggregators, they are bsp's."""
    if workers == 1:
        return {}
    summed = {"collective": K_REDUCE, "aggregators": k}
    shares = (own,) * k + (others,) * (workers - k)
    return summed if workers == k else {**summed, "sync": "hap", "shares": shares}
