"""Every cut of a small model as `dayfly predict` has it, beside what `dayfly plan` shows.

All cuts, replicas and micro-batches, by both schedules; memory of each stage where there are two,
else one for all. The judge is the prediction, not the equations by which the planner searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations, product
from random import Random

from benchmarks.parts.enumerated import problems
from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.choice import choice_of
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.wire.pipelines.orders import ORDERS

#: Functions of a plan, and layers of a model, at most; micro-batches of a step.
MOST_WORKERS, _MOST_LAYERS = 4, 4
_MICRO_BATCHES = (2, 4, 8)


def random_problem(chance: Random) -> Profile:
    """A job of two to four layers, over S3 or a free store."""
    while True:
        made = problems.job(chance)
        if len(made.layers) > 1:
            break
    return replace(
        made,
        channel=chance.choice((made.channel, "file:///dev/shm")),
        layers=made.layers[:_MOST_LAYERS],
        sizes=tuple(
            replace(one, forward=one.forward[:_MOST_LAYERS], backward=one.backward[:_MOST_LAYERS])
            for one in made.sizes
        ),
    )


def chosen(made: Profile) -> Front[object]:
    """The front of `dayfly plan`, with the time to predict all candidates. Raises RequestError for
    no plan."""
    asked = PlanQuery(
        workers=MOST_WORKERS,
        micro_batches=_MICRO_BATCHES,
        time_limit_s=60.0,
        least_predicted=300,
    )
    return choice_of((Target.of(made, Catalogue()),), asked).front


def every_plan(made: Profile) -> Iterator[Point[Configuration]]:
    """Each cut that fits, predicted."""
    target = Target.of(made, Catalogue())
    for c in _all(target.profile):
        said = predict(target.profile, c, target.platform, target.store)
        if all(
            needs <= (has or 0) for needs, has in zip(said.memory_mib, c.memory_mib, strict=True)
        ):
            yield Point(said.total_s, said.cost_usd, c)


def _all(made: Profile) -> Iterator[Configuration]:
    batch, layers = made.batch_size or 1, range(1, len(made.layers))
    sizes = [one.memory_mib for one in made.sizes]
    cuts = chain.from_iterable(combinations(layers, many) for many in range(1, MOST_WORKERS))
    for cut in cuts:
        stages = len(cut) + 1
        each = product(sizes, repeat=2) if stages == 2 else ((one,) * stages for one in sizes)
        for memory_mib, micro_batches, schedule in product(each, _MICRO_BATCHES, ORDERS):
            for replicas in range(1, MOST_WORKERS // stages + 1):
                if micro_batches % replicas or micro_batches > batch:
                    continue
                collectives = ("scatter-reduce", "pipelined") if replicas > 1 else ("pipelined",)
                for name in collectives:
                    yield Configuration(
                        workers=stages * replicas,
                        replicas=replicas,
                        cut=cut,
                        memory_mib=memory_mib,
                        micro_batches=micro_batches // replicas,
                        schedule=schedule,
                        collective=name,
                        batch_size=batch,
                        lifetime_s=900.0,
                        epochs=made.epochs,
                    )
