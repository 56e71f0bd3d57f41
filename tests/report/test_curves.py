"""Curves: means, thinning, and figures of what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dayfly.runs.report import curves
from tests.report.made_up import epoch, step, told


def test_a_mean_over_neighbours_passes_over_what_is_no_number() -> None:
    assert curves.smoothed([1.0, 2.0, None, 6.0], 1) == [1.5, 1.5, 4.0, 6.0]
    assert curves.smoothed([1.0, None, None, None, 5.0], 1) == [1.0, 1.0, None, 5.0, 5.0]
    assert curves.smoothed([3.0, 4.0], 0) == [3.0, 4.0]
    assert curves.smoothed([], 3) == []


def test_many_steps_become_stretches_with_their_least_and_largest() -> None:
    assert curves.thinned([5.0, 1.0, None, 4.0, None, None, 2.0], 4) == [
        (0, 1.0, 5.0),
        (2, 4.0, 4.0),
        (6, 2.0, 2.0),
    ]
    assert curves.thinned([1.0, 2.0], 600) == [(0, 1.0, 1.0), (1, 2.0, 2.0)]


losses = some.lists(some.none() | some.floats(-1e6, 1e6), max_size=300)


@given(losses, some.integers(1, 50))
def test_no_extreme_is_lost(values: list[float | None], points: int) -> None:
    rows = curves.thinned(values, points)
    known = [value for value in values if value is not None]
    assert len(rows) <= points
    assert min((low for _, low, _ in rows), default=None) == min(known, default=None)
    assert max((high for _, _, high in rows), default=None) == max(known, default=None)


def test_losses_of_a_run_that_goes_on() -> None:
    records = [
        step(0.0, 0, 1.0, loss=9.0),
        step(1.0, 1, 1.0, loss=8.0),
        step(2.0, 1, 1.0, loss=8.0),
        step(4.0, 3, 1.0, loss=None),
        {"kind": "round", "at": 9.0, "step": 4, "losses": [3.0, 2.0]},
        step(5.0, 5, 1.0, loss=2.5),
        {"kind": "round", "at": 9.0, "step": 4, "losses": [3.0, 2.0]},
    ]
    assert curves.step_losses(told(records)) == [9.0, 8.0, None, None, 3.0, 2.0]
    assert curves.step_losses([]) == []


@pytest.mark.parametrize("first", [1, 0], ids=["as they are", "as earlier versions wrote them"])
def test_epochs_of_a_run_that_goes_on(first: int) -> None:
    records = [epoch(1.0, epoch=first, train_loss=3.0), epoch(2.0, epoch=first + 1, train_loss=2.0)]
    assert curves.epochs(told([*records, records[0]])) == [
        {"epoch": 1, "train_loss": 3.0},
        {"epoch": 2, "train_loss": 2.0},
    ]
    assert curves.epochs([]) == []


def test_the_figure_of_a_short_run_has_one_line() -> None:
    assert curves.loss_by_step([2.0, None, 1.23456789]) == {
        "title": "Loss by step",
        "x": "step",
        "y": "loss",
        "series": [
            {"name": "each step", "role": "bold", "line": [[0, 2.0], [2, 1.23457]]},
        ],
    }


def test_the_figure_of_a_long_run_has_its_range_and_its_mean() -> None:
    light, bold = curves.loss_by_step([float(n % 2) for n in range(6000)])["series"]
    assert (light["role"], bold["role"], bold["name"]) == ("light", "bold", "mean of 201 steps")
    assert light["band"][:2] == [[0, 0.0, 1.0], [10, 0.0, 1.0]]
    assert len(light["band"]) == 600
    assert bold["line"][-1][0] == 5999
    assert all(0.49 < mean < 0.51 for _, mean in bold["line"])


def test_what_was_never_measured_has_no_figure() -> None:
    records = [
        {"epoch": 1, "train_loss": 2.0, "val_loss": None, "val_accuracy": None, "top_5": 0.5},
        {"epoch": 2, "train_loss": 1.0, "val_loss": 3.0, "val_accuracy": None, "top_5": 0.75},
    ]
    assert curves.by_epoch(records) == [
        {
            "title": "Loss by epoch",
            "x": "epoch",
            "y": "loss",
            "series": [
                {"name": "training", "role": "second", "dots": True, "line": [[1, 2.0], [2, 1.0]]},
                {"name": "validation", "role": "bold", "dots": True, "line": [[2, 3.0]]},
            ],
        },
        {
            "title": "Top 5",
            "x": "epoch",
            "y": "top 5",
            "series": [
                {"name": "top 5", "role": "bold", "dots": True, "line": [[1, 0.5], [2, 0.75]]}
            ],
        },
    ]
