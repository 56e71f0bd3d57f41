"""Epochs to a target: a curve through the first epochs, and what it cannot say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dayfly.errors import RequestError
from dayfly.planning.curves import ACCURACY, LOSS, epochs_to


def falling(a: float, b: float, c: float, epochs: int, noise: float = 0.0) -> dict[int, float]:
    chance = random.Random(7)
    return {e: c + (1 + noise * chance.gauss(0, 1)) / (a * e + b) for e in range(1, 1 + epochs)}


def test_a_curve_without_noise_is_found_again() -> None:
    """l(e) = 0.2 + 1/(0.5 e + 1) is 0.25 when 0.5 e + 1 = 20."""
    found = epochs_to(falling(0.5, 1.0, 0.2, 10), LOSS, 0.25)
    assert abs(found.epochs - 38) <= 2
    assert found.low <= found.epochs <= (found.high or 0)
    assert found.seen == 10
    assert str(found).startswith("validation loss 0.25 after ")


@settings(max_examples=30, deadline=None)
@given(
    a=st.floats(0.1, 2.0),
    b=st.floats(0.3, 3.0),
    c=st.sampled_from([0.0, 0.1, 0.5]),
    at=st.integers(12, 60),
)
def test_what_it_will_be_after_some_epochs_takes_about_as_many(
    a: float, b: float, c: float, at: int
) -> None:
    target = c + 1 / (a * at + b)
    found = epochs_to(falling(a, b, c, 10), LOSS, target)
    assert found.epochs == pytest.approx(at, rel=0.2, abs=1)


def test_noise_widens_the_interval_which_has_the_truth() -> None:
    target = 0.2 + 1 / (0.5 * 40 + 1)
    found = epochs_to(falling(0.5, 1.0, 0.2, 12, noise=0.02), LOSS, target)
    quiet = epochs_to(falling(0.5, 1.0, 0.2, 12), LOSS, target)
    assert found.low <= 40 <= (found.high or 10**9)
    assert (found.high or 10**9) - found.low > (quiet.high or 10**9) - quiet.low


def test_accuracy_is_a_loss_of_one_less_it() -> None:
    losses = falling(0.5, 1.0, 0.05, 8)
    accuracies = {epoch: 1 - loss for epoch, loss in losses.items()}
    by_accuracy, by_loss = epochs_to(accuracies, ACCURACY, 0.9), epochs_to(losses, LOSS, 0.1)
    assert by_accuracy.epochs == by_loss.epochs
    assert (by_accuracy.what, by_accuracy.target) == (ACCURACY, 0.9)


def test_what_was_reached_is_read_off() -> None:
    found = epochs_to({1: 0.9, 2: 0.6, 3: 0.7, 4: 0.5}, LOSS, 0.6)
    assert (found.epochs, found.low, found.high) == (2, 2, 2)
    assert str(found) == "validation loss 0.6 was reached in epoch 2"


@pytest.mark.parametrize(
    ("measured", "target", "words"),
    [
        ({1: 1.0, 2: 0.9, 3: 0.8}, 0.5, "3 epochs with a validation are too few for a curve"),
        (falling(1.0, 0.5, 0.5, 12), 0.3, "levels off at 0.5, and does not reach 0.3"),
        ({e: 1.0 + 0.1 * e for e in range(1, 7)}, 0.3, "and does not reach 0.3"),
        ({1: 1.0, 2: float("nan"), 3: 0.8, 4: 0.7}, 0.3, "is not finite"),
    ],
)
def test_what_it_cannot_say(measured: dict[int, float], target: float, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        epochs_to(measured, LOSS, target)
