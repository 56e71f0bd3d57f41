"""What the benches make of records: rates, parts of a step, and how far losses are apart."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.parts.measured import fastest_tenth, furthest_apart
from benchmarks.parts.own import covered, measured
from hypothesis import given
from hypothesis import strategies as st

from dayfly.errors import RunFailed


def record(step: int, at: float, **more: Any) -> dict[str, Any]:
    times = {"compute_s": 0.05, "wire_s": 0.02, "step_s": 0.08}
    return {"kind": "step", "step": step, "at": at, "loss": float(step), **times, **more}


def test_steps_are_measured_from_end_to_end_without_the_first_and_the_last() -> None:
    # The first takes 3 s, the last 5 s; those between take 0.1 s, and one 0.3 s, as a checkpoint
    # came before it.
    ends = [3.0, 3.1, 3.2, 3.5, 3.6, 8.6]
    steps = [record(step, at) for step, at in enumerate(ends)]
    found = measured([steps, steps], warm_steps=1)
    assert found.steps_per_s == pytest.approx(4 / 0.6)
    assert found.losses == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert dict(found.parts_ms) == pytest.approx(
        {
            "step": 150,
            "fastest tenth": 100,
            "compute": 50,
            "wire": 20,
            "apply": 10,
            "between steps": 70,
        }
    )


def test_spans_say_more_if_they_are_there() -> None:
    spans = {
        "compute": [[0, 50]],
        "upload": [[40, 60], [50, 65]],
        "wait": [[65, 72]],
        "apply": [[70, 75]],
    }
    steps = [record(step, step / 10, spans=spans) for step in range(4)]
    found = measured([steps], warm_steps=1)
    assert dict(found.parts_ms) == pytest.approx(
        {
            "step": 100,
            "fastest tenth": 100,
            "compute": 50,
            "upload": 25,
            "upload alone": 15,
            "wait": 7,
            "wait alone": 5,
            "apply": 5,
            "rest of the step": 5,
            "between steps": 20,
        }
    )


@pytest.mark.parametrize("steps", [[0, 1, 1, 2], [0, 2, 3, 1], [0, 1, 2]])
def test_steps_that_are_not_whole_are_refused(steps: list[int]) -> None:
    whole = [record(step, step) for step in range(4)]
    with pytest.raises(RunFailed, match="worker 1"):
        measured([whole, [record(step, step) for step in steps]], warm_steps=1)


def test_the_fastest_tenth() -> None:
    assert fastest_tenth([float(time) for time in range(101)]) == pytest.approx(10)
    assert fastest_tenth([3.0]) == 3.0


def test_how_far_losses_are_apart() -> None:
    assert furthest_apart([1.0, 200.0, 0.01], [1.1, 100.0, 0.02]) == (1, pytest.approx(1.0))
    assert furthest_apart([0.5], [0.25]) == (0, 0.25)
    assert furthest_apart([1.0, float("nan")], [1.0, 1.0]) == (1, float("inf"))
    with pytest.raises(ValueError, match="longer"):
        furthest_apart([1.0], [1.0, 2.0])


whole = st.integers(0, 30)


@given(st.lists(st.tuples(whole, whole).map(sorted)))
def test_what_spans_cover(spans: list[list[int]]) -> None:
    places = {place for start, stop in spans for place in range(start, stop)}
    assert covered(spans) == len(places)
