"""What is known elsewhere spares a planner work, and takes nothing from the front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from benchmarks.parts.enumerated import gpus, problems
from benchmarks.parts.enumerated import stages as enumerated
from benchmarks.parts.enumerated.problems import job

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel import all_data_parallel
from dayfly.planning.choose.data_parallel_problem import DataParallelProblem, collectives_of
from dayfly.planning.choose.from_profile import summed_bytes
from dayfly.planning.choose.front import Front
from dayfly.planning.choose.known import Known
from dayfly.planning.choose.pipelines.floors import least_steps
from dayfly.planning.choose.pipelines.problem import Problem
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


@pytest.mark.parametrize("on_gpus", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_plan_is_below_its_least_and_none_of_the_front_is_spared(
    seed: int, on_gpus: bool
) -> None:
    chance = Random(seed)
    asked, found = [], []
    while len(asked) < 2:
        problem = _problem(chance, on_gpus=on_gpus)
        try:
            found.append(all_data_parallel(problem))
        except RequestError:  # it fits nowhere
            continue
        asked.append(problem)
    for problem, points in zip(asked, found, strict=True):
        summed = summed_bytes(problem.profile)
        for point in points:
            plan, share = point.plan, point.plan.has.gpu_share
            size = problem.profile.size(plan.memory_mib, None, share)
            assert (share is not None) == on_gpus
            least_s, least_usd = least_run(problem, plan.memory_mib, size, plan.workers, summed)
            assert least_s <= point.seconds * (1 + 1e-9)
            assert least_usd <= point.usd * (1 + 1e-9)
    known = Known(slack=0.1)
    looked_at = [point for problem in asked for point in all_data_parallel(problem, known)]
    assert [(one.seconds, one.usd) for one in Front.of(looked_at).points] == [
        (one.seconds, one.usd) for one in Front.of([*found[0], *found[1]]).points
    ]


@pytest.mark.parametrize("channel", ["s3", "tcp://", "vm-m5-large:2"])
@pytest.mark.parametrize("seed", range(2))
def test_no_sum_takes_less_than_its_least(seed: int, channel: str) -> None:
    """Also where all workers share what the store carries, and where it sums."""
    chance = Random(seed)
    total = chance.choice((None, 3e7, 2e8))
    made = replace(job(chance), channel=channel, store_bytes_per_s=total)
    problem = DataParallelProblem(
        profile=made,
        platform=LAMBDA,
        workers=(1, 2, 3, 4, 7),
        collectives=collectives_of(made),
        micro_batches=(1, 2, 4, 8, 16, 32),
        batch_size=made.batch_size or 1,
    )
    summed = summed_bytes(made)
    for point in all_data_parallel(problem):
        plan = point.plan
        least = least_run(
            problem, plan.memory_mib, made.size(plan.memory_mib), plan.workers, summed
        )
        assert least[0] <= point.seconds * (1 + 1e-9)
        assert least[1] <= point.usd * (1 + 1e-9)
        every = least_run(
            problem,
            plan.memory_mib,
            made.size(plan.memory_mib),
            np.array([1, plan.workers]),  # type: ignore[arg-type]  # elementwise
            summed,
        )
        assert (every[0][1], every[1][1]) == least  # type: ignore[index]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", [problems.stages, problems.shards])
def test_no_cut_takes_less_than_its_least(make: Callable[[Random], Problem], seed: int) -> None:
    chance = Random(seed)
    problem = make(chance)
    least = {workers: (s, usd) for workers, s, usd in least_steps(problem)}
    cuts = [point for point in enumerated.every_point(problem) if point.plan.starts]
    for point in cuts:
        seconds, usd = least[point.plan.functions]
        assert seconds <= point.seconds * (1 + 1e-9)
        assert usd <= point.usd * (1 + 1e-9)


def _problem(chance: Random, *, on_gpus: bool) -> DataParallelProblem:
    where = gpus.random_problem(chance) if on_gpus else None
    made = job(chance) if where is None else where.profile
    return DataParallelProblem(
        profile=made,
        platform=LAMBDA if where is None else where.platform,
        store=S3,
        workers=(1, 2, 3, 4),
        collectives=("scatter-reduce", "pipelined", "k-reduce", "ring"),
        micro_batches=(1, 2, 4, 8, 16, 32),
        batch_size=made.batch_size or 1,
    )
