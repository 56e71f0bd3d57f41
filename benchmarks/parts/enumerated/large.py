"""Cuts of large models around those that `dayfly plan` shows, as `dayfly predict` has them.

Nobody can try every cut of a large model. So plans of the front are changed at random, in one to
three settings: where a stage begins, the memory of a stage or of all, replicas, micro-batches, the
schedule, the sum. The judge is the prediction, in virtual time however many messages there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from benchmarks.parts.catalogued_models import profiled
from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.configuration import Configuration
from dayfly.planning.memory import misfits
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.choice import choice_of
from dayfly.runs.choosing.option import Option
from dayfly.runs.choosing.query import MOST_WORKERS, PlanQuery
from dayfly.runs.choosing.targets import Target
from dayfly.runs.plans import configuration_of
from dayfly.wire.pipelines.orders import ORDERS

_MODELS = ("amoebanet_d18", "amoebanet_d36", "bert_base", "bert_large", "resnet101", "vgg16")
_MEMORY_MIB = (1024, 1769, 2048, 3072, 4096, 6144, 8192, 10240)
_BATCH_SIZES = (16, 32, 64, 128, 256)
#: Changed plans of each plan of the front, and settings that are changed, at most.
_EACH, _CHANGES = 6, 3
#: Layers by which a stage may begin earlier or later.
_MOVED = (-3, -2, -1, 1, 2, 3)


def random_problem(chance: Random) -> Profile:
    """A large model on AWS Lambda over S3, by the catalogue; all have a size that it fits into."""
    sizes = chance.sample(_MEMORY_MIB[:-1], chance.randint(2, 5))
    return profiled(
        chance.choice(_MODELS),
        memory_mib=(*sorted(sizes), _MEMORY_MIB[-1]),
        batch_size=chance.choice(_BATCH_SIZES),
    )


def chosen(made: Profile) -> Front[Option]:
    """The front of `dayfly plan`. Raises RequestError for no plan."""
    return choice_of((Target.of(made, Catalogue()),), PlanQuery()).front


def changed_plans(
    made: Profile, front: Front[Option], chance: Random
) -> Iterator[Point[Configuration]]:
    """Changed plans that can run and fit, predicted."""
    target = Target.of(made, Catalogue())
    shown = [configuration_of(one.plan.plan) for one in front.points]
    seen = set(shown)
    for c in [one for one in shown if one.cut for _ in range(_EACH)]:
        for _ in range(chance.randint(1, _CHANGES)):
            c = _changed(c, made, chance)
        if c in seen or c.workers > MOST_WORKERS:
            continue
        seen.add(c)
        try:
            said = predict(made, c, target.platform, target.store)
        except RequestError:  # such as more replicas than samples
            continue
        if not misfits(made, c, said):
            yield Point(said.total_s, said.cost_usd, c)


def _changed(c: Configuration, made: Profile, chance: Random) -> Configuration:
    """One setting at random."""
    what, at = chance.randrange(7), chance.randrange(c.stages)
    sizes = [one.memory_mib for one in made.sizes]
    if what == 0 and at:
        cut = list(c.cut)
        cut[at - 1] += chance.choice(_MOVED)
        fits = sorted({*cut} & {*range(1, len(made.layers))})
        return replace(c, cut=tuple(cut)) if fits == cut else c
    if what == 1:
        own = (*c.memory_mib[:at], chance.choice(sizes), *c.memory_mib[at + 1 :])
        return replace(c, memory_mib=own)
    if what == 2:
        return replace(c, memory_mib=(chance.choice(sizes),) * c.stages)
    if what == 3:
        part = chance.choice((0.5, 2, 4))
        return replace(c, micro_batches=max(1, round(part * c.micro_batches)))
    if what == 4:
        part = chance.choice((0.5, 2))
        each = tuple(max(1, round(part * one)) for one in c.layout.each)
        micro_batches = max(1, c.micro_batches * c.members // max(each))
        replicas = each if len(set(each)) > 1 else each[0]
        return replace(c, workers=sum(each), replicas=replicas, micro_batches=micro_batches)
    if what == 5:
        return replace(c, schedule=chance.choice(list(ORDERS)))
    if c.members == 1:  # nothing is summed
        return c
    return replace(c, collective=chance.choice(("pipelined", "scatter-reduce")))
