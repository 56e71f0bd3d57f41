"""The papers' own ways to cut a model into stages, beside the exact planner."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pytest
from benchmarks.parts.choosing import pipeline_cases
from benchmarks.parts.choosing.answer import Answer, Goal, exact
from benchmarks.parts.choosing.bayes import bayes
from benchmarks.parts.choosing.merging import merged
from benchmarks.parts.choosing.miqp import miqp
from benchmarks.parts.choosing.pipeline_fixed import lambda_ml
from benchmarks.parts.choosing.pipeline_points import plan_over_store, point
from benchmarks.parts.choosing.tpdmp import grid, tpdmp
from benchmarks.parts.choosing.v_bounds import v_bounds
from benchmarks.parts.enumerated.stages import every_point, over_links
from benchmarks.parts.papers.funcpipe.setting import at_lambda
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks import planning
from dayfly.planning.choose.front import Front
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    MicroBatches,
    StagesOverLinks,
    StagesOverStore,
    step_s,
)
from dayfly.wire.pipelines.orders import FILL_DRAIN
from tests.choose.pipelines_by_hand import link_problems, store_problems

pytestmark = pytest.mark.long

SLOW = settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
FASTEST, CHEAPEST = Goal(alpha1=0.0, alpha2=1.0), Goal(alpha1=1.0, alpha2=0.0)
MIB = 2.0**20


def option(seconds: Sequence[float], memory_mib: int = 100) -> MemoryOption:
    """Functions that go back as fast as forward, over a way of 1 MiB/s."""
    return MemoryOption(
        memory_mib=memory_mib,
        forward_s=tuple(seconds),
        backward_s=tuple(seconds),
        bytes_per_s=MIB,
        base_bytes=0.0,
        usd_per_s=memory_mib / 100,
    )


def over_store(seconds: Sequence[float], sent_mib: float = 0.0, **more: object) -> StagesOverStore:
    """Layers of 10 MiB, of which functions of 100 MiB hold five; eight micro-batches."""
    layer = LayerBytes(
        parameter_bytes=10 * MIB,
        activation_bytes=0.0,
        output_bytes=sent_mib * MIB,
        gradient_bytes=sent_mib * MIB,
    )
    values = {
        "layers": (layer,) * len(seconds),
        "options": (option(seconds),),
        "degrees": (1, 2),
        "micro_batches": 8,
        **more,
    }
    return StagesOverStore(**values)  # type: ignore[arg-type]


def no_better(found: Answer[PipelinePlan], front: Front[PipelinePlan], goal: Goal) -> bool:
    """But for rounding; and it takes what it says."""
    best = exact(front, goal).point
    assert best is not None
    return found.point is None or goal.of(best) <= goal.of(found.point) * (1 + 1e-9)


def program(
    problem: StagesOverStore, goal: Goal, groups: int | None = None
) -> Answer[PipelinePlan]:
    return miqp(problem, goal, groups=groups, time_limit_s=60.0)


def test_layers_merge_by_time() -> None:
    """Of 8 s in two groups: the first is 3 s and the layer whose middle is before 4 s."""
    p = over_store((3, 1, 1, 1, 2), sent_mib=1.0)
    small = merged(p, 2)
    assert small.firsts == (0, 2)
    merged_p = small.merge(p)
    assert merged_p.options[0].forward_s == (4, 4)
    assert [layer.parameter_bytes for layer in merged_p.layers] == [20 * MIB, 30 * MIB]
    plan = plan_over_store(merged_p, (1,), (0, 0), 2)
    assert small.unmerged(plan).starts == (2,)
    for groups in (None, 5, 9):
        assert merged(p, groups).merge(p) is p


@SLOW
@given(store_problems(mixed=False, schedule=FILL_DRAIN), st.integers(2, 4))
def test_merged_layers_take_as_long(p: StagesOverStore, groups: int) -> None:
    small = merged(p, groups)
    fewer = small.merge(p)
    assert len(fewer.layers) <= groups
    for one in every_point(fewer)[:50]:
        plan = small.unmerged(one.plan)
        again = point(p, plan)
        assert (again.seconds, again.usd) == pytest.approx((one.seconds, one.usd), rel=1e-9)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_the_program_finds_the_optimum(seed: int) -> None:
    """Its own optimum, by its own constraints, is the exact planner's: of 4 layers with 2 sizes."""
    at, dice = at_lambda(), random.Random(seed)
    p = pipeline_cases.random_problem(dice, 4, at, options=(3, 7))
    front, goal = choose(p).front, pipeline_cases.goals(at)[seed]
    found, best = miqp(p, goal, groups=None, time_limit_s=60.0), exact(front, goal).point
    assert found.stopped == "optimal"
    assert found.point is not None
    assert best is not None
    assert goal.of(found.point) == pytest.approx(goal.of(best), rel=1e-5)


@pytest.mark.parametrize("limits", [{"functions_at_once": 8}, {"vcpus_at_once": 12.0}])
def test_the_program_keeps_limits(limits: dict[str, Any]) -> None:
    p = pipeline_cases.random_problem(random.Random(1), 4, at_lambda(), options=(3, 7))
    options = tuple(replace(one, vcpus=v) for one, v in zip(p.options, (0.5, 1.25), strict=True))
    p = replace(p, options=options)
    limited = replace(p, **limits)
    goal = pipeline_cases.goals(at_lambda())[3]
    found = miqp(limited, goal, groups=None, time_limit_s=60.0)
    best, free = (exact(choose(one).front, goal).point for one in (limited, p))
    assert found.point is not None
    assert best is not None
    assert free is not None
    assert goal.of(found.point) == pytest.approx(goal.of(best), rel=1e-5)
    assert goal.of(free) < goal.of(best)  # the limit matters


def test_the_program_says_when_it_was_stopped_and_what_it_does_not_have() -> None:
    p = pipeline_cases.random_problem(random.Random(1), 6, at_lambda())
    found = miqp(p, CHEAPEST, groups=None, time_limit_s=0.05)
    assert found.stopped.startswith("0.05 s, ")
    with pytest.raises(ValueError, match="one degree, and the pipelined scatter-reduce"):
        miqp(replace(p, mixed=True), CHEAPEST, groups=None, time_limit_s=1.0)


def test_nothing_fits_a_program() -> None:
    p = over_store((1, 1), options=(option((1, 1), memory_mib=10),))
    assert miqp(p, CHEAPEST, groups=None, time_limit_s=60.0) == Answer(None, "infeasible")


def test_throughput_by_hand() -> None:
    """Layers of 3, 1, 1, 1, 1, 3 s each way, in two stages: 10 s each, cut in the middle."""
    p = over_store((3, 1, 1, 1, 1, 3), degrees=(1,))
    cuts = {len(one.plan.options): one.plan.starts for one in grid(p)}
    assert sorted(cuts) == [2, 3, 4, 5, 6]  # one stage holds five layers at most
    assert cuts[2] == (3,)
    # What is sent counts too: 13 MiB at 1 MiB/s take longer than 10 or 12 s.
    sizes_mib = [0.0, 13.0, 13.0, 0.0, 13.0, 13.0]
    layers = tuple(
        replace(layer, output_bytes=sent * MIB)
        for layer, sent in zip(over_store((0,) * 6).layers, sizes_mib, strict=True)
    )
    sent = over_store((3, 1, 1, 1, 1, 3), layers=layers, degrees=(1,))
    assert next(one.plan.starts for one in grid(sent) if len(one.plan.options) == 2) == (4,)


@SLOW
@given(
    store_problems(
        mixed=False,
        pipelined=(True,),
        functions_at_once=None,
        vcpus_at_once=None,
        schedule=FILL_DRAIN,
    )
)
def test_the_slowest_stage_is_as_fast_as_can_be(p: StagesOverStore) -> None:
    every = every_point(p)
    for one in grid(p):
        here = _slowest_s(p, one.plan)
        alike = [
            other.plan
            for other in every
            if len(other.plan.options) == len(one.plan.options)
            and set(other.plan.options) == set(one.plan.options)
            and other.plan.replicas == one.plan.replicas
        ]
        assert here <= min(_slowest_s(p, plan) for plan in alike) * (1 + 1e-9)


def _slowest_s(p: StagesOverStore, plan: PipelinePlan) -> float:
    """Of a micro-batch."""
    on = p.options[plan.options[0]]
    computed = [
        p.beta * sum(on.forward_s[i] + on.backward_s[i] for i in stage) for stage in plan.stages
    ]
    sent = [
        max(p.layers[i - 1].output_bytes, p.layers[i].gradient_bytes) / on.bytes_per_s + p.latency_s
        for i in plan.starts
    ]
    return max([*computed, *sent])


@SLOW
@given(
    store_problems(mixed=False, schedule=FILL_DRAIN),
    st.sampled_from([CHEAPEST, FASTEST, Goal(alpha1=1.0, alpha2=1e-5)]),
)
def test_no_cut_is_better_than_the_best(p: StagesOverStore, goal: Goal) -> None:
    points = every_point(p)
    assume(points)
    front, known = Front.of(points), {one.plan: one for one in points}
    for found in (
        tpdmp(p, goal),
        lambda_ml(p, goal),
        bayes(p, goal, groups=3, rounds=5),
    ):
        assert no_better(found, front, goal)
        if found.point is not None and found.point.plan.pipelined in p.pipelined:
            assert found.point == known[found.point.plan]


def test_rounds_of_bayesian_optimisation_are_the_seeds() -> None:
    p = pipeline_cases.random_problem(random.Random(2), 8, at_lambda())
    goal = pipeline_cases.goals(at_lambda())[1]
    first, again, other = (bayes(p, goal, groups=4, rounds=20, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.stopped == "20 rounds"
    assert other != first
    assert not set(first.point.plan.starts if first.point else ()) - set(merged(p, 4).firsts)


def test_lambda_ml_takes_the_largest_and_fewest() -> None:
    """Micro-batches of 20 MiB: eight are too many for 100 MiB with 2 x 10 MiB of parameters, and
    four with 4 x 10 MiB; two and 40 MiB are 80 MiB."""
    layer = replace(over_store((1.0,)).layers[0], activation_bytes=20 * MIB)
    small = option((1.0,), memory_mib=90)
    p = over_store((1.0,), layers=(layer,), options=(small, option((1.0,))), degrees=(1, 2, 4, 8))
    found = lambda_ml(p, CHEAPEST).point
    assert found is not None
    assert (found.plan.memory_mib, found.plan.replicas) == ((100,), (4,))
    assert lambda_ml(replace(p, degrees=(1, 2)), CHEAPEST).point is None


@SLOW
@given(link_problems().map(lambda p: replace(p, schedule=FILL_DRAIN)), st.sampled_from([2, 5, 20]))
def test_bounds_are_no_better_than_the_best(p: StagesOverLinks, v: int) -> None:
    points = every_point(p)
    assume(points)
    found = v_bounds(p, FASTEST, v=v)
    assert no_better(found, Front.of(points), FASTEST)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_are_as_near_as_theorem_1_says(seed: int) -> None:
    """R - R' <= 2 (M - 1) Delta / (V - 1): of V bounds V - 1 steps are apart.

    No data parallelism, so that a step takes as long as a partition.
    """
    dice, count, v = random.Random(seed), 8, 10
    p = _links([dice.uniform(0.1, 1.0) for _ in range(count)], dice)
    best = min(one.seconds for one in every_point(p))
    way = p.micro_batches[0]
    found = v_bounds(p, FASTEST, v=v).point
    assert found is not None
    sent = max(layer.output_bytes for layer in way.layers) / MIB
    delta = max(sum(way.container.forward_s), sum(way.container.backward_s), sent)
    assert found.seconds - best <= 2 * (way.micro_batches - 1) * delta / (v - 1)


def test_bounds_by_hand() -> None:
    """Layers of 1, 1, 2 s each way in two shards, 4 micro-batches: 1 1 | 2, whatever is sent."""
    p = _links([1.0, 1.0, 2.0], random.Random(0), containers=(2,))
    found = v_bounds(p, FASTEST, v=5)
    assert found.stopped == "5 x 5 bounds"
    assert found.point is not None
    assert found.point.plan.starts == (2,)
    every = [plan for plan in over_links(p) if plan.replicas[0] == 1]
    assert found.point.seconds == min(step_s(p, plan) for plan in every)


def _links(
    seconds: list[float], dice: random.Random, containers: tuple[int, ...] = (1, 2, 3, 4)
) -> StagesOverLinks:
    """Parameters so large that no ring is worth it."""
    layers = tuple(
        LayerBytes(
            parameter_bytes=1000 * MIB,
            activation_bytes=0.0,
            output_bytes=dice.uniform(0.0, 0.5) * MIB,
            gradient_bytes=0.0,
        )
        for _ in seconds
    )
    way = MicroBatches(micro_batches=5, layers=layers, container=option(seconds, memory_mib=10**6))
    return StagesOverLinks(micro_batches=(way,), containers=containers)


def test_random_problems_have_plans() -> None:
    for case in pipeline_cases.random_cases(5, 3):
        largest = case.problem.options[-1]
        assert largest.memory_mib == 10240
        assert any(one.plan for one in grid(case.problem)) or choose(case.problem).front.points
    assert pipeline_cases.random_shard_cases(2, 3) == pipeline_cases.random_shard_cases(2, 3)


@pytest.mark.slow
def test_funcpipe_s_models_are_not_merged() -> None:
    (case,) = pipeline_cases.paper_cases(names=["amoebanet_d18"])
    assert len(case.problem.layers) > 20
    assert case.problem.micro_batches == 16
    sizes = [option.memory_mib for option in case.problem.options]
    assert sizes == [512, 1024, 2048, 3072, 4096, 6144, 8192, 10240]
    for a, b in pairwise(case.problem.options):
        assert a.forward_s[0] > b.forward_s[0]
    assert len(list(combinations(case.goals, 2))) == 6


def test_a_whole_small_bench() -> None:
    """Of Hydrozoa's problem, whose figures are checked with the others' in `test_choosing`."""
    result = planning.run(["--choose", "--quick", "--only", "shards"])
    assert {row["method"] for row in result["rows"]} == {"dayfly", "V = 10 bounds (Hydrozoa)"}
    assert all(row["ratio"] >= 1 - 1e-6 for row in result["rows"])
