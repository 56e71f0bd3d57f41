"""Keywords of the Python functions: shown by name, and refused with the one that may be meant."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import dayfly
from dayfly.runs.keywords import SettingKeywords
from dayfly.runs.settings import Settings
from tests.job.asked import given


def test_the_keywords_are_the_settings() -> None:
    hints = get_type_hints(Settings)
    assert get_type_hints(SettingKeywords) == {
        one.name: hints[one.name] for one in fields(Settings)
    }


@pytest.mark.parametrize("function", [dayfly.train, dayfly.resume])
def test_signatures_show_them(function: Callable[..., Any]) -> None:
    shown = inspect.signature(function).parameters
    assert {one.name for one in fields(Settings)} < set(shown)
    assert shown["memory_mib"].annotation == int | None
    assert all(one.kind is not one.VAR_KEYWORD for one in shown.values())


@pytest.mark.parametrize(
    ("function", "name", "meant"),
    [
        ("train", "memory", "memory_mib"),
        ("train", "cpu", "cpu_cores"),
        ("train", "worker", "workers"),
        ("train", "downlink_mbps", "downlink_mb_per_s"),
        ("resume", "lifetime", "lifetime_s"),
        ("profile", "uplink", "uplink_mb_per_s"),
        ("plan", "memory", "memory_mib"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_one_that_is_meant(
    function: str, name: str, meant: str, tmp_path: Path
) -> None:
    subject = tmp_path if function == "resume" else dayfly.Job(**given())
    with pytest.raises(dayfly.RequestError) as refused:
        getattr(dayfly, function)(subject, **{name: 1})
    assert str(refused.value) == f"there is no setting {name}: do you mean {meant}?"


def test_what_a_profile_does_not_depend_on_is_refused() -> None:
    with pytest.raises(dayfly.RequestError, match="cut changes nothing of a profile, which is of"):
        dayfly.profile(dayfly.Job(**given()), cut=(1,))


def test_a_name_like_no_other_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(dayfly.RequestError, match="no setting xyz: give one of workers, platform"):
        dayfly.train(dayfly.Job(**given()), xyz=1)  # type: ignore[call-arg]


def test_what_belongs_to_the_job_cannot_change_on_resume(tmp_path: Path) -> None:
    for name in ("batch_size", "seed", "plan"):
        with pytest.raises(dayfly.RequestError, match=f"run's directory: leave out {name}"):
            dayfly.resume(tmp_path, **{name: 1})  # type: ignore[arg-type]


def test_the_package_lists_its_public_names_only() -> None:
    program = "import dayfly; print([name for name in dir(dayfly) if not name.startswith('_')])"
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert listed.stdout.strip() == str(sorted(dayfly.__all__))
