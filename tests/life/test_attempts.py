"""What follows from what a coordinator knows of its workers."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.life.attempts import WorkerState, may_trim, status_after
from dayfly.life.platforms.base import Outcome
from tests.life.ends import end

RETURNED, KILLED = Outcome.RETURNED, Outcome.KILLED


def returned(status: str) -> Any:
    return end(0, RETURNED, result={"status": status, "step": 4, "kept": None})


@pytest.mark.parametrize(
    ("ended", "over", "status"),
    [
        (returned("done"), None, "done"),
        (returned("stopped"), None, "stopped"),
        (returned("done"), "done", "done"),
        (returned("handed over"), None, None),
        (returned("handed over"), "stopped", "stopped"),
        (end(0, KILLED), None, None),
        (end(0, KILLED), "done", "done"),
    ],
)
def test_who_ended_has_a_status_or_starts_again(ended: Any, over: Any, status: Any) -> None:
    assert status_after(ended, over) == status


@pytest.mark.parametrize(
    ("step", "trimmed", "worker", "may"),
    [
        (8, 4, {"started_from": 8}, True),
        (8, 4, {"started_from": 4, "caught_up": True}, True),
        (8, 4, {"started_from": 4, "status": "done"}, True),
        (8, 4, {"started_from": 4}, False),
        (8, 8, {"started_from": 8}, False),
        (8, 8, {"started_from": 4, "caught_up": True}, False),
        (8, 12, {"started_from": 12}, False),
    ],
)
def test_the_log_goes_once_nobody_reads_it(
    step: int, trimmed: int, worker: dict[str, Any], may: bool
) -> None:
    level = WorkerState(0, started_from=step, caught_up=True)
    assert may_trim(step, trimmed, [level, WorkerState(1, **worker)]) is may


def test_a_new_attempt_is_behind_until_it_says_otherwise() -> None:
    worker = WorkerState(2, attempt=3, started_from=4, caught_up=True, start_at=7.0)
    worker.starts(8)
    assert worker == WorkerState(2, attempt=4, started_from=8)
