"""Allocations of functions, memory and store are all that none dominates; and why this store."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.parts.choosing.store_problem import StoreOption, StorePlan, StoreProblem
from benchmarks.parts.choosing.stores import plan_stores
from benchmarks.parts.choosing.stores_beside import beside, words
from hypothesis import HealthCheck, given, settings

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.choose.front import decides
from tests.choose.stores_by_hand import (
    DEAR,
    REQUESTS,
    every_plan,
    option,
    problem,
    problems,
    server,
    size,
)

CATALOGUE = Catalogue()


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
@pytest.mark.long
def test_equal_to_trying_every_allocation(p: StoreProblem) -> None:
    plans = {plan: (seconds, usd) for seconds, usd, plan in every_plan(p)}
    if not plans:
        with pytest.raises(RequestError, match=r"fits nowhere|are more than a"):
            plan_stores(p)
        return
    found = plan_stores(p)
    for point in found.points:
        assert (point.seconds, point.usd) == pytest.approx(plans[point.plan], rel=1e-9)
    for seconds, usd in plans.values():
        assert any(
            one.seconds <= seconds * (1 + 1e-9) and one.usd <= usd * (1 + 1e-9)
            for one in found.points
        )


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
def test_terms_add_up_and_no_store_beside_is_better(p: StoreProblem) -> None:
    plans = {plan: (seconds, usd) for seconds, usd, plan in every_plan(p)}
    for point in plan_stores(p).points if plans else ():
        n, memory_mib = point.plan.workers, point.plan.memory_mib
        for one in beside(p, point.plan):
            over = StorePlan(workers=n, memory_mib=memory_mib, store=one.store)
            assert (one.run_s, one.run_usd) == pytest.approx(plans[over], rel=1e-9)
            assert one.run_s > point.seconds * (1 - 1e-9) or one.run_usd > point.usd * (1 - 1e-9)


def test_by_hand() -> None:
    """Two functions, 50 steps: equation 3 is 4 (0.1 + 0.05) s, and 2 (0.025 + 0.001) s."""
    p = problem(workers=(2,))
    points = {one.plan.store: one for one in plan_stores(p).points}
    s, usd, _ = next(one for one in every_plan(p) if one[2].store == "requests")
    assert s == pytest.approx(5 + 5 + 50 * 0.6)
    # 22 requests a step: two puts, two gets, and 18 in vain.
    assert usd == pytest.approx(2 * 40 * 1e-5 + 50 * (2 * 5e-6 + 20 * 4e-7))
    assert points["server"].seconds == pytest.approx(5 + 5 + 50 * 0.052)
    by_minute = (12.6 / 60 + 1) * 0.001
    assert points["server"].usd == pytest.approx(2 * 12.6e-5 + by_minute)
    assert str(points["server"]) == ("2 functions of 1024 MiB over server: 12.6 s and $0.001462")


def test_a_lone_function_needs_no_store() -> None:
    """It is as quick over each, and the first one's."""
    (point,) = plan_stores(problem(workers=(1,))).points
    assert (point.seconds, point.usd) == pytest.approx((20, 2e-4))
    assert point.plan.store == "requests"
    assert words(problem(), point.plan) == "A lone function needs no store."


def test_the_limit_of_functions_at_once() -> None:
    """Constraint 8 leaves it out: here ten functions are the fastest, and six may run."""
    p = problem(stores=(server(),))
    assert plan_stores(p).fastest.plan.workers == 10
    limited = plan_stores(problem(stores=(server(),), at_once=6)).fastest
    assert limited.plan.workers == 6
    assert limited.limits == ("6 functions at once", "functions of 1024 MiB")
    with pytest.raises(RequestError) as refusal:
        problem(workers=(8, 9), at_once=6)
    assert str(refusal.value) == (
        "8 functions are more than the 6 at once that the platform allows: take 6"
    )
    with pytest.raises(RequestError, match="or more than 6 functions at once and functions of"):
        plan_stores(problem(stores=(server(),), at_once=6)).cheapest_within(1.0)


def test_a_batch_of_31_samples_is_for_31_functions() -> None:
    """Though as floats (31 s)/s is less."""
    s = 2.6251833548202748
    assert (31 * s) / s < 31
    p = problem(
        workers=(31,), sample_bytes=s, batch_bytes=31 * s, data_bytes=3100 * s, shared_batch=True
    )
    assert plan_stores(p).fastest.plan.workers == 31
    with pytest.raises(RequestError, match="32 functions are more than a batch has samples, 31"):
        plan_stores(replace(p, workers=(32,)))


def test_sizes_of_which_few_may_be_there_at_once() -> None:
    """The larger ones are faster, but three are all that there may be."""
    large = size(2048, compute_s_per_byte=5e-4, usd_per_s=2e-5)
    for most, memory_mib in ((3.0, 1024), (10.0, 2048)):
        sizes = (size(), replace(large, most_workers=most))
        front = plan_stores(problem(sizes=sizes, stores=(server(),)))
        assert all(p.plan.workers <= most for p in front.points if p.plan.memory_mib == 2048)
        assert (front.fastest.plan.workers, front.fastest.plan.memory_mib) == (10, memory_mib)


def test_what_cannot_be_is_refused() -> None:
    small = (size(most_batch_bytes=50.0), size(2048, most_batch_bytes=80.0))
    with pytest.raises(RequestError) as refusal:
        plan_stores(problem(sizes=small))
    assert str(refusal.value) == (
        "the model fits nowhere with a batch of 100 bytes a function: even functions of 2048 MiB "
        "hold 80 bytes: allow such batches, or take larger functions"
    )
    shared = problem(sizes=small, batch_bytes=1e3, shared_batch=True)
    with pytest.raises(RequestError, match="80 bytes: take 13 functions, or take larger"):
        plan_stores(shared)
    with pytest.raises(RequestError, match="hold none of it: cut it into stages"):
        plan_stores(problem(sizes=(size(most_batch_bytes=0.0),)))
    with pytest.raises(RequestError) as refusal:
        plan_stores(problem(workers=(200, 300)))
    assert str(refusal.value) == (
        "200 functions are more than an epoch has batches, 100: take 100 functions at most"
    )
    few = problem(workers=(7, 8), shared_batch=True, sample_bytes=20.0)
    with pytest.raises(RequestError, match="7 functions are more than a batch has samples, 5"):
        plan_stores(few)
    with pytest.raises(RequestError, match="give one of each at least"):
        problem(stores=())
    with pytest.raises(RequestError, match="two stores have one name"):
        problem(stores=(option(), option()))
    with pytest.raises(RequestError, match="give more than 0 of each"):
        problem(size_bytes=0.0)
    with pytest.raises(RequestError, match="a batch of 20000 bytes is more than"):
        problem(batch_bytes=2e4)


def test_stores_and_machines_of_the_catalogue() -> None:
    s3 = StoreOption.of_store(CATALOGUE.store("s3"), bytes_per_s=70e6)
    assert (s3.bytes_per_s, s3.latency_s, s3.sums) == (70e6, 0.04, False)
    with pytest.raises(RequestError, match="the catalogue has no latency_s of dynamodb: give one"):
        StoreOption.of_store(CATALOGUE.store("dynamodb"), bytes_per_s=70e6)
    with pytest.raises(RequestError, match="no prices of store alibaba-oss"):
        StoreOption.of_store(CATALOGUE.store("alibaba-oss"), bytes_per_s=70e6, latency_s=0.1)
    own = StoreFacts(name="own", bytes_per_s=1e6, usd_per_put=0.0, usd_per_get=0.0)
    assert StoreOption.of_store(own, bytes_per_s=70e6, latency_s=0.0).bytes_per_s == 1e6
    machine = StoreOption.of_machine(
        CATALOGUE.platform("vm-c5-9xlarge"), bytes_per_s=2e9, latency_s=0.001
    )
    assert machine.usd_per_minute == pytest.approx(1.53 / 60)
    assert (machine.bytes_per_s, machine.sums) == (1.25e9, True)
    with pytest.raises(RequestError, match="aws-lambda is no machine"):
        StoreOption.of_machine(CATALOGUE.platform("aws-lambda"), bytes_per_s=7e7, latency_s=0.1)


def test_the_term_that_decides() -> None:
    """The one that makes most of the difference, whichever way that is."""
    chosen = {"bandwidth": 5.0, "latency": 1.0}
    assert decides(chosen, {"bandwidth": 4.0, "latency": 9.0}) == "latency"
    assert decides(chosen, {"bandwidth": 1.0, "latency": 3.0}) == "bandwidth"
    assert decides(chosen, {"bandwidth": 1.0, "latency": 5.0}) is None


def test_the_choice_in_words() -> None:
    """By hand: as in `test_by_hand`, with a third store that bills bytes and what it keeps."""
    dear = option("dear", facts=DEAR, bytes_per_s=4000.0, latency_s=0.0)
    p = problem(workers=(2,), stores=(option(), server(), dear))
    plan = plan_stores(p).fastest.plan
    assert plan.store == "server"
    assert words(p, plan) == (
        "2 functions of 1024 MiB over server take 12.6 s and $0.001462; requests would take 40 s "
        "(217% more: bandwidth) and $0.0017 (16% more: requests); dear would take 15 s (19% more: "
        "bandwidth) and $0.0009727 (33% less: minutes)."
    )


def test_each_term_can_decide() -> None:
    """Two stores that differ in one thing."""
    base = option("base")
    others = {
        "bandwidth": option("other", bytes_per_s=900.0),
        "latency": option("other", latency_s=0.1),
    }
    for term, other in others.items():
        p = problem(workers=(4,), stores=(base, other))
        said = words(p, StorePlan(workers=4, memory_mib=1024, store="base"))
        assert said.count(f"more: {term})") == 2
    dollars = {
        "requests": option("other", facts=StoreFacts(name="x", usd_per_put=6e-6, usd_per_get=4e-7)),
        "bytes": option(
            "other",
            facts=StoreFacts(name="x", usd_per_put=5e-6, usd_per_get=4e-7, usd_per_gb_up=1.0),
        ),
        "minutes": option(
            "other",
            facts=StoreFacts(name="x", usd_per_put=5e-6, usd_per_get=4e-7, usd_per_gb_hour=1.0),
        ),
    }
    for term, other in dollars.items():
        p = problem(workers=(4,), stores=(base, other))
        said = words(p, StorePlan(workers=4, memory_mib=1024, store="base"))
        assert "(as much)" in said
        assert f"more: {term})" in said
    assert REQUESTS.usd_per_put == 5e-6
