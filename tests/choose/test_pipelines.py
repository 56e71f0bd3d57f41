"""The front of cut models over a store is the same as by trying every plan."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from unittest.mock import patch

import pytest
from benchmarks.parts.enumerated.stages import every_point
from hypothesis import HealthCheck, event, given, settings
from hypothesis.strategies import floats, integers, lists, one_of, tuples

from dayfly.errors import RequestError
from dayfly.planning.choose.front import Front
from dayfly.planning.choose.pipelines.bounds import Case
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.plan import PipelinePlan
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    Problem,
    StagesOverStore,
    memory_bytes,
)
from dayfly.wire.pipelines.flow import Flow
from dayfly.wire.pipelines.orders import FILL_DRAIN, ONE_F_ONE_B, ORDERS
from dayfly.wire.pipelines.step import Layout
from tests.choose.engines import EVERY_ENGINE, searching
from tests.choose.pipelines_by_hand import (
    assert_is_the_front,
    link_problems,
    random_problem,
    store_problems,
)

SLOW = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
FEWER = settings(SLOW, max_examples=30)


def compare(problem: StagesOverStore, engine: str) -> None:
    points = every_point(problem)
    with searching(engine) as compiled:
        if not points:
            with pytest.raises(RequestError):
                choose(problem, compiled=compiled)
            event("no plan")
            return
        found = choose(problem, compiled=compiled)
    assert found.gap == 0.0
    assert_is_the_front(found.front, points)
    stages = max(len(point.plan.options) for point in found.front.points)
    event(f"points {min(len(found.front.points), 6)}, stages {stages}")


@EVERY_ENGINE
@SLOW
@given(problem=store_problems())
@pytest.mark.long
def test_equal_to_trying_every_plan(problem: StagesOverStore, engine: str) -> None:
    compare(problem, engine)


@EVERY_ENGINE
@FEWER
@given(problem=store_problems(mixed=True))
def test_each_stage_with_replicas_of_its_own(problem: StagesOverStore, engine: str) -> None:
    compare(problem, engine)


@FEWER
@given(problem=store_problems(mixed=True), part=floats(0.0, 0.6))
def test_plans_of_more_memory_spare_work_and_change_nothing(
    problem: StagesOverStore, part: float
) -> None:
    """Some of them fit into less memory, and some do not."""
    try:
        good = [point.plan for point in choose(problem, compiled=False).points]
    except RequestError:
        return
    less = tuple(
        replace(one, base_bytes=one.base_bytes + part * (one.memory_bytes - one.base_bytes))
        for one in problem.options
    )
    problem = replace(problem, options=less)
    points = every_point(problem)
    if not points:
        with pytest.raises(RequestError):
            choose(problem, compiled=False, good=good)
        return
    assert_is_the_front(choose(problem, compiled=False, good=good).front, points)


@EVERY_ENGINE
@FEWER
@given(
    problem=one_of(store_problems(mixed=True), link_problems()),
    drawn=lists(tuples(integers(0), floats(0.5, 1.2), floats(0.5, 1.2)), min_size=1, max_size=3),
)
def test_what_rivals_beat_is_not_sought_and_nothing_else_is_missed(
    problem: Problem, drawn: list[tuple[int, float, float]], engine: str
) -> None:
    points = every_point(problem)
    if not points:
        return
    near = Front.of(points).points
    rivals = [
        (near[at % len(near)].seconds * longer, near[at % len(near)].usd * dearer)
        for at, longer, dearer in drawn
    ]
    with searching(engine) as compiled:
        found = choose(problem, compiled=compiled, rivals=rivals)
    assert found.gap == 0.0
    for one in found.points:
        assert not any(seconds <= one.seconds and usd <= one.usd for seconds, usd in rivals)
    best = rivals + [(one.seconds, one.usd) for one in found.points]
    more = 1 + 1e-9
    for one in points:
        assert any(s <= one.seconds * more and usd <= one.usd * more for s, usd in best)
    event(f"{min(len(found.points), 4)} plans beside {len(rivals)} rivals")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_numpy_and_numba_find_the_same_front(seed: int) -> None:
    """Of models too large to try every plan."""
    pytest.importorskip("numba")
    problem = random_problem(seed, layers=14, options=5)
    fronts = [choose(problem, compiled=compiled).front for compiled in (False, True)]
    assert len(fronts[0].points) > 10
    for a, b in zip(fronts[0].points, fronts[1].points, strict=True):
        assert (a.seconds, a.usd) == pytest.approx((b.seconds, b.usd), rel=1e-9)


@pytest.mark.parametrize("seed", [2, 18])
def test_stages_that_would_each_sum_up_in_another_way(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways are one case, in which such a plan takes too little: then each is searched."""
    apart, done = Case.apart, []

    def counted(case: Case) -> list[Case]:
        done.append(case.torn)
        return apart(case)

    monkeypatch.setattr(Case, "apart", counted)
    problem = random_problem(
        seed,
        layers=4,
        options=2,
        latency_s=0.3,
        degrees=(1, 4, 8),
        micro_batches=8,
        pipelined=(True, False),
        mixed=True,
    )
    found = choose(problem, compiled=False).front
    assert_is_the_front(found, every_point(problem))
    assert {point.plan.collective for point in found.points} == {"pipelined", "scatter-reduce"}
    assert all(done)
    assert done


def test_of_several_problems_the_front_of_all_their_plans() -> None:
    """A store that is far but wide, and one that is near but narrow."""
    far = random_problem(1, layers=4, options=2, latency_s=0.1, store="far")
    near = random_problem(1, layers=4, options=2, latency_s=0.001, rate=0.7, store="near")
    found = choose(far, near, compiled=False).front
    assert_is_the_front(found, every_point(far) + every_point(near))
    assert {point.plan.store for point in found.points} == {"far", "near"}
    each = [point for one in (far, near) for point in choose(one, compiled=False).front.points]
    assert [point.plan for point in Front.of(each).points] == [p.plan for p in found.points]


def test_functions_are_smaller_by_1f1b() -> None:
    """Four micro-batches, 100 MiB of activations a layer: stages hold 400 MiB each, or 200, 100."""
    layer = LayerBytes(
        parameter_bytes=0.0, activation_bytes=100.0 * 2**20, output_bytes=1e6, gradient_bytes=1e6
    )
    options = tuple(
        MemoryOption(
            memory_mib=memory,
            forward_s=(1.0, 1.0),
            backward_s=(2.0, 2.0),
            bytes_per_s=1e9,
            base_bytes=0.0,
            usd_per_s=memory / 1e3,
        )
        for memory in (128, 256, 512)
    )
    problem = StagesOverStore(layers=(layer,) * 2, options=options, degrees=(1,), micro_batches=4)
    by_1f1b = replace(problem, schedule=ONE_F_ONE_B)
    (whole,) = choose(problem, compiled=False).front.points
    found = choose(problem, by_1f1b, compiled=False)
    (half,) = found.front.points
    assert (whole.plan.memory_mib, half.plan.memory_mib) == ((512, 512), (256, 128))
    assert (half.seconds, half.usd / whole.usd) == (whole.seconds, 3 / 8)
    assert found.points == (whole, half), "whether it takes as long, virtual time knows"
    assert str(half.plan).endswith("1 replica, 4 micro-batches by 1f1b")


@settings(SLOW, max_examples=15)
@given(problem=store_problems(schedule=FILL_DRAIN))
def test_schedules_are_searched_in_two_processes_as_in_one(problem: StagesOverStore) -> None:
    both = problem, replace(problem, schedule=ONE_F_ONE_B)
    points = [*every_point(both[0]), *every_point(both[1])]
    if not points:
        return
    with patch.object(os, "sched_getaffinity", lambda pid: {0}):
        alone = choose(*both, compiled=False)
    with (
        patch.object(os, "sched_getaffinity", lambda pid: {0, 1}),
        patch.object(threading, "active_count", lambda: 1),
        patch.object(os, "fork", wraps=os.fork) as fork,
    ):
        shared = choose(*both, compiled=False)
    assert fork.call_count == 1
    assert shared == alone
    assert shared.gap == 0.0
    assert_is_the_front(shared.front, points)


@pytest.mark.parametrize("replicas", [(2, 1), (1, 2), (4, 3, 1), (1, 4, 2), (3, 3), (12, 1)])
@pytest.mark.parametrize("schedule", list(ORDERS))
def test_stages_hold_the_micro_batches_that_a_run_holds(
    replicas: tuple[int, ...], schedule: str
) -> None:
    """By 1F1B those of whole waves, which are the larger the more replicas another stage has."""
    stages = len(replicas)
    layer = LayerBytes(
        parameter_bytes=0.0, activation_bytes=1.0, output_bytes=0.0, gradient_bytes=0.0
    )
    option = MemoryOption(
        memory_mib=1,
        forward_s=(1.0,) * stages,
        backward_s=(1.0,) * stages,
        bytes_per_s=1.0,
        base_bytes=0.0,
        usd_per_s=1.0,
    )
    problem = StagesOverStore(
        layers=(layer,) * stages,
        options=(option,),
        degrees=(1, 2, 3, 4, 12),
        micro_batches=12,
        mixed=True,
        schedule=schedule,
    )
    plan = PipelinePlan(
        layers=stages,
        starts=tuple(range(1, stages)),
        options=(0,) * stages,
        memory_mib=(1,) * stages,
        replicas=replicas,
        micro_batches=12,
        collective="pipelined",
        schedule=schedule,
    )
    flow = Flow(Layout(stages, replicas), 12 // max(replicas))
    held = [flow.held(stage, schedule) for stage in range(stages)]
    assert list(memory_bytes(problem, plan)) == held


def test_replicas_of_their_own_are_never_worse() -> None:
    """And better where the first layers take long, and the last have many parameters."""
    problem = random_problem(2, layers=4, options=2)
    same = choose(problem, compiled=False).front
    own = choose(random_problem(2, layers=4, options=2, mixed=True), compiled=False).front
    for point in same.points:
        assert own.cheapest_within(point.seconds).usd <= point.usd
    assert any(point.plan.degree is None for point in own.points)
