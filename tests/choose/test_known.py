"""What is known elsewhere spares a planner work, and takes nothing from the front."""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.parts.enumerated.problems import job

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel import DataParallelProblem, all_data_parallel
from dayfly.planning.choose.from_profile import summed_bytes
from dayfly.planning.choose.front import Front
from dayfly.planning.choose.known import Known
from dayfly.planning.choose.whole_runs import least_run

LAMBDA, S3 = Catalogue().platform("aws-lambda"), Catalogue().store("s3")


def test_what_is_better_in_both_goals_beats() -> None:
    known = Known(slack=0.1)
    assert not known.beats(1e9, 1e9)
    known.add([10.0, 20.0], [4.0, 2.0])  # a fast one and a cheap one
    known.add([21.0], [3.0])  # neither
    known.add([], [])
    assert known.beats(11.1, 4.5)
    assert not known.beats(10.9, 4.5)  # as fast, within the slack
    assert not known.beats(11.1, 4.3)  # as cheap
    assert known.beats(30.0, 2.3)
    assert not known.beats(21.9, 3.0)  # one is not dearer by enough, the other not slower


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_is_below_its_least_and_none_of_the_front_is_spared(seed: int) -> None:
    chance = Random(seed)
    profiles, fronts = [], []
    while len(profiles) < 2:
        made = job(chance)
        try:
            fronts.append(all_data_parallel(_problem(made)))
        except RequestError:  # it fits nowhere
            continue
        profiles.append(made)
    for made, points in zip(profiles, fronts, strict=True):
        summed = summed_bytes(made)
        for point in points:
            size = made.size(point.plan.memory_mib)
            least_s, least_usd = least_run(
                _problem(made), point.plan.memory_mib, size, point.plan.workers, summed
            )
            assert least_s <= point.seconds * (1 + 1e-9)
            assert least_usd <= point.usd * (1 + 1e-9)
    known = Known(slack=0.1)
    found = [point for made in profiles for point in all_data_parallel(_problem(made), known)]
    whole = Front.of([*fronts[0], *fronts[1]])
    assert [(one.seconds, one.usd) for one in Front.of(found).points] == [
        (one.seconds, one.usd) for one in whole.points
    ]


def _problem(made: object) -> DataParallelProblem:
    return DataParallelProblem(
        profile=made,  # type: ignore[arg-type]
        platform=LAMBDA,
        store=S3,
        workers=(1, 2, 3, 4),
        collectives=("scatter-reduce", "pipelined", "k-reduce", "ring"),
        micro_batches=(1, 2, 4, 8, 16, 32),
        batch_size=made.batch_size,  # type: ignore[attr-defined]
    )
