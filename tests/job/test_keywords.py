"""Keywords of the Python functions: shown by name, and refused with the one that may be meant."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import dayfly
from dayfly.callbacks.loggers import LOGGERS
from dayfly.planning.plan import Plan
from dayfly.planning.simulation.scenario import Scenario
from dayfly.runs.api import checked_settings
from dayfly.runs.changes import Changes
from dayfly.runs.choosing.query import PlanQuery
from dayfly.runs.keywords import (
    ChangeKeywords,
    ChoiceKeywords,
    ProfileKeywords,
    ScenarioKeywords,
    SettingKeywords,
)
from dayfly.runs.settings import Settings
from tests.job.asked import given
from tests.planning import by_hand

PROFILE = by_hand.profile([by_hand.layer("0 Linear", 100)], batch_size=20)


def subject(function: str, directory: Path) -> Any:
    """What the function takes, before its keywords."""
    match function:
        case "resume":
            return directory
        case "predict":
            return PROFILE
        case "simulate":
            return Plan(settings={}, job={"batch_size": 20, "epochs": 1}, profile=PROFILE)
    return dayfly.Job(**given())


@pytest.mark.parametrize(
    ("keywords", "of", "without"),
    [
        (SettingKeywords, Settings, set()),
        (ChoiceKeywords, PlanQuery, {"goal", "time_limit_s", "reaching", "apart"}),
        (ScenarioKeywords, Scenario, set()),
        (ChangeKeywords, Changes, set()),
    ],
)
def test_the_keywords_are_the_fields(keywords: type, of: Any, without: set[str]) -> None:
    hints = get_type_hints(of)
    known = {one.name: hints[one.name] for one in fields(of) if one.name not in without}
    assert get_type_hints(keywords) == known


@pytest.mark.parametrize(
    ("function", "keywords"),
    [
        (dayfly.plan, ChoiceKeywords),
        (dayfly.predict, SettingKeywords),
        (dayfly.profile, ProfileKeywords),
        (dayfly.simulate, ScenarioKeywords),
        (dayfly.Run.scale, ChangeKeywords),
    ],
)
def test_signatures_show_every_keyword(function: Callable[..., Any], keywords: type) -> None:
    shown = inspect.signature(function).parameters
    assert get_type_hints(keywords).keys() <= shown.keys()
    assert all(one.kind is not one.VAR_KEYWORD for one in shown.values())


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
        ("plan", "deadline", "deadline_s"),
        ("train", "epoch", "epochs"),
        ("predict", "worker", "workers"),
        ("predict", "batchsize", "batch_size"),
        ("simulate", "deaths", "deaths_per_hour"),
        ("simulate", "lifetime", "lifetime_s"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_one_that_is_meant(
    function: str, name: str, meant: str, tmp_path: Path
) -> None:
    with pytest.raises(dayfly.RequestError) as refused:
        getattr(dayfly, function)(subject(function, tmp_path), **{name: 1})
    assert str(refused.value) == f"there is no setting {name}: do you mean {meant}?"


@pytest.mark.parametrize(
    ("called", "name", "meant"),
    [
        (dayfly.Job, "modle", "model"),
        (dayfly.Job, "batch", "batch_size"),
        (dayfly.parallel, "optimiser", "optimizer"),
        (dayfly.callbacks.EarlyStopping, "monitr", "monitor"),
        (dayfly.callbacks.LearningRateMonitor, "optinal", "optional"),
        *((one, "plac", "place") for one in LOGGERS.values()),
        *(
            (source, "pathh", "path")
            for source in map(dayfly.data.READERS.get, dayfly.data.READERS)
        ),
    ],
)
def test_what_takes_no_settings_names_the_keyword_that_is_meant(
    called: Callable[..., Any], name: str, meant: str
) -> None:
    with pytest.raises(dayfly.RequestError) as refused:
        called(**{name: 1})
    assert str(refused.value) == f"{called.__name__} has no {name}: do you mean {meant}?"
    assert meant in inspect.signature(called).parameters


@pytest.mark.parametrize(
    ("function", "name", "value", "said"),
    [
        ("train", "workers", "4", 'workers is "4": give a whole number'),
        ("train", "workers", True, "workers is true: give a whole number"),
        ("train", "memory_mib", "x", 'memory_mib is "x": give a whole number'),
        ("train", "cpu_cores", [1], "cpu_cores is a list: give a number"),
        ("train", "k", 2.5, 'k is 2.5: give a whole number, or "epoch"'),
        ("train", "cut", (1, "2"), 'cut: [1] is "2": give a whole number'),
        ("train", "channel", 7, "channel is 7: give text"),
        ("train", "allow_other_cpu", 1, "allow_other_cpu is 1: give true or false"),
        ("resume", "lifetime_s", "1m", 'lifetime_s is "1m": give a number'),
        ("profile", "memory_mib", "512", 'memory_mib is "512": give a whole number'),
        ("plan", "memory_mib", 512, "memory_mib is 512: give a list"),
        ("predict", "epochs", "2", 'epochs is "2": give a whole number'),
        ("simulate", "workers", "2", 'workers is "2": give a whole number'),
        ("simulate", "seed", "2", 'seed is "2": give a whole number'),
        ("simulate", "batch_size", 2.5, "batch_size is 2.5: give a whole number"),
    ],
)
def test_a_value_of_another_kind_is_refused(
    function: str, name: str, value: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(dayfly.RequestError) as refused:
        getattr(dayfly, function)(subject(function, tmp_path), **{name: value})
    assert str(refused.value) == said


def test_values_that_are_of_a_kind_in_python_only(tmp_path: Path) -> None:
    made = checked_settings(
        catalogue=tmp_path, cut=[1], cpu_cores=np.float64(0.5), checkpoint_every_s=7, workers=None
    )
    assert (made.catalogue, made.cut, made.cpu_cores) == (str(tmp_path), (1,), 0.5)
    with pytest.raises(dayfly.RequestError, match="give a number above 0"):
        checked_settings(cpu_cores=float("nan"))


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
