"""Hydrozoa's problem: the best A x B, micro-batches and cut are those of trying every one."""

from __future__ import annotations

import pytest
from benchmarks.parts.enumerated.stages import every_point
from hypothesis import HealthCheck, event, given, settings

from dayfly.errors import RequestError
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.problem import (
    LayerBytes,
    MemoryOption,
    MicroBatches,
    StagesOverLinks,
    step_s,
)
from tests.choose.engines import EVERY_ENGINE, searching
from tests.choose.pipelines_by_hand import assert_is_the_front, link_problems

LAYER = LayerBytes(
    parameter_bytes=100.0, activation_bytes=0.0, output_bytes=10.0, gradient_bytes=10.0
)
CONTAINER = MemoryOption(
    memory_mib=1,
    forward_s=(1.0, 2.0, 3.0),
    backward_s=(2.0, 4.0, 6.0),
    bytes_per_s=100.0,
    base_bytes=0.0,
    usd_per_s=0.5,
)


def problem(containers: int, micro_batches: int = 4, **ring: float) -> StagesOverLinks:
    way = MicroBatches(micro_batches=micro_batches, layers=(LAYER,) * 3, container=CONTAINER)
    return StagesOverLinks(micro_batches=(way,), containers=(containers,), **ring)


@EVERY_ENGINE
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(problem=link_problems())
@pytest.mark.long
def test_equal_to_trying_every_one(problem: StagesOverLinks, engine: str) -> None:
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
    event(f"A x B {found.front.fastest.plan.replicas[0]} x {len(found.front.fastest.plan.options)}")


def test_two_shards_by_hand() -> None:
    """Two replicas of all, or two shards.

    Two replicas take 18 + 18 s, and 2 (2 - 1) 300 / (2 x 100) s for their sum. Cut before the
    last layer, two shards take 3 + 6 s each: 18 + 2 x 0.1 + 3 x 9 s.
    """
    found = choose(problem(2)).front
    (point,) = found.points
    assert point.plan.replicas == (2,)
    assert point.seconds == pytest.approx(36 + 3)
    assert point.usd == pytest.approx(2 * 0.5 * 39)
    assert point.limits == ("2 containers",)
    slow = choose(problem(2, ring_round_s=10.0)).front
    (point,) = slow.points
    assert point.plan.starts == (2,)
    assert point.plan.replicas == (1, 1)
    assert point.seconds == pytest.approx(18 + 0.2 + 27)
    assert str(point.plan) == (
        "2 stages (cut before layer 2) of 2 x 1 MiB, 1 replica, 4 micro-batches"
    )


def test_a_time_limit_has_a_gap_that_holds() -> None:
    layers = tuple(
        LayerBytes(
            parameter_bytes=100.0 + 37 * i % 91,
            activation_bytes=0.0,
            output_bytes=5.0 + 53 * i % 17,
            gradient_bytes=0.0,
        )
        for i in range(30)
    )
    seconds = tuple(0.1 + 29 * i % 13 for i in range(30))
    container = MemoryOption(
        memory_mib=1,
        forward_s=seconds,
        backward_s=seconds[::-1],
        bytes_per_s=10.0,
        base_bytes=0.0,
        usd_per_s=1.0,
    )
    way = MicroBatches(micro_batches=8, layers=layers, container=container)
    hard = StagesOverLinks(micro_batches=(way,), containers=(8,))
    best, first = choose(hard), choose(hard, time_limit_s=0.0)
    assert best.gap == 0.0
    assert first.gap > 0
    assert first.gap > 0.0
    assert first.front.fastest.seconds <= best.front.fastest.seconds * (1 + first.gap)
    assert step_s(hard, first.front.fastest.plan) == first.front.fastest.seconds


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RequestError, match=r"no A x B makes \(5,\) containers with A a divisor of"):
        choose(problem(5))
    large = MicroBatches(
        micro_batches=1,
        layers=(LayerBytes(**{**_values(LAYER), "parameter_bytes": 2.0**20}),) * 3,
        container=CONTAINER,
    )
    with pytest.raises(RequestError, match="layer 0 alone needs 2 MiB with 1 replica and 1 micro"):
        choose(StagesOverLinks(micro_batches=(large,), containers=(1, 2, 3)))
    half = MicroBatches(
        micro_batches=1,
        layers=(LayerBytes(**{**_values(LAYER), "parameter_bytes": 2.0**18}),) * 3,
        container=CONTAINER,
    )
    with pytest.raises(RequestError, match=r"into \(1,\) containers in no way: take more"):
        choose(StagesOverLinks(micro_batches=(half,), containers=(1,)))
    assert len(choose(StagesOverLinks(micro_batches=(half,), containers=(2,))).front.points) == 1
    with pytest.raises(RequestError, match="two ways make as many micro-batches"):
        StagesOverLinks(micro_batches=(half, half), containers=(1,))
    with pytest.raises(RequestError, match="give one at least of each"):
        StagesOverLinks(micro_batches=(half,), containers=())
    with pytest.raises(RequestError, match="less than no time"):
        problem(2, ring_round_s=-1.0)


def _values(layer: LayerBytes) -> dict[str, float]:
    return {name: getattr(layer, name) for name in LayerBytes.__slots__}
