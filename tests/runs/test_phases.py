"""Where a run's seconds went follows from its events, also of several lives and of older ones."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest

from dayfly.runs.events import Events
from dayfly.runs.phases import Phases, phases
from dayfly.specs.events import (
    Begun,
    EpochTold,
    Event,
    Invoked,
    Over,
    RoundTold,
    StepTold,
    Told,
    TrafficTold,
)


def invoked(at: float, rank: int = 0, attempt: int = 0) -> Invoked:
    return Invoked(at=at, function=f"worker-{rank}", attempt=attempt)


def step(began: float, step_s: float, **given: Any) -> StepTold:
    at = began + step_s + 0.05
    return StepTold(
        at=at, began=began, step=0, loss=1.0, computed=True, step_s=step_s, spans={}, **given
    )


def events(coordinator: list[Event], *workers: list[Told]) -> Events:
    return Events(coordinator=tuple(coordinator), workers=dict(enumerate(map(tuple, workers))))


#: One life on two workers.
#:
#:     asked 100   invoked 102   first step 104    last step 109    over 110
RUN = events(
    [Begun(at=101.9, asked_at=100.0), invoked(102.5, 1), invoked(102.0), Over(at=110.0)],
    [step(105.0, 1.0)],
    [step(104.0, 1.0), step(106.0, 3.0)],
)


def test_phases_meet_at_what_was_recorded() -> None:
    found = phases(RUN)
    assert found == Phases(command_s=2.0, workers_s=2.0, training_s=5.0, end_s=1.0)
    assert found.start_s == 4.0
    assert sum(astuple(found)) == 10.0


def test_the_last_validation_is_of_training() -> None:
    """It is told half a second after the last step."""
    validated = EpochTold(at=109.5, record={"epoch": 1}, spans={})
    found = phases(
        events(list(RUN.coordinator), [*RUN.workers[0], validated], list(RUN.workers[1]))
    )
    assert (found.training_s, found.end_s) == (5.5, 0.5)


def test_who_waited_knows_more_of_the_edges() -> None:
    found = phases(RUN, asked_at=99.0, over_at=111.5)
    assert found == Phases(command_s=3.0, workers_s=2.0, training_s=5.0, end_s=2.5)


def test_each_life_has_its_own_phases_and_the_pause_between_counts_for_none() -> None:
    killed = [Begun(at=11.0, asked_at=10.0), invoked(12.0)]
    resumed = [Begun(at=501.0, asked_at=500.0), invoked(503.0), Over(at=509.0)]
    rounds = RoundTold(
        at=508.1,
        began=505.0,
        step=4,
        steps=2,
        losses=(1.0, 1.0),
        computed=True,
        round_s=3.0,
        spans={},
    )
    traffic = TrafficTold(at=20.0, bytes_up=0, bytes_down=0, requests=0)
    found = phases(events([*killed, *resumed], [step(13.0, 2.0), traffic, rounds]))
    assert found == Phases(
        command_s=2.0 + 3.0, workers_s=1.0 + 2.0, training_s=5.0, end_s=5.0 + 1.0
    )


def test_a_life_without_a_step_was_all_start_up() -> None:
    found = phases(events([Begun(at=2.0, asked_at=1.0), invoked(4.0), Over(at=9.0)], []))
    assert found == Phases(command_s=3.0, workers_s=5.0)
    assert phases(events([], [])) == Phases()


def test_a_run_of_an_earlier_version_began_when_a_function_was_invoked() -> None:
    found = phases(events([invoked(4.0)], [step(5.0, 1.0)]))
    assert astuple(found) == pytest.approx((0.0, 1.0, 1.0, 0.05))
