"""Predicted beside measured, from a run's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dayfly.dataclass_json import read
from dayfly.planning.plan import Plan
from dayfly.runs.record_kinds import JobRunRecord
from dayfly.runs.report import comparison as page
from dayfly.runs.report.comparison import Compared, Comparison, lived_s
from dayfly.runs.report.spans import step_parts
from tests.planning.test_plan_file import PLAN, PROFILE
from tests.reading.test_dataclass_json import ONE
from tests.report.made_up import events, told

Json = dict[str, Any]


def invoked(worker: int, at: float) -> Json:
    return {"kind": "invoked", "function": f"worker-{worker}", "at": at}


def ended(worker: int, at: float, peak: float = 300.0, *, death: bool = False) -> Json:
    used = {"function": f"worker-{worker}"}
    return {"kind": "ended", "at": at, "used": used, "peak_mib": peak, "death": death}


def comparison(
    coordinator: Sequence[Json] = (), plan: Plan = PLAN, records: Sequence[Json] = (), **more: Any
) -> Comparison:
    result = {"step_s": 0.08, "cost_usd": 0.002, "epochs": 3, "steps": 9, "requests": 4}
    record: Json = {
        "run_id": "one",
        "status": "done",
        "settings": {"workers": 2},
        "planned": {"overridden": [], "changed": [], "unpredicted": None},
        "result": result,
        **more,
    }
    bill = {"by_kind": {"compute": 0.002, "store_requests": 0.0}}
    record["result"] = {"run_id": "one", "status": record["status"], **record["result"]}
    found = read(JobRunRecord, record, "the run")
    return Comparison.of(plan, found, bill, events(coordinator), told(records))


def test_errors_are_shares_of_what_was_measured() -> None:
    assert Compared("step_s", 0.1, 0.08).error == pytest.approx(0.25)
    assert Compared("step_s", 0.06, 0.08).error == pytest.approx(-0.25)
    assert Compared("step_s", None, 0.08).error is None
    assert Compared("step_s", 0.1, None).error is None
    assert Compared("store_usd", 0.1, 0.0).error is None


def test_a_run_as_planned() -> None:
    lives = [invoked(0, 10.0), invoked(1, 10.0), ended(0, 12.5), ended(1, 11.0, 310.0)]
    found = comparison(lives)
    assert found.totals == (
        Compared("step_s", 0.1, 0.08),
        Compared("startup_s", None, None),  # an earlier version planned it, and no step is told
        Compared("train_s", None, None),
        Compared("total_s", 2.0, 2.5),
        Compared("cost_usd", 0.001, 0.002),
        Compared("memory_peak_mib", 300.0, 310.0),
    )
    assert found.kinds == (Compared("compute_usd", 0.001, 0.002),)
    assert found.traffic[2] == Compared("requests", 2, 4)
    assert found.differences == ()


def test_times_count_from_the_first_invocation() -> None:
    """Functions invoked at 10 s, the first step from 11.5 to 12, the last until 13.25."""
    steps = [
        {"kind": "step", "step": n, "computed": True, "step_s": s, "spans": {}, "began": at}
        | {"at": at + s, "loss": 1.0}
        for n, (at, s) in enumerate(((11.5, 0.5), (12.0, 1.25)))
    ]
    plan = replace(PLAN, prediction=replace(ONE, startup_s=1.0, train_s=2.0, total_s=4.0))
    found = comparison([invoked(0, 10.0), ended(0, 14.0)], plan, steps)
    assert found.totals[1:4] == (
        Compared("startup_s", 1.0, 1.5),
        Compared("train_s", 2.0, 1.75),
        Compared("total_s", 4.0, 4.0),
    )


def test_each_stage_has_its_peak() -> None:
    plan = replace(PLAN, prediction=replace(ONE, memory_mib=(100.0, 200.0)))
    lives = [ended(rank, 1.0, peak) for rank, peak in enumerate((110.0, 120.0, 180.0, 190.0))]
    found = comparison(lives, plan, settings={"workers": 4, "cut": [1]})
    assert found.totals[5:] == (
        Compared("stage_0_memory_peak_mib", 100.0, 120.0),
        Compared("stage_1_memory_peak_mib", 200.0, 190.0),
    )


def test_what_was_not_in_the_plan_is_named() -> None:
    back = {"kind": "rolled back", "at": 3.0, "redone_steps": 4}
    lives = [invoked(0, 1.0), invoked(1, 1.0), ended(1, 2.0, death=True), invoked(1, 2.0)]
    planned = {"overridden": ["workers 2 in place of 1"], "changed": [], "unpredicted": None}
    found = comparison(
        [*lives, ended(0, 5.0), ended(1, 5.0)],
        generation=2,
        rollbacks=0,
        planned=planned,
        result={"epochs": 2, "steps": 6},
    )
    assert found.differences == (
        "workers 2 in place of 1",
        "1 death",
        "resumed twice",
        "ended after 2 of 3 epochs: the target was reached",
    )
    again = [back, invoked(0, 3.0), invoked(1, 3.0)]
    found = comparison([*lives, *again], generation=1, rollbacks=1, status="failed")
    assert found.differences == (
        "1 death",
        "1 rollback, 4 steps done again",
        "failed after 9 steps",
    )
    handed_over = [invoked(0, 1.0), invoked(1, 1.0), ended(1, 2.0), invoked(1, 2.0)]
    assert comparison(handed_over).differences == (
        "3 functions started, without those after deaths, of 2 planned",
    )


def test_the_run_is_the_time_in_which_functions_lived() -> None:
    assert lived_s(events([])) is None
    first = [invoked(0, 10.0), invoked(1, 10.5), ended(0, 12.0), ended(1, 13.0)]
    assert lived_s(events(first)) == pytest.approx(3.0)
    # Resumed after a day.
    assert lived_s(events([*first, invoked(0, 90_000.0), ended(0, 90_001.0)])) == pytest.approx(4.0)
    # Its coordinator was killed after the checkpoint.
    killed = [invoked(0, 10.0), {"kind": "checkpoint", "at": 15.0}, invoked(0, 90_000.0)]
    assert lived_s(events([*killed, ended(0, 90_001.0)])) == pytest.approx(6.0)


def test_each_moment_of_a_step_counts_once() -> None:
    spans = {
        "compute": [[0.0, 40.0]],
        "upload": [[30.0, 60.0]],
        "wait": [[20.0, 70.0]],
        "apply": [[75.0, 85.0]],
    }
    step = {"kind": "step", "step": 0, "computed": True, "step_s": 0.1, "spans": spans}
    found = step_parts(told([step, {**step, "computed": False, "step_s": 9.0}]))
    assert found == pytest.approx(
        {"compute": 0.040, "overhead": 0.030, "transfer": 0.020, "sync": 0.010}
    )


def test_a_step_of_local_sgd_is_a_share_of_its_round() -> None:
    steps = [
        {
            "kind": "step",
            "step": step,
            "computed": True,
            "step_s": 0.01,
            "spans": {"compute": [[0.0, 10.0]]},
        }
        for step in (0, 1)
    ]
    spans = {"wait": [[20.0, 30.0]]}
    whole = {"kind": "round", "step": 0, "losses": [None, None], "computed": True, "round_s": 0.04}
    found = step_parts(told([*steps, {**whole, "spans": spans}]))
    assert found == pytest.approx(
        {"compute": 0.010, "overhead": 0.005, "transfer": 0.0, "sync": 0.005}
    )
    assert step_parts([]) == {}


def test_the_section_says_why_there_is_no_prediction() -> None:
    plan = Plan(settings={}, job=PLAN.job, profile=PROFILE)
    planned = {"overridden": ["workers 9 in place of 2"], "changed": [], "unpredicted": "<no>"}
    section = page.section(comparison(plan=plan, planned=planned))
    assert "What ran is not predicted: &lt;no&gt;." in section
    assert "Not in the plan: workers 9 in place of 2." in section
    assert "<table>" not in section
    assert page.section(None) == ""


def test_the_section_has_every_figure_with_its_error() -> None:
    section = page.section(comparison([invoked(0, 10.0), invoked(1, 10.0), ended(0, 12.5)]))
    for words in ("+25.0%", "-20.0%", "memory peak (MiB)", "compute (USD)", "Through the store"):
        assert words in section
