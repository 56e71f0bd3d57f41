"""Runs that stop before they cost more, or take longer, than they may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.life.generation import STOP_GRACE_S
from dayfly.wire.keys import COORDINATOR
from tests.runs import small
from tests.runs.coordinator import killed

pytestmark = pytest.mark.long


def train(data: Path, directory: Path, step_s: float = 0.0, **more: Any) -> dayfly.Run:
    transform = small.Slowly(step_s, step_s) if step_s else small.noisy
    return dayfly.train(
        small.job(data, transform=transform),
        run_dir=directory,
        **{"workers": 2, **small.SETTINGS, **more},
    )


def test_a_run_ends_within_its_budget_and_goes_on_with_more(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    """Two functions of 5.8e-5 dollars a second, for 17 s; steps last, so it is not done."""
    run = train(data, tmp_path / "run", step_s=0.7, max_cost_usd=0.001)
    assert (run.result.status, run.stop_reason) == ("stopped", "max-cost")
    assert 0.0 < run.result.cost_usd <= 0.001
    assert 0 < run.result.steps < small.STEPS
    assert (run.directory / "weights.safetensors").is_file()
    assert run.result.restarts == 0
    spent_usd = run.result.cost_usd
    with pytest.raises(RequestError, match=r"--max-cost .* it has spent"):
        dayfly.resume(run.directory, max_cost_usd=spent_usd, progress=False)
    resumed = dayfly.resume(run.directory, max_cost_usd=1.0, progress=False)
    assert resumed.result.status == "done"
    assert small.bits(resumed) == small.bits(undisturbed(2))


def test_a_run_ends_in_time(data: Path, tmp_path: Path) -> None:
    run = train(data, tmp_path / "run", step_s=0.3, max_time_s=3.0)
    assert (run.result.status, run.stop_reason) == ("stopped", "max-time")
    assert run.result.total_s >= 3.0
    assert run.result.steps < small.STEPS
    with pytest.raises(RequestError, match="--max-time 3 s: the run has taken"):
        dayfly.resume(run.directory, progress=False)


def test_caps_that_let_nothing_begin_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"--max-cost 1e-07: 2 functions cost .* give at least"):
        train(data, tmp_path / "run", max_cost_usd=1e-7)
    with pytest.raises(RequestError, match="--max-time 0 s: give a number above 0"):
        train(data, tmp_path / "run", max_time_s=0.0)
    assert not (tmp_path / "run").exists()


def test_caps_that_are_not_reached_change_nothing(
    data: Path, tmp_path: Path, undisturbed: Callable[[int], dayfly.Run]
) -> None:
    run = train(data, tmp_path / "run", max_cost_usd=1.0, max_time_s=600.0)
    assert (run.result.status, run.stop_reason) == ("done", None)
    assert small.bits(run) == small.bits(undisturbed(2))


def test_a_budget_that_a_killed_coordinator_has_used_up_still_leaves_weights(
    data: Path, tmp_path: Path
) -> None:
    """Nothing is left to start with, so the run ends with what its checkpoint has."""
    directory = tmp_path / "run"
    killed(
        run_dir=directory,
        data=data,
        workers=2,
        max_cost_usd=1.0,
        checkpoint_every_s=0.01,
        faults=[Fault(COORDINATOR, 6, "step")],
    )
    record = small.change_record(directory)
    small.change_record(directory, settings={**record["settings"], "max_cost_usd": 1e-7})
    run = dayfly.resume(directory, progress=False)
    assert (run.result.status, run.stop_reason) == ("stopped", "max-cost")
    assert run.result.steps > 0
    assert (directory / "weights.safetensors").is_file()
    at = {one["kind"]: one["at"] for one in small.events(directory, "coordinator")}
    assert at["over"] - at["stopping"] < STOP_GRACE_S, "there is nobody to wait for"
    with pytest.raises(RequestError, match=r"--max-cost .* it has spent"):
        dayfly.resume(directory, progress=False)
