"""Every plan of a whole model as `dayfly predict` has it, beside what `dayfly plan` shows.

All functions, memory sizes, collectives and numbers of aggregators, each with the fewest
micro-batches that fit, in virtual time: the judge is the prediction, not the planner's closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dayfly.catalogue.lookup import Catalogue
from dayfly.planning.choose.data_parallel_problem import collectives_of
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.choice import choice_of
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.wire.collectives import K_REDUCE

#: Functions of a plan, at most.
MOST_WORKERS = 5


def chosen(made: Profile) -> Front[object]:
    """The front of `dayfly plan`, of plans that are not cut, if it is given the time to predict all
    that is within the closed forms' error. Raises RequestError for no plan."""
    target = Target.of(replace(made, listed=False), Catalogue())
    return choice_of(
        (target,), PlanQuery(workers=MOST_WORKERS, time_limit_s=60.0, least_predicted=300)
    ).front


def every_plan(made: Profile) -> Iterator[Point[Configuration]]:
    """Each plan that fits, predicted."""
    target = Target.of(replace(made, listed=False), Catalogue())
    for c in _all(target.profile):
        said = predict(target.profile, c, target.platform, target.store)
        if said.memory_mib[0] <= (c.memory_mib[0] or 0):
            yield Point(said.run_s, said.cost_usd, c)


def _all(made: Profile) -> Iterator[Configuration]:
    batch = made.batch_size or 1
    for workers in range(1, min(MOST_WORKERS, batch) + 1):
        for size in made.sizes:
            for name in collectives_of(made) if workers > 1 else ("scatter-reduce",):
                for k in range(1, workers + 1) if name == K_REDUCE else (None,):
                    yield Configuration(
                        workers=workers,
                        memory_mib=(size.memory_mib,),
                        collective=name,
                        aggregators=k,
                        batch_size=batch,
                        lifetime_s=900.0,
                        epochs=made.epochs,
                    )
