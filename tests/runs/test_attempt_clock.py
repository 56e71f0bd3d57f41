"""Records of machines whose clocks are wrong lie between their invocation and their receipt."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.runs.attempt_clock import AttemptClock

#: The attempt starts two seconds after it was invoked; its steps take one.
INVOKED_AT, HOUR_S = 1000.0, 3600.0


def step(number: int, off_s: float = 0.0) -> dict[str, Any]:
    began = INVOKED_AT + 2 + number + off_s
    return {"kind": "step", "step": number, "began": began, "at": began + 1, "spans": {}}


def begins(records: list[dict[str, Any]]) -> list[float]:
    return [record["began"] - INVOKED_AT for record in records]


def test_a_clock_that_can_be_right_is_believed() -> None:
    clock = AttemptClock(INVOKED_AT)
    records = [step(0), step(1)]
    assert clock.shifted(records, INVOKED_AT + 4.5) == records
    assert clock.shifted([{"kind": "start"}], INVOKED_AT + 5) == [{"kind": "start"}]


@pytest.mark.parametrize(
    ("off_s", "first_s"),
    [
        (HOUR_S, 2.5),  # as late as the receipt, half a second after it was told, allows
        (-HOUR_S, 0.0),  # as early as the invocation
        (1.0, 2.5),
        (-3.0, 0.0),
    ],
)
def test_one_that_cannot_be_is_shifted_by_what_is_needed(off_s: float, first_s: float) -> None:
    clock = AttemptClock(INVOKED_AT)
    found = clock.shifted([step(0, off_s), step(1, off_s)], INVOKED_AT + 4.5)
    assert begins(found) == [first_s, first_s + 1]
    assert [record["at"] - record["began"] for record in found] == [1.0, 1.0]
    # Later reports, which tell no more of it, by the same.
    later = clock.shifted([step(7, off_s)], INVOKED_AT + 12)
    assert begins(later) == [first_s + 7]


def test_a_report_that_proves_more_shifts_more() -> None:
    clock = AttemptClock(INVOKED_AT)
    slow = clock.shifted([step(0, HOUR_S)], INVOKED_AT + 23)
    assert begins(slow) == [22], "received twenty seconds after it was told"
    assert begins(clock.shifted([step(22, HOUR_S)], INVOKED_AT + 25.25)) == [24.25]


def test_a_clock_that_was_set_within_a_report_is_bounded() -> None:
    found = AttemptClock(INVOKED_AT).shifted([step(0, -HOUR_S), step(1)], INVOKED_AT + 4.5)
    for record in found:
        assert INVOKED_AT <= record["began"] <= record["at"] <= INVOKED_AT + 4.5
