"""Workers that are not done at the same moment: the slowest is waited for."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given as tried
from hypothesis import strategies as st

from dayfly.planning.function_times import factor, slowest, speed_places, straggling
from dayfly.planning.profile import Affine
from tests.planning.by_hand import given, layer, profile, size
from tests.planning.test_contention import step_s


@tried(st.integers(1, 400))
def test_each_has_a_place_of_its_own(workers: int) -> None:
    assert sorted(speed_places(workers)) == list(range(workers))


def test_two_neighbours_are_not_next_to_each_other() -> None:
    assert speed_places(5) == (0, 3, 1, 4, 2)


@pytest.mark.parametrize(
    ("workers", "expected"),
    # Expected largest of so many standard normal variables (Harter, 1961).
    [(2, 0.564), (3, 0.846), (4, 1.029), (6, 1.267), (10, 1.539), (100, 2.508)],
)
def test_the_last_takes_what_the_slowest_of_so_many_takes(workers: int, expected: float) -> None:
    found = factor(0.1, workers - 1, workers, 1)
    assert found - 1 == pytest.approx(0.1 * expected, rel=0.05)


@tried(st.integers(1, 100), st.floats(0.0, 0.15), st.integers(1, 16))
def test_on_average_nobody_is_faster_or_slower(workers: int, jitter: float, passes: int) -> None:
    each = [factor(jitter, place, workers, passes) for place in range(workers)]
    assert fmean(each) == pytest.approx(1.0)
    assert each == sorted(each)


def test_many_passes_even_out() -> None:
    assert factor(0.1, 3, 4, 4) - 1 == pytest.approx((factor(0.1, 3, 4, 1) - 1) / 2)


def test_nobody_takes_less_than_half() -> None:
    assert factor(0.9, 0, 100, 1) == 0.5


def test_passes_and_reading_take_longer_and_nothing_else() -> None:
    made = size(1, data=Affine(0.01, 0.0), step_s=given(0.03), jitter=0.1)
    late, times = slowest(made, 4, 1), factor(0.1, 3, 4, 1)
    assert late.forward[0](1) == pytest.approx(times * made.forward[0](1))
    assert late.backward[0](1) == pytest.approx(times * made.backward[0](1))
    assert late.data(1) == pytest.approx(times * 0.01)
    assert (late.step_s, late.apply, late.up) == (made.step_s, made.apply, made.up)
    assert straggling(made, 0, 1, 1) is made


def test_a_step_waits_for_the_slowest() -> None:
    """Two layers of 3 ms a sample; what is sent takes next to nothing."""
    layers = [layer("a", 1), layer("b", 1)]
    known = profile(layers, size(2, jitter=0.05))
    even = profile(layers, size(2))
    times, four = factor(0.05, 3, 4, 1), {"workers": 4, "batch_size": 400}
    assert step_s(known, **four) == pytest.approx(times * step_s(even, **four), rel=0.01)
    one = {"workers": 1, "batch_size": 100}
    assert step_s(known, **one) == step_s(even, **one)


def test_so_it_does_for_many() -> None:
    """By the closed forms as in virtual time, also cut and with rounds of several steps."""
    layers = [layer("a", 1), layer("b", 1)]
    known = profile(layers, size(2, jitter=0.05))
    for asked in (
        {"workers": 12, "batch_size": 1200},
        {"workers": 12, "batch_size": 1200, "sync": "local-sgd", "k": 4},
        {"workers": 24, "batch_size": 1200, "cut": (1,), "replicas": 12, "micro_batches": 2},
    ):
        simulated = step_s(known, **asked)
        assert step_s(known, most_simulated=1, **asked) == pytest.approx(simulated, rel=0.03)
