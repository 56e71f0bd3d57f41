"""The front of cut models is the same as by trying every plan."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, given, settings

from dayfly.errors import RequestError
from dayfly.plan.choose.pipelines.choose import choose
from dayfly.plan.choose.pipelines.problem import Problem, StagesOverLinks, StagesOverStore
from tests.choose.pipelines_by_hand import (
    assert_is_the_front,
    every_point,
    link_problems,
    store_problems,
)

SLOW = settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))


def compare(problem: Problem, compiled: bool | None = None) -> None:
    points = every_point(problem)
    if not points:
        with pytest.raises(RequestError):
            choose(problem, compiled=compiled)
        event("no plan")
        return
    found = choose(problem, compiled=compiled)
    assert found.exact
    assert_is_the_front(found.front, points)
    stages = max(len(point.plan.options) for point in found.front.points)
    event(f"points {min(len(found.front.points), 6)}, stages {stages}")


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "numba"])
@SLOW
@given(problem=store_problems())
def test_over_a_store(problem: StagesOverStore, compiled: bool) -> None:
    if compiled:
        pytest.importorskip("numba")
    compare(problem, compiled)


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "numba"])
@SLOW
@given(problem=store_problems(mixed=True))
def test_each_stage_with_replicas_of_its_own(problem: StagesOverStore, compiled: bool) -> None:
    if compiled:
        pytest.importorskip("numba")
    compare(problem, compiled)


@SLOW
@given(link_problems())
def test_over_links(problem: StagesOverLinks) -> None:
    compare(problem)
