"""Events become bands: attempts, how they ended, what was between, and pauses left out."""

from __future__ import annotations

import pytest

from dayfly.runs.report.spans import Step, TimeSpan
from dayfly.runs.report.timeline import Attempt, Band, Pause, Timeline
from dayfly.specs.events import RolledBack
from tests.report.made_up import ended, invoked, step, timeline, traffic

#: Halves and eighths of seconds are exact.
COMPUTE = {"compute": [[0.0, 375.0]], "upload": [[375.0, 500.0]]}


def test_a_worker_that_dies_and_one_that_hands_over() -> None:
    coordinator = [
        invoked(100.0, 0),
        invoked(100.0, 1),
        ended(103.0, 0, init_s=0.5, run_s=2.5, error="ValueError: no"),
        invoked(103.25, 0, 1),
        ended(104.0, 1, init_s=1.0, run_s=3.0, status="handed over"),
        invoked(104.0, 1, 1),
        {"at": 105.0, "kind": "checkpoint", "step": 2},
        {
            "at": 105.25,
            "kind": "rolled back",
            "from_step": 3,
            "to_step": 2,
            "redone_steps": 1,
            "cause": "worker 1 died",
        },
        {"at": 105.5, "kind": "stopping"},
        ended(106.0, 0, 1, init_s=0.25, run_s=2.5, status="stopped"),
        ended(106.0, 1, 1, init_s=0.5, run_s=1.5, status="done"),
    ]
    workers = {
        0: [
            traffic(100.0, 0, 0, 0),  # the coordinator's time: no first sign of life
            step(101.0, 0, 0.5, COMPUTE),
            step(104.0, 0, 0.25, {"download": [[0.0, 250.0]]}, attempt=1, computed=False),
            step(104.5, 1, 0.5, COMPUTE, attempt=1),
        ],
        1: [{"at": 101.5, "kind": "caught up", "step": 0, "generation": 0, "attempt": 0}],
    }
    assert timeline(coordinator, workers, running=False) == Timeline(
        origin_s=100.0,
        as_of_s=106.0,
        length_s=6.0,
        bands=(
            Band(
                0,
                (
                    Attempt(
                        life=0,
                        number=0,
                        start_s=0.0,
                        ready_s=0.5,
                        end_s=3.0,
                        end="death",
                        why="ValueError: no",
                    ),
                    Attempt(life=0, number=1, start_s=3.25, ready_s=3.5, end_s=6.0, end="stopped"),
                ),
                (Step(0, 1.0, 1.5, True), Step(0, 4.0, 4.25, False), Step(1, 4.5, 5.0, True)),
                {
                    "catch up": (TimeSpan("catch up", 4.0, 4.25),),
                    "cold start": (
                        TimeSpan("cold start", 0.0, 0.5),
                        TimeSpan("cold start", 3.25, 3.5),
                    ),
                    "compute": (TimeSpan("compute", 1.0, 1.375), TimeSpan("compute", 4.5, 4.875)),
                    "download": (TimeSpan("download", 4.0, 4.25),),
                    "load": (TimeSpan("load", 0.5, 1.0), TimeSpan("load", 3.5, 4.0)),
                    "upload": (TimeSpan("upload", 1.375, 1.5), TimeSpan("upload", 4.875, 5.0)),
                },
            ),
            Band(
                1,
                (
                    Attempt(life=0, number=0, start_s=0.0, ready_s=1.0, end_s=4.0, end="hand-over"),
                    Attempt(life=0, number=1, start_s=4.0, ready_s=4.5, end_s=6.0, end="done"),
                ),
                (),
                {
                    "cold start": (
                        TimeSpan("cold start", 0.0, 1.0),
                        TimeSpan("cold start", 4.0, 4.5),
                    ),
                    "load": (TimeSpan("load", 1.0, 1.5), TimeSpan("load", 4.5, 6.0)),
                },
            ),
        ),
        checkpoints=((5.0, 2),),
        stops=(5.5,),
        rollbacks=(
            RolledBack(at=5.25, from_step=3, to_step=2, redone_steps=1, cause="worker 1 died"),
        ),
    )


def test_what_a_killed_coordinator_left_and_the_pause_until_the_next_life() -> None:
    day_s = 86_400.0
    coordinator = [
        invoked(100.0, 0),
        invoked(100.0, 1),
        invoked(100.0 + day_s, 0),
        invoked(100.0 + day_s, 1),
        ended(102.0 + day_s, 0, init_s=0.5, run_s=1.5, status="done"),
    ]
    workers = {
        0: [step(101.0, 0, 0.5, COMPUTE), step(101.0 + day_s, 1, 0.5, COMPUTE)],
        1: [],
    }
    found = timeline(coordinator, workers, running=True)
    # The first life was last heard of at 101.5; the pause is drawn one second wide.
    assert found.pauses == (Pause(2.0, pytest.approx(day_s - 2.5)),)
    first, second = found.bands
    assert [(one.life, one.number, one.end) for one in first.attempts] == [
        (0, 0, "lost"),
        (1, 0, "done"),
    ]
    assert [one.end for one in second.attempts] == ["lost", "running"]
    assert [one.start_s for one in first.attempts] == [0.0, pytest.approx(2.5)]
    assert [one.end_s for one in first.attempts] == [pytest.approx(1.5), pytest.approx(4.5)]
    assert [one.start_s for one in first.steps] == [1.0, pytest.approx(3.5)]
    assert second.attempts[0].end_s == 0.0, "nothing was ever heard of it"
    assert found.length_s == pytest.approx(4.5)
    # Whether it began is not known before something is heard of it.
    assert found.bands[0].attempts[0].ready_s is None
    assert found.bands[0].spans["cold start"][0] == TimeSpan("cold start", 0.0, 1.0)


def test_nothing_has_happened_yet() -> None:
    assert timeline([], {}, running=True) == Timeline(origin_s=0.0, as_of_s=0.0, length_s=0.0)
