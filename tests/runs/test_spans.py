"""Spans of time: joined by kind, and a wait is what is left of it when nothing comes meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.runs.spans import Spans, without

pytestmark = pytest.mark.long


def test_spans_of_one_kind_are_joined_and_told_once() -> None:
    spans = Spans()
    for kind, began, ended in (
        ("upload", 10.003, 10.005),
        ("compute", 10.0, 10.002),
        ("upload", 10.004, 10.006),
        ("apply", 10.007, 10.00701),  # too short to tell
    ):
        spans.add(kind, began, ended)
    assert spans.take(10.0) == {"compute": [[0.0, 2.0]], "upload": [[3.0, 6.0]]}
    assert spans.take(10.0) == {}


def test_a_wait_is_when_nothing_comes() -> None:
    spans = Spans()
    spans.add("wait", 10.0, 10.004)
    spans.add("wait", 10.001, 10.009)
    spans.add("download", 10.004, 10.005)
    assert spans.take(10.0) == {"wait": [[0.0, 4.0], [5.0, 9.0]], "download": [[4.0, 5.0]]}


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], [[2, 6], [8, 9]]),
        ([[0, 1], [10, 11]], [[2, 6], [8, 9]]),
        ([[0, 3], [5, 8.5]], [[3, 5], [8.5, 9]]),
        ([[3, 4]], [[2, 3], [4, 6], [8, 9]]),
        ([[1, 20]], []),
    ],
)
def test_what_is_left(others: list[list[float]], left: list[list[float]]) -> None:
    assert without([[2, 6], [8, 9]], others) == left


rows = st.lists(st.integers(0, 60), unique=True).map(
    lambda ends: [
        [float(a), float(b)] for a, b in zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False)
    ]
)


@given(rows, rows)
def test_each_moment_is_left_or_taken(spans: list[list[float]], others: list[list[float]]) -> None:
    def has(row: list[list[float]], moment: float) -> bool:
        return any(start < moment < end for start, end in row)

    left = without(spans, others)
    for moment in (number + 0.5 for number in range(60)):
        assert has(left, moment) == (has(spans, moment) and not has(others, moment))
