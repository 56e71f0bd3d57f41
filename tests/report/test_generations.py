"""Why the generations of a run began, and what it cost to come to them."""

from __future__ import annotations

from typing import Any

from dayfly.runs.report.tables import generations as table
from dayfly.runs.report.timeline import Timeline
from tests.report.made_up import ended, invoked, step, timeline


def function(name: str, event: dict[str, Any]) -> dict[str, Any]:
    """The event of a function with this name."""
    if event["kind"] == "invoked":
        return {**event, "function": name}
    return {**event, "used": {**event["used"], "function": name}}


def generation(at: float, number: int, first_step: int, workers: int = 1, **more: Any) -> Any:
    event = {"number": number, "first_step": first_step, "workers": workers, **more}
    return {"at": at, "kind": "generation", **event}


def of(number: int, told: dict[str, Any]) -> dict[str, Any]:
    return {**told, "generation": number}


def seen() -> Timeline:
    """One worker becomes two; these go back, hand over to successors, and are resumed."""
    back = {"from_step": 4, "to_step": 3, "redone_steps": 1, "cause": "worker 0 died"}
    coordinator = [
        {"at": 100.0, "kind": "begun", "asked_at": 99.0},
        generation(100.0, 0, 0),
        invoked(100.0, 0),
        function("successor-0", invoked(102.0, 0, 1)),
        function("successor-1", invoked(102.5, 1)),
        generation(104.0, 1, 2, 2, request=0, changes="--workers 2 in place of 1"),
        ended(104.5, 0, init_s=0.0, run_s=4.5, status="stopped"),
        {"at": 106.0, "kind": "rolled back", **back},
        generation(106.0, 2, 3, 2),
        function("successor-0", invoked(106.0, 0, 2)),
        invoked(108.0, 0, 3),
        generation(109.0, 3, 5, 2),
        {"at": 120.0, "kind": "begun", "asked_at": 119.0},
        generation(120.0, 4, 6, 2),
        invoked(120.0, 0),
    ]
    workers = {
        0: [
            of(0, step(101.0, 0, 1.0)),
            of(0, step(102.0, 1, 1.5)),
            of(1, step(104.25, 2, 0.25)),
            of(1, step(104.5, 3, 0.5)),
            of(2, step(106.5, 3, 0.5, computed=False)),
            of(2, step(107.0, 4, 0.5)),
            of(3, step(110.0, 5, 0.5)),
            of(4, step(121.0, 6, 0.5)),
        ],
        1: [of(1, step(104.0, 2, 0.5)), of(1, step(104.5, 3, 1.0))],
    }
    return timeline(coordinator, workers, running=True)


def test_each_generation_has_its_cause_and_what_it_cost() -> None:
    times = seen()
    found = [(one.first_step, one.cause, one.stall_s, one.both_s) for one in times.generations]
    assert found == [
        (0, "the run began", None, 0.0),
        (2, "asked for: --workers 2 in place of 1", 0.5, 2.0 + 1.5 + 0.5),
        (3, "all started again: worker 0 died", 1.5, 0.0),
        (5, "lifetimes were about to end", 2.5, 1.0),
        (6, "the run was resumed", None, 0.0),
    ]
    assert [one.first_step for one in times.changes] == [2]
    page = table(times.generations)
    assert "asked for: --workers 2 in place of 1" in page
    assert "0.50" in page


def test_what_a_callback_asked_for_is_said() -> None:
    changes = "--workers 3 in place of 2"
    told = [generation(1.0, 0, 0, 2), generation(2.0, 1, 9, 3, changes=changes)]
    (_, second) = timeline(told, {}, running=True).generations
    assert second.cause == f"run.scale of a callback: {changes}"
