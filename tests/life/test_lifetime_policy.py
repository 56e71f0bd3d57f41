"""A worker hands over in good time: neither killed by its deadline nor before it must."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.life import lifetimes
from dayfly.life.lifetimes import HandOver, Lifetime
from dayfly.life.platforms import base
from dayfly.life.platforms.base import Context


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        fake = SimpleNamespace(monotonic=lambda: self.now)
        patch.setattr(lifetimes, "time", fake)
        patch.setattr(base, "time", fake)

    def begin(self, lifetime_s: float | None, later: int = 0) -> Lifetime:
        deadline = None if lifetime_s is None else self.now + lifetime_s
        return Lifetime(Context("worker-0", 0, self.now, deadline, None), later=later)

    def step(self, lifetime: Lifetime, seconds: float) -> None:
        lifetime.step_begins()
        self.now += seconds
        lifetime.step_ends()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def checked(lifetime: Lifetime) -> bool:
    """Whether waiting on would be too late."""
    try:
        lifetime.check()
    except HandOver:
        return True
    return False


def test_without_a_lifetime_nothing_is_ever_due(clock: Clock) -> None:
    lifetime = clock.begin(None)
    clock.step(lifetime, 1e6)
    assert not any((lifetime.due(), lifetime.late(), checked(lifetime)))


def test_never_in_the_first_step_of_an_attempt(clock: Clock) -> None:
    """Or attempts would follow each other without the run getting on."""
    lifetime = clock.begin(10)
    lifetime.step_begins()
    clock.now += 9.99
    assert not any((lifetime.due(), lifetime.late(), checked(lifetime)))
    lifetime.step_ends()
    assert lifetime.due()
    assert lifetime.late()
    assert checked(lifetime)


def test_due_two_steps_before_the_end_where_the_last_one_is_known_a_step_later(
    clock: Clock,
) -> None:
    """Twice the longest step for each of two, and half a second: 4 * 3 + 0.5 = 12.5 s."""
    lifetime = clock.begin(100, later=1)
    clock.step(lifetime, 3)
    clock.now += 84.4
    assert not lifetime.due()
    clock.now += 0.2
    assert lifetime.due()


def test_due_when_another_step_and_checkpoint_might_not_fit(clock: Clock) -> None:
    """Twice the longest step and checkpoint, and half a second: 2 * 3 + 2 * 1 + 0.5 = 8.5 s."""
    lifetime = clock.begin(100)
    clock.step(lifetime, 3)
    clock.step(lifetime, 1)
    lifetime.checkpoint_took(1)
    lifetime.checkpoint_took(0.2)
    clock.now = 1000 + 100 - 8.6
    assert not lifetime.due()
    clock.now += 0.2
    assert lifetime.due()


def test_late_at_a_checkpoint_if_it_were_due_soon(clock: Clock) -> None:
    """1.5 times 8.5 s, or a quarter of the life: one checkpoint serves all that are near."""
    lifetime = clock.begin(40)
    clock.step(lifetime, 3)
    lifetime.checkpoint_took(1)
    clock.now = 1000 + 40 - 12.8
    assert not lifetime.late()
    clock.now += 0.1
    assert lifetime.late()
    assert not lifetime.due()
    longer = clock.begin(100)
    clock.step(longer, 0.1)
    clock.now += 100 - 25.2
    assert not longer.late()
    clock.now += 0.3
    assert longer.late()


@pytest.mark.parametrize("step_s", [0.01, 0.5, 2.0, 7.0])
def test_steps_go_on_until_due_and_never_past_the_deadline(clock: Clock, step_s: float) -> None:
    lifetime = clock.begin(60)
    steps = 0
    while not lifetime.due():
        clock.step(lifetime, step_s)
        steps += 1
    left = 1060 - clock.now
    # `due` is asked before the last step: it and a checkpoint as long must fit.
    assert left >= 0
    assert steps * step_s > 60 - 4 * step_s - 1, "most of the lifetime was used"


def test_late_in_the_last_quarter_of_the_lifetime(clock: Clock) -> None:
    """At a checkpoint made for another reason, hand over with it, to spare one of one's own."""
    lifetime = clock.begin(100)
    clock.step(lifetime, 1)
    clock.now = 1074
    assert not lifetime.late()
    clock.now = 1076
    assert lifetime.late()
    assert not lifetime.due()


def test_a_wait_ends_just_before_the_kill(clock: Clock) -> None:
    lifetime = clock.begin(100)
    clock.step(lifetime, 1)
    clock.now = 1099.7
    assert not checked(lifetime)
    clock.now = 1099.8
    assert checked(lifetime)


def test_whether_a_round_fits_is_known_after_a_step(clock: Clock) -> None:
    """Twice 3 s for each of 5 steps, and 6.5 s to end in order: 36.5 s."""
    assert clock.begin(None).fits(10**6)
    lifetime = clock.begin(100)
    assert not lifetime.fits(1)
    clock.step(lifetime, 3)
    clock.now = 1100 - 36.6
    assert lifetime.fits(5)
    clock.now += 0.2
    assert not lifetime.fits(5)
