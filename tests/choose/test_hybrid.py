"""Plans of hap: nothing is left out, each role has its own memory, and times are a prediction's."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from benchmarks.parts.enumerated import hybrid
from benchmarks.plans import compare

from dayfly.catalogue.lookup import Catalogue
from dayfly.errors import RequestError
from dayfly.planning.choose.data_parallel_problem import DataParallelProblem
from dayfly.planning.choose.hybrid import HybridProblem, near_hybrid
from dayfly.planning.choose.k_reduce_problem import KReducePlan
from dayfly.planning.configuration import Configuration
from dayfly.planning.predict import predict
from dayfly.planning.profile import Profile
from dayfly.runs.choosing.hybrid import hybrid_problem
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.plans import JobSpec
from dayfly.specs.methods import Method
from tests.choose.lambda_by_hand import job

KNOWN = Catalogue()
LAMBDA, S3 = KNOWN.platform("aws-lambda"), KNOWN.store("s3")
ALL = 10**6


def problem(made: Profile, most: int = 64, **more: object) -> HybridProblem:
    whole = DataParallelProblem(
        profile=made,
        platform=LAMBDA,
        store=S3,
        workers=(1, 2, 3, 4),
        collectives=("k-reduce",),
        micro_batches=(1,),
        batch_size=most,
        method=Method.parse("hap", planned=True),
    )
    return HybridProblem(whole=whole, **more)  # type: ignore[arg-type]


def pairs(asked: HybridProblem) -> set[tuple[int, int]]:
    found = near_hybrid(asked, math.inf, ALL)
    return {(one.plan.workers, one.plan.aggregators) for one in found}


Key = tuple[int | None, int, int, int, int]


def key(plan: KReducePlan) -> Key:
    of = plan.workers, plan.aggregators, plan.aggregators_samples, plan.others_samples
    return (plan.memory_mib, *of)


def key_of(c: Configuration) -> Key:
    of = c.workers, c.aggregators or 1
    lags = bool(c.shares)
    own, others = (c.shares[0], c.shares[-1]) if lags else (c.batch_size // c.workers, 0)
    return (c.memory_mib[0], *of, own, others)


@pytest.mark.parametrize("seed", range(3))
def test_all_plans_that_fit_are_searched_and_take_what_closed_forms_of_predictions_say(
    seed: int,
) -> None:
    """Of random problems: every plan of the axes whose functions have the memory of their role, or
    one that takes and costs the same with another batch of the others."""
    made = hybrid.random_problem(Random(seed))
    target = made.target
    query = PlanQuery(workers=3, methods=("hap",), most_batch_size=made.most)
    asked = hybrid_problem(target, query, JobSpec.profiled(target.profile))
    found = {key(one.plan): one for one in near_hybrid(asked, math.inf, ALL)}
    every = {}
    for c in hybrid.configurations(made):
        said = predict(target.profile, c, target.platform, target.store, most_simulated=0)
        if hybrid.fits(c, said):
            every[key_of(c)] = said
    assert found.keys() <= every.keys()
    for name, one in found.items():
        assert one.seconds == pytest.approx(every[name].total_s, rel=0.02), name
        assert one.usd == pytest.approx(every[name].cost_usd, rel=0.02), name
    for name, said in every.items():
        alike = [one for other, one in found.items() if other[:-1] == name[:-1]]
        apart = [(one.seconds / said.total_s, one.usd / said.cost_usd) for one in alike]
        assert any(max(each) < 1.03 and min(each) > 0.97 for each in apart), name


@pytest.mark.parametrize("seed", [7])
def test_no_plan_that_is_left_out_is_better(seed: int) -> None:
    """As `dayfly bench plans --only hap` has it for many more."""
    made = hybrid.random_problem(Random(seed))
    missed, dominated, worst, count = compare(hybrid.chosen(made), hybrid.every_plan(made), 0.02)
    assert (missed, dominated) == (0, 0), worst
    assert count > 1


def test_which_aggregators_there_are() -> None:
    made = job()
    some = problem(made, aggregators=(2,))
    assert pairs(some) == {(2, 2), (3, 2), (4, 2)}
    assert pairs(replace(some, all_aggregate=False)) == {(1, 1), (3, 2), (4, 2)}
    assert pairs(replace(some, all_aggregate=True)) >= {(1, 1), (3, 2), (3, 3), (4, 4)}
    with pytest.raises(RequestError, match="9 aggregators and another are more than 4 functions"):
        near_hybrid(problem(made, aggregators=(9,)), 0.1, 10)


def test_numbers_of_samples_of_others_lie_within_one_per_cent() -> None:
    found = problem(job(), most=5000).others_samples().tolist()
    assert found[0] == 16
    assert found[: 200 - 16] == list(range(16, 200))
    assert all(after <= 1.01 * before for before, after in pairwise(found) if before > 100)
    assert 4950 < found[-1] <= 5000


def test_what_fits_nowhere_says_what_it_needs() -> None:
    with pytest.raises(
        RequestError, match=r"fits nowhere: with 16 samples a function needs \d+ MiB"
    ):
        near_hybrid(problem(job(megabytes=400.0)), 0.1, 10)
