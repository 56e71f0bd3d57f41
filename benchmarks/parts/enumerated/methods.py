"""Every plan of whole models by several methods and batch sizes, beside what `dayfly plan` shows.

Each method at each batch size has the epochs that its samples take, as given by hand or measured:
so a problem is several of `whole`, and the judge is the prediction of each with its epochs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from benchmarks.parts.enumerated import problems
from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.configuration import Configuration
from dayfly.planning.efficiency import TOLERANCE
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.choice import choice_of
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.choosing.whole_models import collectives_with
from dayfly.specs.methods import BSP, EPOCH, Method, crossed
from dayfly.wire.collectives import K_REDUCE

#: Functions of a plan, at most.
MOST_WORKERS = 3
#: Bsp's, and two of these.
_METHODS = ("local-sgd:2", "local-sgd:epoch", "nesterov:3", "nesterov:5+int8", "bsp+int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodsProblem:
    """A job, and how many times the samples of bsp each method takes at each batch size."""

    profile: Profile
    samples: dict[tuple[str, int], float]

    @property
    def asked(self) -> PlanQuery:
        """What `dayfly plan` is asked, with time to predict all that is near the front."""
        methods, batches = zip(*self.samples, strict=True)
        return PlanQuery(
            workers=MOST_WORKERS,
            methods=tuple(dict.fromkeys(methods)),
            batch_sizes=tuple(dict.fromkeys(batches)),
            efficiencies=tuple(f"{m}@{b}={f!r}" for (m, b), f in self.samples.items()),
            time_limit_s=60.0,
            least_predicted=300,
        )


def random_problem(chance: Random) -> MethodsProblem:
    """Of two or three methods at two batch sizes; some take as many samples as bsp, some more."""
    return _problem(chance, [str(BSP), *chance.sample(_METHODS, chance.randint(1, 2))])


def streamed_problem(chance: Random) -> MethodsProblem:
    """Of outer gradients that are streamed in several ways, and compressed in two."""
    k = chance.choice((2, 3, 5, 8, EPOCH))
    named = Method.parse(f"{chance.choice(('nesterov', 'momentum'))}:{k}")
    most = k if isinstance(k, int) else 4
    axes = {
        "fragments": [None, *chance.sample(range(1, min(most, 4) + 1), 2)],
        "overlap": chance.sample(range(most), 2),
        "compress": chance.sample(("none", "bf16", "int8", "int4", "topk:0.05"), 2),
    }
    every = crossed([named], axes)
    return _problem(chance, list(map(str, chance.sample(every, 3))), batches=1)


def _problem(chance: Random, methods: Sequence[str], batches: int = 2) -> MethodsProblem:
    """Of these at one batch size, or two."""
    made = replace(problems.job(chance), listed=False, epochs=chance.randint(1, 6))
    made = replace(made, host=problems.host(chance))
    batch = made.batch_size or 1
    samples = {
        (name, size): chance.choice((0.8, 1.05, chance.uniform(1.1, 3.0)))
        for size in (batch, chance.choice((2, 4)) * batch)[:batches]
        for name in methods
    }
    if str(BSP) in methods:
        samples[str(BSP), batch] = 1.0
    return MethodsProblem(profile=made, samples=samples)


def chosen(problem: MethodsProblem) -> Front[object]:
    """The front of `dayfly plan`. Raises RequestError for no plan."""
    return choice_of((Target.of(problem.profile, Catalogue()),), problem.asked).front


def every_plan(problem: MethodsProblem) -> Iterator[Point[Configuration]]:
    """Each plan that fits, predicted with the epochs that it takes."""
    target = Target.of(problem.profile, Catalogue())
    for c in _all(problem, target):
        said = predict(target.profile, c, target.platform, target.store)
        if said.memory_mib[0] <= (c.memory_mib[0] or 0):
            yield Point(said.total_s, said.cost_usd, c)


def _all(problem: MethodsProblem, target: Target) -> Iterator[Configuration]:
    """Each that can be run: not every collective can have every method."""
    made = problem.profile
    for (name, batch), samples in problem.samples.items():
        method, epochs = Method.parse(name), made.epochs
        if not 1 / (1 + TOLERANCE) <= samples <= 1 + TOLERANCE:
            epochs = max(1, math.ceil(round(samples * epochs, 6)))
        least = 1 if method == BSP else 2
        collectives = collectives_with(target, PlanQuery(methods=(name,)))
        for workers in range(least, min(MOST_WORKERS, batch) + 1):
            for size in made.sizes:
                for summed in collectives if workers > 1 else ("scatter-reduce",):
                    for k in range(1, workers + 1) if summed == K_REDUCE else (None,):
                        yield Configuration(
                            workers=workers,
                            memory_mib=(size.memory_mib,),
                            sync=method.sync,
                            k=method.round_steps,
                            outer=method.outer,
                            streaming=method.streaming,
                            compress=method.compress,
                            collective=summed,
                            aggregators=k,
                            batch_size=batch,
                            lifetime_s=900.0,
                            epochs=epochs,
                        )
