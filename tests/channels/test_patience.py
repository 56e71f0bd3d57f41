"""When a store is asked again: pure, with a clock and a chance that are given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.wire.channels.patience import Arrivals, ChannelWaits
from dayfly.wire.keys import Key
from dayfly.wire.outages import Backoff

KEY = Key(0, "grad-part", 1, 0)
seconds = st.floats(0, 100)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def step(number: int, source: int = 1, operation: str = "grad-part") -> Key:
    return Key(number, operation, source, 0)


def wait_for(patience: ChannelWaits, clock: Clock, key: Key, comes_s: float) -> list[float]:
    """Ask until a message that comes so long after the first question is there; when it was asked.

    Questions take no time.
    """
    wait = patience.wait(key)
    began_s, tries = clock.now_s, []
    while True:
        clock.now_s = max(clock.now_s, wait.next_s)
        tries.append(clock.now_s - began_s)
        patience.trying(wait)
        if tries[-1] >= comes_s:
            patience.came(key, wait)
            return tries
        patience.missed(wait)


def test_pauses_grow_to_their_bound() -> None:
    backoff = Backoff(first_s=0.01, most_s=0.1, growth=2.0)
    assert [backoff.pause_s(n, 0.0) for n in range(1, 7)] == [0.01, 0.02, 0.04, 0.08, 0.1, 0.1]
    assert [backoff.pause_s(n, 1.0) for n in range(1, 4)] == [0.005, 0.01, 0.02]


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_pauses_stay_within_their_bounds(misses: int, chance: float) -> None:
    backoff = Backoff()
    pause_s = backoff.pause_s(misses, chance)
    assert backoff.first_s / 2 <= pause_s <= backoff.most_s
    assert pause_s <= backoff.pause_s(misses, 0.0) <= backoff.pause_s(misses + 1, 0.0)


def test_without_a_past_it_is_asked_for_at_once() -> None:
    assert Arrivals().predicted_s == 0.0


@given(st.lists(seconds, min_size=1))
def test_the_prediction_is_the_shortest_of_the_last_steps(missed: list[float]) -> None:
    arrivals = Arrivals(most_s=20.0)
    for missed_s in missed:
        arrivals.note(0.0, missed_s)
    assert arrivals.predicted_s == min(*missed[-8:], 20.0)


def test_what_was_there_at_the_first_try_is_tried_earlier() -> None:
    arrivals = Arrivals()
    arrivals.note(0.0, 4.0)
    for expected_s in (2.0, 1.0, 0.5):
        arrivals.note(arrivals.predicted_s, None)
        assert arrivals.predicted_s == expected_s


@given(st.floats(0.02, 8.0), st.randoms(use_true_random=False))
@pytest.mark.long
def test_steps_alike_need_ever_fewer_questions(comes_s: float, chance: object) -> None:
    """One question before it is there, and a few after: however long a step takes."""
    clock = Clock()
    patience = ChannelWaits(clock=clock, chance=chance.random)  # type: ignore[attr-defined]
    tries = [wait_for(patience, clock, step(number), comes_s) for number in range(20)]
    assert tries[0][0] == 0.0
    # The first of the last eight steps left the prediction within a pause of the truth.
    assert comes_s - Backoff().most_s <= tries[-1][0] <= comes_s
    assert all(len(later) <= 14 for later in tries[1:])
    assert tries[-1][-1] <= comes_s + Backoff().most_s


def test_kinds_of_messages_are_told_apart() -> None:
    clock = Clock()
    patience = ChannelWaits(clock=clock, chance=lambda: 0.0)
    wait_for(patience, clock, step(0), 3.0)
    ahead = {
        (source, operation): patience.wait(step(1, source, operation)).next_s - clock.now_s
        for source in (1, 2)
        for operation in ("grad-part", "val-part")
    }
    assert ahead.pop((1, "grad-part")) > 2.0
    assert set(ahead.values()) == {0.0}


def test_a_wait_goes_on_over_several_calls() -> None:
    clock = Clock()
    patience = ChannelWaits(clock=clock)
    wait = patience.wait(KEY)
    patience.trying(wait)
    patience.missed(wait)
    clock.now_s += 0.001
    assert patience.wait(KEY) is wait
    patience.came(KEY, wait)
    assert patience.wait(KEY) is not wait


def test_what_is_known_to_be_there_is_asked_for_at_once() -> None:
    clock = Clock()
    patience = ChannelWaits(clock=clock)
    wait_for(patience, clock, step(0), 3.0)
    # Read already, put by this very channel, found by a look, or told of during the wait.
    assert patience.wait(step(0)).next_s == clock.now_s
    patience.known(step(1))
    assert patience.wait(step(1)).next_s == clock.now_s
    wait = patience.wait(step(2))
    assert wait.next_s > clock.now_s
    patience.known(step(2))
    assert wait.next_s == clock.now_s


def test_what_was_known_to_be_there_predicts_nothing() -> None:
    clock = Clock()
    patience = ChannelWaits(clock=clock, chance=lambda: 0.0)
    wait_for(patience, clock, step(0), 3.0)
    before_s = patience.wait(step(100)).next_s - clock.now_s
    for number in range(1, 10):
        patience.known(step(number))
        wait_for(patience, clock, step(number), 0.0)
    assert patience.wait(step(101)).next_s - clock.now_s == pytest.approx(before_s)


def test_waits_that_nobody_comes_back_for_are_forgotten() -> None:
    patience = ChannelWaits()
    for number in range(10_000):
        patience.wait(step(number))
        patience.known(step(number, 2))
    assert len(patience._waits) < 5000
    assert len(patience._there) < 5000
