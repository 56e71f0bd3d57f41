"""`--plan auto`: a profile is taken as long as it is true, and the choice is explained."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dayfly.errors import RequestError
from dayfly.planning.conditions import Conditions
from dayfly.runs import auto
from dayfly.runs.auto import alternatives, auto_plan
from dayfly.runs.choosing.query import Goal
from dayfly.runs.profiling import measuring
from dayfly.runs.shipping import load_job_file
from tests.planning.by_hand import layer, profile, size

ROOT = Path(__file__).parents[2]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The sizes that were measured, each time. What comes out was made by hand."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(auto, "pace_s", lambda: 0.01)  # whatever else runs here
    asked: list[tuple[int, ...]] = []

    def measure(job: Any, settings: Any, sizes: tuple[int, ...], **more: Any) -> Any:
        asked.append(sizes)
        made = profile(
            [layer("a", 1000)],
            *(
                replace(
                    size(1, one, cpu_cores=one / 1769),
                    conditions=Conditions(pace_s=(auto.pace_s(),)),
                )
                for one in sizes
            ),
        )
        return replace(made, imitate="aws-lambda", channel="file:///")

    monkeypatch.setattr(measuring, "profile", measure)
    return asked


def choose(directory: Path, notes: list[str], goal: Goal | None = None, **given: Any) -> Any:
    job = load_job_file(directory / "digits.py")
    return auto_plan(
        job,
        "digits",
        directory,
        {"imitate": "aws-lambda", **given},
        goal or Goal(),
        own=None,
        note=notes.append,
    )


@pytest.fixture
def job(tmp_path: Path) -> Path:
    directory = tmp_path / "job"
    directory.mkdir()
    shutil.copy(ROOT / "examples" / "digits.py", directory)
    return directory


def test_a_job_is_measured_once_until_it_changes(
    job: Path, measured: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    first = choose(job, notes)
    assert measured == [(512, 1024, 2048)]
    again = choose(job, notes)
    assert len(measured) == 1
    assert again.plan == first.plan
    assert str(first.profile) in notes[-1]
    (job / "more.py").write_text("MORE = 1\n")
    choose(job, notes)
    assert len(measured) == 2, "its code is another"
    choose(job, notes, memory_mib=1024)
    assert measured[2:] == [(1024,)]
    monkeypatch.setattr(auto, "pace_s", lambda: 0.02)
    choose(job, notes, memory_mib=1024)
    assert len(measured) == 4
    assert "this machine takes 2 times" in notes[-1]


def test_a_damaged_profile_is_made_anew(job: Path, measured: list[tuple[int, ...]]) -> None:
    notes: list[str] = []
    found = choose(job, notes)
    found.profile.write_text("{")
    choose(job, notes)
    assert len(measured) == 2
    assert "cannot be read" in notes[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a directory away from itself")
def test_a_cache_that_cannot_be_written_is_only_said(
    job: Path, measured: list[tuple[int, ...]], tmp_path: Path
) -> None:
    notes: list[str] = []
    (tmp_path / "cache").write_text("no directory")
    assert choose(job, notes).plan.job["epochs"] == 15
    assert any("cannot be kept" in note for note in notes)


def test_goals(job: Path, measured: list[tuple[int, ...]]) -> None:
    notes: list[str] = []
    fastest = choose(job, notes, Goal(objective="time")).choice
    cheapest = choose(job, notes, Goal(objective="cost")).choice
    assert fastest.chosen.seconds < cheapest.chosen.seconds
    assert fastest.chosen.usd > cheapest.chosen.usd
    assert len(fastest.front.points) > 2
    one, other = alternatives(fastest)
    assert "times the dollars, and takes" in one
    assert one != other
    within = choose(job, notes, Goal(deadline_s=1.01 * fastest.chosen.seconds)).choice
    assert within.chosen.seconds <= 1.01 * fastest.chosen.seconds
    assert any("misses the deadline" in line for line in alternatives(within))
    with pytest.raises(RequestError, match="no plan"):
        choose(job, notes, Goal(deadline_s=1e-6))


def test_at_most_so_many_workers(job: Path, measured: list[tuple[int, ...]]) -> None:
    found = choose(job, [], Goal(objective="time"), workers=2).choice
    assert max(point.plan.candidate.settings.workers for point in found.front.points) <= 2


def test_an_objective_chooses_by_itself() -> None:
    with pytest.raises(RequestError, match="give time or cost"):
        Goal(objective="fast")
    for more in ({"deadline_s": 1.0}, {"budget_usd": 1.0}, {"weights": (1.0, 1.0)}):
        with pytest.raises(RequestError, match="--objective chooses by itself"):
            Goal(objective="time", **more)
