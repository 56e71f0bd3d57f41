"""Limits of time and of functions, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.parts.enumerated.stages import every_point

from dayfly.errors import RequestError
from dayfly.native import Loop
from dayfly.planning.choose.pipelines import compiled
from dayfly.planning.choose.pipelines import search as of_store
from dayfly.planning.choose.pipelines.choose import choose
from dayfly.planning.choose.pipelines.compiled import engine
from dayfly.planning.choose.pipelines.problem import LayerBytes, MemoryOption, StagesOverStore
from dayfly.planning.choose.pipelines.search import OutOfTime
from tests.choose.engines import searching
from tests.choose.pipelines_by_hand import assert_is_the_front, random_problem

pytestmark = pytest.mark.long


def test_without_time_the_gap_holds() -> None:
    problem = random_problem(5, layers=10, options=4)
    best, first = choose(problem, compiled=False), choose(problem, time_limit_s=0.0, compiled=False)
    assert best.gap == 0.0
    assert first.gap > 0
    assert first.gap > 0.0
    assert_is_the_front(first.front, [*best.front.points, *first.front.points], first.gap)


def test_with_time_enough_it_is_exact() -> None:
    problem = random_problem(5, layers=6, options=3)
    limited = choose(problem, time_limit_s=1000.0, compiled=False)
    assert limited.gap == 0.0
    assert limited.front == choose(problem, compiled=False).front


@pytest.mark.parametrize("passes", [1, 3, 6])
def test_stopped_at_any_pass_the_gap_holds(passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time runs out after so many searches of labels."""
    problem = random_problem(6, layers=9, options=4)
    best = choose(problem, compiled=False)
    search, done = of_store.search, []

    def stopped(*arguments: object, **named: object) -> None:
        if len(done) == passes:
            raise OutOfTime
        done.append(1)
        search(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(of_store, "search", stopped)
    found = choose(problem, time_limit_s=1000.0, compiled=False)
    assert_is_the_front(found.front, [*best.front.points, *found.front.points], found.gap)


@pytest.mark.parametrize("most", range(1, 9))
def test_functions_at_once(most: int) -> None:
    problem = replace(random_problem(7, layers=5, options=2), functions_at_once=most)
    points = every_point(problem)
    if not points:
        with pytest.raises(RequestError, match=f"the limit is {most} at once: allow"):
            choose(problem, compiled=False)
        return
    found = choose(problem, compiled=False).front
    assert_is_the_front(found, points)
    assert all(point.plan.functions <= most for point in found.points)
    assert found.fastest.plan.functions < most or f"{most} functions at once" in (
        found.fastest.limits
    )


@pytest.mark.parametrize("engine", ["numpy", "loops"])
@pytest.mark.parametrize("most", [0.2, 0.5, 1.7])
@pytest.mark.parametrize("functions", [None, 2])
def test_vcpus_at_once(most: float, functions: int | None, engine: str) -> None:
    """Functions of 1024 MiB have 0.25, and those of 2048 MiB 0.7."""
    p = random_problem(7, layers=5, options=2)
    options = tuple(replace(one, vcpus=v) for one, v in zip(p.options, (0.25, 0.7), strict=True))
    p = replace(p, options=options, vcpus_at_once=most, functions_at_once=functions)
    points = every_point(p)
    with searching(engine) as compiled:
        if not points:
            with pytest.raises(
                RequestError, match=f"within {most:g} vCPUs at once: it needs .*: allow"
            ):
                choose(p, compiled=compiled)
            return
        found = choose(p, compiled=compiled).front
    assert_is_the_front(found, points)
    limits = {limit for point in found.points for limit in point.limits}
    assert found.fastest == choose(
        replace(p, vcpus_at_once=None), compiled=False
    ).front.fastest or (f"{most:g} vCPUs at once" in limits)


def test_a_deadline_that_nothing_meets_names_what_limits() -> None:
    found = choose(random_problem(7, layers=5, options=2), compiled=False).front
    with pytest.raises(RequestError, match="or more than functions of 2048 MiB"):
        found.cheapest_within(found.fastest.seconds / 2)


def one_layer(
    parameter_mib: float, *, degrees: tuple[int, ...] = (1,), count: int = 2
) -> StagesOverStore:
    layer = LayerBytes(
        parameter_bytes=parameter_mib * 2**20,
        activation_bytes=10.0 * 2**20,
        output_bytes=1.0,
        gradient_bytes=1.0,
    )
    options = tuple(
        MemoryOption(
            memory_mib=memory,
            forward_s=(1.0,) * count,
            backward_s=(1.0,) * count,
            bytes_per_s=1e6,
            base_bytes=100.0 * 2**20,
            usd_per_s=1e-5,
        )
        for memory in (512, 1024)
    )
    return StagesOverStore(
        layers=(layer,) * count, options=options, degrees=degrees, micro_batches=8
    )


def test_a_model_that_fits_nowhere() -> None:
    """8 micro-batches of 10 MiB, 2 x 500 MiB, and 100 MiB: 1180 MiB. With 8 replicas 4 x 500."""
    with pytest.raises(RequestError) as refused:
        choose(one_layer(500.0, degrees=(1, 8)), compiled=False)
    assert str(refused.value) == (
        "the model fits nowhere: layer 0 alone needs 1180 MiB with 1 replica and 8 micro-batches "
        "of a step, and functions of 1024 MiB come nearest: take functions of 1180 MiB, or smaller "
        "micro-batches"
    )
    assert choose(one_layer(400.0), compiled=False).gap == 0.0


def test_the_memory_that_is_missing_is_that_of_the_schedule_that_needs_least() -> None:
    """By 1F1B layer 0 holds 2 micro-batches of 10 MiB, beside 2 x 500 MiB and 100 MiB: 1120 MiB."""
    problem = one_layer(500.0)
    with pytest.raises(RequestError) as refused:
        choose(problem, replace(problem, schedule="1f1b"), compiled=False)
    assert "layer 0 alone needs 1120 MiB with 1 replica and 8 micro-batches of a step by 1f1b" in (
        str(refused.value)
    )
    options = [replace(one, memory_mib=one.memory_mib + 96) for one in problem.options]
    larger = replace(problem, options=tuple(options))
    points = choose(larger, replace(larger, schedule="1f1b"), compiled=False).points
    assert {one.plan.schedule for one in points} == {"1f1b"}


def test_a_model_that_takes_too_many_functions() -> None:
    problem = replace(one_layer(400.0, count=3), functions_at_once=2)
    with pytest.raises(RequestError) as refused:
        choose(problem, compiled=False)
    assert str(refused.value) == (
        "the model fits into no fewer than 3 functions, and the limit is 2 at once: allow 3, or "
        "take larger functions"
    )


def test_what_makes_no_problem() -> None:
    with pytest.raises(RequestError, match="give a problem"):
        choose()
    with pytest.raises(RequestError, match="-1 vCPUs at once: allow more than 0, or give no limit"):
        replace(one_layer(1.0), vcpus_at_once=-1.0)
    with pytest.raises(RequestError, match="give one that divides them"):
        one_layer(1.0, degrees=(3,))
    with pytest.raises(RequestError, match="give one of each at least"):
        replace(one_layer(1.0), layers=())
    with pytest.raises(RequestError, match="seconds of 2 and 2 layers of 1"):
        replace(one_layer(1.0), layers=one_layer(1.0).layers[:1])
    with pytest.raises(RequestError, match="a beta of 1 at least"):
        replace(one_layer(1.0), beta=0.5)
    with pytest.raises(RequestError, match="give no bytes below 0"):
        replace(one_layer(1.0).layers[0], output_bytes=-1.0)
    with pytest.raises(RequestError, match="give more than 0 of each"):
        replace(one_layer(1.0).options[0], usd_per_s=0.0)
    with pytest.raises(RequestError, match="seconds or bytes below 0"):
        replace(one_layer(1.0).options[0], base_bytes=-1.0)


def test_numba_is_asked_for_only_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "has_numba", lambda: False)
    large = random_problem(1, layers=100, options=5)
    assert engine(problems=[large]) is engine(False)
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    compiled._compiled.cache_clear()
    compiled.loops.cache_clear()
    with pytest.raises(RequestError, match=r"pip install 'dayfly\[fast\]'"):
        engine(True)


def test_numba_is_loaded_for_large_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 layers x 3 sizes x 3 degrees are 900; 20 layers are 180."""
    numba = object()
    monkeypatch.setattr(compiled, "has_numba", lambda: True)
    monkeypatch.setattr(compiled, "_compiled", lambda: numba)
    monkeypatch.setattr(compiled, "is_loaded", lambda: False)
    large = [random_problem(1, layers=100, options=3)]
    small = [random_problem(1, layers=20, options=3)]
    assert engine(problems=small) is engine(False)
    assert engine(problems=large) is engine(problems=small * 4) is numba
    monkeypatch.setattr(compiled, "is_loaded", lambda: True)
    assert engine(problems=small) is numba


def test_loops_are_compiled_once_before_the_clock_begins_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, told, kept = [], [], False
    monkeypatch.setattr(compiled, "has_numba", lambda: True)
    monkeypatch.setattr(compiled, "is_loaded", lambda: bool(done))
    monkeypatch.setattr(compiled, "is_cached", lambda: kept or bool(done))
    monkeypatch.setattr(compiled, "loops", lambda: done.append("loaded"))
    for work, times in ((10, 0), (600, 1), (600, 1)):
        compiled.make_ready(work, told.append)
        assert len(done) == times
    assert "compiles the search for cuts, once on this machine" in told[0]
    assert told[1].endswith("from now on it is read")
    done.clear()
    kept = True
    compiled.make_ready(600, told.append)
    assert (len(done), len(told)) == (1, 2)


def test_loops_that_cannot_be_kept_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(compiled, "has_numba", lambda: True)
    for name in ("is_loaded", "is_cached"):
        monkeypatch.setattr(compiled, name, lambda: False)
    monkeypatch.setattr(compiled, "loops", dict)
    compiled.make_ready(600, told.append)
    assert told[1].endswith("each plan compiles it again")


@pytest.mark.slow
def test_what_is_compiled_is_all_that_a_search_asks_for() -> None:
    """They are kept from then on, and no argument has another type; also of one layer or option."""
    pytest.importorskip("numba")
    compiled.loops.cache_clear()
    compiled._compiled.cache_clear()
    found = compiled.loops()
    assert compiled.is_loaded()
    assert compiled.is_cached()
    for layers, options, mixed in ((1, 1, False), (6, 3, False), (5, 2, True)):
        choose(random_problem(3, layers=layers, options=options, mixed=mixed), compiled=True)
    assert {type(loop) for loop in found.values()} == {Loop}, "they need more than memory"
