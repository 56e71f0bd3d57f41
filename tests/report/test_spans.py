"""Records become spans: as they are told, and from older records that tell less."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dayfly.runs.report.spans import Step, TimeSpan, joined, spans_of, step_of
from tests.report import made_up
from tests.report.made_up import step, step_told


def test_a_step_that_tells_its_spans() -> None:
    told = {"compute": [[0.0, 30.0]], "upload": [[10.0, 20.0], [20.05, 30.0]], "data": [[0.0, 5.0]]}
    record = step(100.0, 7, 0.5, told)
    assert step_of(step_told(record)) == Step(7, 100.0, 100.5, True)
    assert list(spans_of(step_told(record))) == [
        TimeSpan("compute", 100.0, 100.03),
        TimeSpan("upload", 100.01, 100.03),
        TimeSpan("data", 100.0, 100.005),
    ]


def test_a_step_from_the_log_is_catching_up_whatever_it_did() -> None:
    told = {"download": [[1.0, 2.0]], "apply": [[2.0, 500.0]]}
    assert list(spans_of(step_told(step(100.0, 7, 0.5, told, computed=False)))) == [
        TimeSpan("catch up", 100.0, 100.5),
        TimeSpan("download", 100.001, 100.002),
    ]


@pytest.mark.parametrize(
    ("record", "spans"),
    [
        ({"kind": "part", "began": 5.0, "seconds": 0.5}, [TimeSpan("checkpoint", 5.0, 5.5)]),
        ({"kind": "caught up", "step": 3}, []),
        (
            {
                "kind": "epoch",
                "began": 5.0,
                "record": {"epoch": 0},
                "spans": {"validate": [[0, 500]]},
            },
            [TimeSpan("validate", 5.0, 5.5)],
        ),
        (
            {"kind": "round", "began": 5.0, "round_s": 1.0, "computed": True, "spans": {}},
            [],
        ),
        (
            {"kind": "round", "began": 5.0, "round_s": 1.0, "computed": False, "spans": {}},
            [TimeSpan("catch up", 5.0, 6.0)],
        ),
        (
            # A successor went on with a round that its predecessor had begun.
            {
                "kind": "round",
                "began": 5.0,
                "round_s": 1.0,
                "computed": False,
                "spans": {"upload": [[0, 500]]},
            },
            [TimeSpan("upload", 5.0, 5.5)],
        ),
    ],
)
def test_other_records(record: dict[str, Any], spans: list[TimeSpan]) -> None:
    (told,) = made_up.told([{"at": 9.0, **record}])
    assert list(spans_of(told)) == spans


def test_neighbours_are_joined() -> None:
    assert joined([(3.0, 4.0), (0.0, 1.0), (1.5, 2.0), (0.2, 0.4)], 0.5) == [(0.0, 2.0), (3.0, 4.0)]


times = some.integers(0, 1000)


@given(some.lists(some.tuples(times, times).map(sorted)), some.integers(0, 5))
def test_joined_spans_cover_the_same_and_lie_apart(pairs: list[list[int]], apart: int) -> None:
    whole = joined(pairs, apart)
    assert all(later[0] - earlier[1] > apart for earlier, later in pairwise(whole))
    assert all(any(a <= start and end <= b for a, b in whole) for start, end in pairs)
    ends = {end for _, end in pairs}
    assert all(start in {pair[0] for pair in pairs} and end in ends for start, end in whole)
