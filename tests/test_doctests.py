"""The examples of public docstrings, run."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.registry import Registry
from tests.planning.simulation.made import profile

NAMES = sorted(name for name in dayfly.__all__ if getattr(dayfly, name).__doc__)
THINGS: dict[str, Any] = {name: getattr(dayfly, name) for name in NAMES}
THINGS["Registry.check"] = Registry.check


@pytest.fixture(scope="module")
def known() -> dict[str, object]:
    """The names that examples use: a profile, and a plan."""
    made = profile(batch_size=32)
    return {"dayfly": dayfly, "profile": made, "plan": dayfly.predict(made, workers=2)}


@pytest.mark.parametrize("name", THINGS)
def test_examples_say_what_comes_out(
    name: str, known: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner()
    found = doctest.DocTestFinder(recurse=False).find(THINGS[name], name, globs=dict(known))
    for test in found:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_the_functions_have_examples() -> None:
    having = {name for name, thing in THINGS.items() if ">>> " in thing.__doc__}
    assert having >= {"Job", "predict", "simulate", "checkpoint_due", "remaining_s"}
