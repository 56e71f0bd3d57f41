"""Where a loop stands: what a process that starts again gets back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from dayfly.errors import RequestError
from dayfly.runs.scripts.position import Position


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "tensor": torch.tensor([self.count])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert int(state["tensor"]) == state["count"]
        self.count = state["count"]


def drawn() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()


def test_an_epoch_begins_again_with_generators_state_and_losses() -> None:
    counter, generator = Counter(), torch.Generator().manual_seed(3)
    position = Position({"counter": counter, "generator": generator})
    counter.count = 5
    position.begin(2)
    numbers, own = drawn(), torch.rand((), generator=generator)
    position.add(0.5)
    position.add(float("nan"))
    counter.count = 7
    tree, tensors = position.dump()

    counter, generator = Counter(), torch.Generator()
    again = Position({"counter": counter, "generator": generator})
    again.load(tree, {**tensors, "model.weight": torch.ones(1)})
    again.restore()
    assert again.epoch == 2
    assert counter.count == 5
    assert drawn() == numbers
    assert torch.equal(torch.rand((), generator=generator), own)
    assert again.first
    assert again.again() == 0.5
    assert again.replaying
    assert str(again.again()) == "nan"
    assert not again.replaying
    again.add(0.25)
    assert again.losses[2:] == [0.25]
    second = again.dump()
    assert second[0]["state"] == tree["state"], "of the epoch's beginning, as before"
    assert second[1].keys() == tensors.keys()


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(RequestError, match="'steps' is a int without state_dict"):
        Position({"steps": 3})
    position = Position({"counter": Counter()})
    other = Position({})
    other.load(*position.dump())
    with pytest.raises(RequestError, match="counter is not registered as it was"):
        other.restore()


def test_evaluations_are_given_again_and_numbered_since_the_last_step() -> None:
    position = Position({})
    position.begin(0)
    position.add(0.5)
    position.add_measured({"loss": 1.0})
    position.add_measured({"loss": float("nan"), "accuracy": None})
    assert position.evaluations == 2
    whole = position.dump()
    position.begin(1)  # no step lies between: what comes next has another name
    assert not position.measured_before
    position.add_measured({"loss": 3.0})
    assert position.evaluations == 3
    behind = position.dump()

    again = Position({})
    again.load(*whole)
    assert (again.again(), again.evaluations) == (0.5, 0)
    assert again.measured_again() == {"loss": 1.0}
    assert again.measured_before
    assert str(again.measured_again()) == "{'loss': nan, 'accuracy': None}"
    assert (again.measured_before, again.evaluations) == (False, 2)

    again.load(*behind)
    assert (again.epoch, again.evaluations, again.measured_before) == (1, 2, True)
    assert (again.measured_again(), again.evaluations) == ({"loss": 3.0}, 3)
    again.add(0.25)
    assert again.evaluations == 0


def test_a_checkpoint_of_a_version_without_evaluations_is_read() -> None:
    position = Position({})
    position.add(0.5)
    tree, tensors = position.dump()
    for name in ("measured", "evaluations", "shown"):
        del tree[name]
    again = Position({})
    again.load(tree, tensors)
    assert (again.again(), again.measured, again.shown) == (0.5, [], None)
