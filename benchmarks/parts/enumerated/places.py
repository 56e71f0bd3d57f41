"""A job at several places at once, where plans of one spare looking at those of others.

Whole models by the planner's closed forms, each number of workers of each place by itself; cut
models by FuncPipe's and Hydrozoa's equations, every plan; both with what a place adds, which is
interruptions and the time of servers. The planner goes through the places one after another, in any
order, and leaves out what is beaten by what it takes at least.

Models are cut where nobody interrupts functions and no least time is billed: the search for cuts
counts neither, which `dayfly plan` says as a gap and as a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from benchmarks.parts.enumerated import problems, stages
from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.catalogued import Assumed, facts_of, profile_of
from dayfly.planning.choose.data_parallel import all_data_parallel
from dayfly.planning.choose.data_parallel_problem import DataParallelProblem, collectives_of
from dayfly.planning.choose.from_profile import kinds_of_sizes, stages_problems
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.known import Known
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.floors import all_beaten
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    Problem,
)
from dayfly.planning.choose.whole_runs import at_place
from dayfly.planning.profile import Affine, Profile
from dayfly.runs.choosing.places import DIRECT, facts_of_store, lent

_KNOWN = Catalogue()
#: Platforms and stores to draw from.
_PLACES = (
    ("aws-lambda", "s3"),
    ("aws-lambda-arm", "s3"),
    ("aws-lambda", "vm-m5-large:2"),
    ("fargate", "s3"),
    ("cloud-run", "gcs"),
    ("alibaba-fc-t4", "alibaba-oss"),
    ("azure-containers-k80", DIRECT),
    ("vm-c5-large", DIRECT),
    ("vm-c5-large:spot", DIRECT),
    ("vm-p2-xlarge:spot", DIRECT),
)
_WORKERS = (1, 2, 3, 5)
#: Micro-batches of a step of cut models, and their functions at most.
_CUT_MICRO_BATCHES, _CUT_FUNCTIONS = (4,), 6


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job may run. cut: whether its model may be. epochs: of the run."""

    profile: Profile
    platform: FunctionPlatform
    store: StoreFacts | None
    cut: bool
    epochs: int

    @property
    def start_s(self) -> float:
        """Of a function, once more."""
        return max(size.init_s.value + size.start_s.value for size in self.profile.sizes)

    @property
    def steps(self) -> float:
        """Of a run."""
        return self.epochs * self.profile.samples / (self.profile.batch_size or 1)

    def run(self, step_s: Any, step_usd: Any, workers: Any) -> tuple[Any, Any]:
        """Seconds and dollars of a run of cut models, from those of a step; elementwise."""
        seconds, usd = self.steps * step_s, self.steps * step_usd
        return at_place(seconds, usd, workers, self.platform, self.store, start_s=self.start_s)

    def whole(self, workers: tuple[int, ...] = _WORKERS) -> DataParallelProblem:
        """Plans of whole models."""
        return DataParallelProblem(
            profile=self.profile,
            platform=self.platform,
            store=self.store,
            workers=workers,
            collectives=collectives_of(self.profile),
            micro_batches=(1, 2, 4, 8, 16, 32),
            batch_size=self.profile.batch_size or 1,
            epochs=self.epochs,
        )

    def cuts(self) -> Iterator[tuple[Problem, ...]]:
        """Plans of cut models, of each kind of functions."""
        for kind in kinds_of_sizes(self.profile) if self.cut else ():
            yield stages_problems(
                self.profile,
                self.platform,
                batch_size=self.profile.batch_size or 1,
                micro_batches=_CUT_MICRO_BATCHES,
                functions_at_once=_CUT_FUNCTIONS,
                kind=kind,
            )


def random_problem(chance: Random) -> tuple[Place, ...]:
    """A job at two to four places; of few layers it may be cut."""
    job = problems.job(chance)
    job = replace(job, flops=tuple(Affine(0.0, 10 ** chance.uniform(6, 10)) for _ in job.layers))
    cut = 1 < len(job.layers) < 4 and chance.random() < 0.5
    epochs = chance.choice((1, 3000))
    return tuple(
        _place(job, *named, cut=cut, epochs=epochs)
        for named in chance.sample(_PLACES, chance.randint(2, 4))
    )


def _place(job: Profile, name: str, store: str, *, cut: bool, epochs: int) -> Place:
    platform = _KNOWN.platform(name)
    least_ms = platform.prices.billing_min_ms if platform.prices is not None else 0
    cut = cut and not (store.startswith("vm-") or least_ms)
    cut = cut and not platform.spot_interruptions_per_month
    facts = facts_of_store(platform, store, _KNOWN)
    values, _ = lent(platform, facts, _KNOWN)
    assumed = Assumed(**{"base_mib": 150.0, "cold_start_s": 0.5, **values})
    machine_mib = platform.memory_max_mib if platform.machine_vcpus is not None else None
    sizes = (1024, 3072) if machine_mib is None else (machine_mib,)
    made = profile_of(facts_of(job), platform, facts, sizes, assumed, every_kind=True)
    return Place(made, platform, facts if facts.priced else None, cut, epochs)


def chosen(places: tuple[Place, ...]) -> Front[Any]:
    """The front over all places."""
    known, found = Known(), list[Point[Any]]()
    refused: list[RequestError] = []
    for place in places:
        try:
            found += all_data_parallel(place.whole(), known)
        except RequestError as refusal:  # it fits nowhere
            refused.append(refusal)
        for cuts in place.cuts():
            if all_beaten(cuts, known, place.run):
                continue
            rivals = known.of_steps(place.steps, 0.0)
            try:
                points = _run(place, choose(*cuts, rivals=rivals).points)
            except RequestError as refusal:
                refused.append(refusal)
                continue
            known.add([one.seconds for one in points], [one.usd for one in points])
            found += points
    if not found:
        raise refused[0]
    return Front.of(found)


def every_plan(places: tuple[Place, ...]) -> Iterator[Point[Any]]:
    """Each place by itself, each plan of it."""
    for place in places:
        for workers in _WORKERS:
            try:
                yield from all_data_parallel(place.whole((workers,)))
            except RequestError:  # it does not fit
                continue
        for cuts in place.cuts():
            for one in cuts:
                # An uncut one is of whole models, and what it dominates is no choice.
                points = stages.every_point(one)
                uncut = [point for point in points if not point.plan.starts]
                yield from _run(
                    place,
                    [
                        point
                        for point in points
                        if not any(
                            other.seconds <= point.seconds and other.usd <= point.usd
                            for other in uncut
                        )
                    ],
                )


def _run(place: Place, points: Any) -> list[Point[PipelinePlan]]:
    """Of cut models alone."""
    return [
        Point(*place.run(point.seconds, point.usd, point.plan.functions), point.plan)
        for point in points
        if point.plan.starts
    ]
