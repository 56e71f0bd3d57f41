"""The papers' own ways to choose workers, memory and stores, beside the exact planners."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pytest
from benchmarks.parts.choosing import k_reduce_cases, k_reduce_fixed, store_cases, store_fixed
from benchmarks.parts.choosing.answer import (
    DONE,
    Answer,
    Goal,
    cheapest_within,
    exact,
    fastest_within,
)
from benchmarks.parts.choosing.k_reduce_costs import hybrid
from benchmarks.parts.choosing.store_greedy import DRAWN, greedy, sampled
from benchmarks.parts.choosing.store_problem import StorePlan, StoreProblem
from benchmarks.parts.choosing.stores import plan_stores
from benchmarks.parts.choosing.two_stage import two_stage
from benchmarks.parts.enumerated.k_reduce import every_plan
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rich.console import Console

from benchmarks import planning
from dayfly.planning.choose.front import Front, Point
from dayfly.planning.choose.k_reduce import plan_k_reduce
from dayfly.planning.choose.k_reduce_problem import KReducePlan, KReduceProblem
from tests.choose import k_reduce_by_hand, stores_by_hand
from tests.cli import command

pytestmark = pytest.mark.long

K_REDUCE = (two_stage, k_reduce_fixed.scatter_opt, k_reduce_fixed.all_opt, k_reduce_fixed.lambda_ml)
STORES = (greedy, sampled, store_fixed.s3_only, store_fixed.server_only)
FIXED = (store_fixed.lambda_ml, store_fixed.cirrus)
SLACK = st.sampled_from([1.0, 1.1, 1.5, 4.0])


def no_better(found: Answer[object], best: Answer[object], goal: Goal) -> bool:
    """An answer keeps the limits, and is not better than the best but for rounding."""
    assert best.point is not None
    return found.point is None or goal.of(best.point) <= goal.of(found.point) * (1 + 1e-9)


def test_a_goal_is_within_its_limits() -> None:
    points = [Point(1.0, 9.0, "fast"), Point(2.0, 4.0, "middle"), Point(5.0, 1.0, "cheap")]
    front = Front.of(points)
    for goal, plan in (
        (cheapest_within(2.0), "middle"),
        (fastest_within(3.0), "cheap"),
        (Goal(alpha1=1.0, alpha2=1.0), "middle"),
        (Goal(alpha1=0.0, alpha2=1.0), "fast"),
    ):
        found = exact(front, goal).point
        assert found is not None
        assert found.plan == plan
    assert exact(front, cheapest_within(0.5)) == Answer(None, DONE)


def test_two_stages_by_hand() -> None:
    """Two functions: ScatterReduce of 10 samples each, then one aggregator less.

    Equation 16: the other trains as long as the aggregator and what that sums up, 0.2 + 2 s, which
    is 210 samples; 60 of all leave it 50.
    """
    p = k_reduce_by_hand.problem(workers=(2,), aggregators_samples=(10,), most_global_samples=60)
    found = two_stage(p, cheapest_within(1000.0)).point
    assert found is not None
    assert found.plan == KReducePlan(
        workers=2, memory_mib=1024, aggregators=1, aggregators_samples=10, others_samples=50
    )
    assert found.seconds == pytest.approx(1 + 1000 / 60 * 2.6)


def test_the_first_stage_fixes_what_the_second_cannot_mend() -> None:
    """Some random workloads have a better plan than with the W, M and B^a of ScatterReduce."""
    ratios = []
    for case in k_reduce_cases.random_cases(5, 1):
        (goal,) = case.goals
        best, found = exact(plan_k_reduce(case.problem), goal).point, two_stage(case.problem, goal)
        assert best is not None
        if found.point is not None:
            ratios.append(found.point.usd / best.usd)
    assert min(ratios) >= 1 - 1e-9
    assert max(ratios) > 1.05


def test_larger_functions_late_end_the_search_of_smaller() -> None:
    """The early stop: functions of 2048 MiB, here the slower ones, keep no deadline, so those of
    1024 MiB are not looked at. FasDL's functions are never slower for more memory."""
    quick = k_reduce_by_hand.size(1024)
    slow = k_reduce_by_hand.size(2048, train=k_reduce_by_hand.Affine(5.0, 1.0))
    p = k_reduce_by_hand.problem(quick, slow, workers=(2,))
    goal = cheapest_within(2 * plan_k_reduce(p).fastest.seconds)
    assert two_stage(p, goal).point is None
    only = k_reduce_by_hand.problem(quick, workers=(2,))
    assert two_stage(only, goal).point is not None


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(k_reduce_by_hand.problems(), SLACK)
def test_no_way_to_reduce_is_better_than_the_best(p: KReduceProblem, slack: float) -> None:
    assume(any(min(p.aggregators_samples) <= one.most_samples for one in p.sizes))
    front = plan_k_reduce(p)
    goal = cheapest_within(slack * front.fastest.seconds)
    best = exact(front, goal)
    # A lone function of LambdaML may have more samples than the batches to choose from.
    for method in K_REDUCE[:3]:
        assert no_better(method(p, goal), best, goal)
    found = two_stage(p, goal).point
    if found is not None:
        plans = {plan: taken for *taken, plan in every_plan(p)}
        assert (found.seconds, found.usd) == pytest.approx(plans[found.plan], rel=1e-9)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(k_reduce_by_hand.problems())
def test_a_plan_costs_what_the_exact_planner_says(p: KReduceProblem) -> None:
    assume(any(min(p.aggregators_samples) <= one.most_samples for one in p.sizes))
    for point in plan_k_reduce(p).points:
        size = next(one for one in p.sizes if one.memory_mib == point.plan.memory_mib)
        again = hybrid(p, size, point.plan)
        assert (again.seconds, again.usd) == pytest.approx((point.seconds, point.usd), rel=1e-9)


def test_lambda_ml_takes_the_largest_and_fewest() -> None:
    """100 samples on functions of 64 and of 40: two of 50."""
    sizes = k_reduce_by_hand.size(1024, most_samples=40), k_reduce_by_hand.size(2048)
    found = k_reduce_fixed.lambda_ml(
        k_reduce_by_hand.problem(*sizes), Goal(alpha1=1.0, alpha2=0.0)
    ).point
    assert found is not None
    plan = found.plan
    assert (plan.workers, plan.memory_mib, plan.aggregators_samples) == (2, 2048, 50)
    late = k_reduce_fixed.lambda_ml(k_reduce_by_hand.problem(*sizes), cheapest_within(0.1))
    assert late.point is None


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(stores_by_hand.problems(), SLACK, st.booleans())
@pytest.mark.slow
def test_no_store_is_better_than_the_best(p: StoreProblem, slack: float, in_time: bool) -> None:
    plans = {plan: taken for *taken, plan in stores_by_hand.every_plan(p)}
    assume(plans)
    front = plan_stores(p)
    if in_time:
        goal = cheapest_within(slack * front.fastest.seconds)
    else:
        goal = fastest_within(slack * front.cheapest.usd)
    best = exact(front, goal)
    for method in (*STORES, *FIXED):
        found = method(p, goal)
        assert no_better(found, best, goal)
        if found.point is not None:
            taken = found.point.seconds, found.point.usd
            assert taken == pytest.approx(plans[found.point.plan], rel=1e-9)


def test_greedy_steps_by_hand() -> None:
    """Over one store with functions of one size it walks along n, from 10 on."""
    p = stores_by_hand.problem(stores=(stores_by_hand.server(),), workers=tuple(range(1, 21)))
    costs = {plan.workers: (s, usd) for s, usd, plan in stores_by_hand.every_plan(p)}
    budget_usd = costs[13][1] * 1.0001
    found = greedy(p, fastest_within(budget_usd))
    assert found.point is not None
    assert found.stopped == "no better candidate"
    rising = [n for n in range(10, 21) if costs[n][1] <= budget_usd]
    assert found.point.plan.workers == min(rising, key=lambda n: costs[n][0])


def test_greedy_goes_back_within_a_limit_first() -> None:
    """Ten functions are too dear for what one costs: it gives up functions, then improves."""
    p = stores_by_hand.problem(stores=(stores_by_hand.option(),))
    front = plan_stores(p)
    found = greedy(p, fastest_within(front.cheapest.usd))
    assert found.point is not None
    assert found.point.plan == front.cheapest.plan


def test_drawn_allocations_are_the_seeds() -> None:
    p = store_cases.random_cases(1, 3)[0].problem
    goal = Goal(alpha1=1.0, alpha2=0.0)
    first, again, other = (sampled(p, goal, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.stopped == f"{DRAWN} allocations"
    assert other.point != first.point


def test_fixed_choices_of_stores() -> None:
    """Ten functions of 1769 MiB or what is nearest; the largest and fewest of a shared batch."""
    sizes = tuple(stores_by_hand.size(memory) for memory in (512, 1792, 4096))
    p = stores_by_hand.problem(sizes=sizes, workers=tuple(range(1, 31)))
    goal = Goal(alpha1=1.0, alpha2=0.0)

    def plan_of(found: Answer[StorePlan]) -> StorePlan:
        assert found.point is not None
        return found.point.plan

    assert plan_of(store_fixed.lambda_ml(p, goal)) == StorePlan(
        workers=10, memory_mib=1792, store="requests"
    )
    assert plan_of(store_fixed.cirrus(p, goal)) == StorePlan(
        workers=10, memory_mib=1792, store="server"
    )
    sizes = tuple(stores_by_hand.size(memory, most_batch_bytes=30.0) for memory in (512, 4096))
    shared = stores_by_hand.problem(sizes=sizes, shared_batch=True)
    assert plan_of(store_fixed.lambda_ml(shared, goal)) == StorePlan(
        workers=4, memory_mib=4096, store="requests"
    )
    alone = stores_by_hand.problem(stores=(stores_by_hand.option(),))
    assert store_fixed.cirrus(alone, goal).point is None
    assert plan_of(store_fixed.s3_only(alone, goal)) == plan_stores(alone).cheapest.plan


def test_random_problems_are_the_seeds() -> None:
    for cases in (k_reduce_cases, store_cases):
        one, again, other = (cases.random_cases(3, seed) for seed in (1, 1, 2))
        assert one == again
        assert one != other


def test_the_paper_s_workloads_have_plans_in_time() -> None:
    for case in k_reduce_cases.paper_cases():
        dice = random.Random(0)
        (goal,) = case.goals
        memory = dice.choice(case.problem.sizes).memory_mib
        assert memory % 128 == 0
        assert exact(plan_k_reduce(case.problem), goal).point is not None


@pytest.mark.parametrize("problem", ["k-reduce", pytest.param("stores", marks=pytest.mark.slow)])
def test_a_whole_small_bench(problem: str) -> None:
    result = planning.run(["--choose", "--quick", "--only", problem])
    assert {row["problem"] for row in result["rows"]} == {problem}
    for row in result["rows"]:
        assert row["none"] == row["answers"] or row["ratio"] >= 1 - 1e-6
        if row["method"] == "dayfly":
            assert (row["none"], row["ratio_worst"]) == (0, 1.0)
            assert row["optimal"] == row["answers"]
    out = io.StringIO()
    Console(file=out, width=200).print(planning.table(result))
    assert all(row["method"] in out.getvalue() for row in result["rows"])
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--choose", "--only", "stars"], "'stars' is none of k-reduce, stores, stages, shards"),
        (["--run"], "argument --run: add --choose"),
        (["--choose", "--run", "--only", "stages"], "'stages' is none of cnn, gpt"),
        (["--profiles", "file"], "--profiles: file is no directory: File exists"),
    ],
)
def test_the_command_says_what_is_wrong(flags: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command.run("bench", "planning", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
