"""K-REDUCE's plans are all that none dominates: the same as by trying every one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.parts.enumerated.k_reduce import every_plan
from hypothesis import HealthCheck, assume, event, given, settings

from dayfly.errors import RequestError
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.k_reduce import near_k_reduce, plan_k_reduce
from dayfly.planning.choose.k_reduce_bounds import Array, _bounds
from dayfly.planning.choose.k_reduce_problem import KReducePlan, KReduceProblem, Rounds, Tables
from dayfly.planning.profile import Affine
from tests.choose.k_reduce_by_hand import DEAR, problem, problems, size, way


def assert_is_the_front(found: Front[KReducePlan], p: KReduceProblem) -> None:
    """Each plan takes what the equations say, and nothing is better but for rounding."""
    plans = {plan: (seconds, usd) for seconds, usd, plan in every_plan(p)}
    for point in found.points:
        assert (point.seconds, point.usd) == pytest.approx(plans[point.plan], rel=1e-9)
    for seconds, usd in plans.values():
        assert any(
            one.seconds <= seconds * (1 + 1e-9) and one.usd <= usd * (1 + 1e-9)
            for one in found.points
        )


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
@pytest.mark.long
def test_equal_to_trying_every_plan(p: KReduceProblem) -> None:
    assume(any(min(p.aggregators_samples) <= one.most_samples for one in p.sizes))
    found = plan_k_reduce(p)
    assert_is_the_front(found, p)
    within = [point.plan for point in found.points if point.plan.others_samples]
    event(f"points {min(9, len(found.points))}, with others {bool(within)}")


def test_plans_near_the_front_are_all_that_its_equations_may_be_wrong_about() -> None:
    """Of those at the ends of B^n: here where both roles take as long, and all that may be."""
    p = problem(size(), workers=(2, 3, 4), most_global_samples=120)
    front, near = plan_k_reduce(p), near_k_reduce(p, 0.1, 10_000)
    assert {point.plan for point in front.points} < {point.plan for point in near}
    plans = {plan: (seconds, usd) for seconds, usd, plan in every_plan(p)}
    for point in near:
        assert (point.seconds, point.usd) == pytest.approx(plans[point.plan], rel=1e-9)
    assert len({point.plan for point in near}) == len(near)
    assert set(front.near(near, 0.1, 10_000)) == set(near)
    assert len(near_k_reduce(p, 0.1, 3)) == 3
    ends = {}
    for plan, (seconds, usd) in plans.items():
        alike = plan.workers, plan.aggregators, plan.aggregators_samples, plan.memory_mib
        ends.setdefault(alike, []).append((plan.others_samples, Point(seconds, usd, plan)))
    outer = [one for each in ends.values() for _, one in (min(each), max(each))]
    kept = {point.plan for point in near}
    assert {one.plan for one in front.near(outer, 0.1, 10_000)} <= kept


def test_a_plan_between_both_ends() -> None:
    """Slow data: the more samples others have, the longer they load, and the fewer the requests.

    Two functions, one aggregator with 10 samples; of 1000 bytes/s are 10^6 bytes of data loaded.
    Every B^n from 10 on is on the front, to the cap.
    """
    p = problem(
        size(train=Affine(0.0, 1e-4), usd_per_s=1e-9),
        data_bytes=1e6,
        workers=(2,),
        aggregators=(1,),
        aggregators_samples=(10,),
        most_global_samples=40,
    )
    found = plan_k_reduce(p)
    assert [point.plan.others_samples for point in found.points] == list(range(10, 31))
    assert_is_the_front(found, p)
    assert found.cheapest.limits == (
        "2 functions at once",
        "functions of 1024 MiB",
        "a global batch of 40",
    )


def test_by_hand() -> None:
    """Two functions, one aggregator: 1 s a model each way, steps of 10 samples in 0.2 s and more.

    An aggregator: trains, one part down, the sum up. The other: trains, a part up, a sum down. So
    both rounds have 2 s beside training, and the other sets the pace with its larger batch.
    """
    p = problem(workers=(2,), aggregators=(1,), aggregators_samples=(10,), most_global_samples=60)
    points = {point.plan.others_samples: point for point in plan_k_reduce(p).points}
    assert set(points) == {50}
    step_s = 0.1 + 0.5 + 2.0
    assert points[50].seconds == pytest.approx(1 + 1000 / 60 * step_s)
    dollars = 2 * points[50].seconds * 1e-5 + 1000 / 60 * (2 * 5e-6 + 2 * 4e-7)
    assert points[50].usd == pytest.approx(dollars)
    assert str(points[50].plan) == (
        "2 functions of 1024 MiB, 1 aggregator with 10 samples, 1 other with 50"
    )
    assert points[50].plan.global_samples == 60


def test_a_lone_function_sends_nothing() -> None:
    found = plan_k_reduce(problem(workers=(1,), aggregators_samples=(10,), most_global_samples=10))
    (point,) = found.points
    assert point.seconds == pytest.approx(1 + 100 * 0.2)
    assert point.usd == pytest.approx(point.seconds * 1e-5)
    assert str(point.plan) == "1 function of 1024 MiB, 10 samples"


def test_limits_are_kept_and_named() -> None:
    """Much memory, or many functions, or a large batch: what the fastest plan has most of."""
    wide = {"up": way(1e6), "down": way(1e6)}
    quick = size(2048, train=Affine(0.01, 0.001), most_samples=20, **wide)
    p = problem(size(), quick, most_global_samples=70)
    fastest = plan_k_reduce(p).fastest
    assert fastest.limits == (
        "4 functions at once",
        "functions of 2048 MiB",
        "a global batch of 70",
    )
    large = problem(quick, most_global_samples=10**6, aggregators_samples=(8, 16, 20))
    assert "20 samples in 2048 MiB" in plan_k_reduce(large).fastest.limits


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RequestError) as refusal:
        plan_k_reduce(problem(size(most_samples=5), size(2048, most_samples=7)))
    assert str(refusal.value) == (
        "the model fits nowhere with 8 samples a function: even functions of 2048 MiB hold 7 of "
        "it: allow smaller batches, or take larger functions"
    )
    with pytest.raises(RequestError, match="1024 MiB hold none of it: cut it into stages"):
        plan_k_reduce(problem(size(most_samples=0)))
    with pytest.raises(RequestError) as refusal:
        plan_k_reduce(problem(workers=(3, 4), most_global_samples=20))
    assert str(refusal.value) == (
        "a global batch of 20 is too small for 3 functions with 8 samples each: allow 24, or fewer "
        "functions or samples"
    )
    with pytest.raises(RequestError, match="5 aggregators are more than 4 functions"):
        plan_k_reduce(problem(aggregators=(5,)))
    with pytest.raises(RequestError, match="give one of each at least"):
        problem(workers=())
    with pytest.raises(RequestError, match="give more than 0 of each"):
        problem(samples=0)
    with pytest.raises(RequestError, match="must take longer the more samples"):
        size(train=Affine(1.0, 0.0))


def test_a_deadline_that_nothing_meets_names_what_limits() -> None:
    found = plan_k_reduce(problem(workers=(2,)))
    with pytest.raises(RequestError, match=r"or more than 2 functions at once and functions of"):
        found.cheapest_within(1.0)


def test_more_latency_is_never_better() -> None:
    """And a way of its own for each direction counts."""
    near = plan_k_reduce(problem(workers=(2, 3)))
    far = plan_k_reduce(problem(size(up=way(1000.0, 0.5)), workers=(2, 3)))
    assert far.fastest.seconds > near.fastest.seconds
    assert far.cheapest.usd >= near.cheapest.usd


def test_the_bound_of_dollars_has_each_workers_invocation() -> None:
    """Of boxes of one batch: as tight as for seconds, so that they are left out in time."""

    def least_usd(usd_per_invocation: float) -> Array:
        tables = Tables.of(problem(usd_per_invocation=usd_per_invocation, epochs=3.0))
        pairs = np.arange(len(tables.grid.workers))
        rounds = Rounds.of(tables, np.zeros_like(pairs), pairs)
        return _bounds(rounds, np.full_like(pairs, 8), np.full_like(pairs, 8))[1]

    workers = Tables.of(problem()).grid.workers
    assert max(workers) > 1
    assert least_usd(0.5) - least_usd(0.0) == pytest.approx(0.5 * 3.0 * workers, rel=1e-6)


def test_the_bytes_of_the_data_are_billed_each_epoch() -> None:
    """Equation 10: E 2 S_d, here at $30 and $10 a GB in and out; they do not change the step."""
    gb = 2.0**30
    p = problem(
        size(usd_per_s=0.0), workers=(2,), epochs=3.0, store=replace(DEAR, usd_per_gb_hour=0)
    )
    plans = [
        {one.plan: one for one in plan_k_reduce(q).points} for q in (p, replace(p, data_bytes=gb))
    ]
    both = set(plans[0]) & set(plans[1])
    assert both
    for plan in both:
        assert plans[1][plan].usd - plans[0][plan].usd == pytest.approx(3 * (30 + 10))


def test_functions_share_what_a_store_carries_for_all() -> None:
    """Four of 1000 bytes/s each over a store of 2000: as if each had 500."""
    half = size(up=way(500.0), down=way(500.0))
    (shared,) = plan_k_reduce(
        problem(workers=(4,), aggregators=(4,), store_bytes_per_s=2000.0)
    ).points[:1]
    (narrow,) = plan_k_reduce(problem(half, workers=(4,), aggregators=(4,))).points[:1]
    assert (shared.seconds, shared.plan) == (narrow.seconds, narrow.plan)
