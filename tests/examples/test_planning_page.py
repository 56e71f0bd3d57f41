"""The page on planning, followed by the letter."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from dayfly.planning.plan import Plan
from tests.examples.launching import typed
from tests.examples.page import Command, File, missing, steps_of

ROOT = Path(__file__).parents[2]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="cpu cgroups need root here")
STEPS = steps_of((ROOT / "docs" / "planning.md").read_text())


@dataclass(frozen=True)
class Followed:
    """The page, after it was followed to its end in `directory`: codes and outputs by command."""

    directory: Path
    typed: list[tuple[Command, int, str]]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    directory = tmp_path_factory.mktemp("page")
    found = []
    for step in STEPS:
        if isinstance(step, File):
            (directory / step.name).write_text(step.text)
        else:
            found.append((step, *typed(step.line, directory)))
    return Followed(directory, found)


@pytest.mark.slow  # test_pages.py reads the page's files and commands in the suite
@root_only
@pytest.mark.timeout(900)
def test_what_the_page_says_comes_out(followed: Followed) -> None:
    for command, code, output in followed.typed:
        refused = any(line.startswith("dayfly: ") for line in command.said)
        assert code == (2 if refused else 0), f"{command.line}\n{output}"
        lost = missing(command.said, output)
        assert not lost, f"{command.line}\ndid not say {lost}, but\n{output}"


@pytest.mark.slow  # tests/cli/test_planning.py: a run by a plan ends with what was predicted
@root_only
@pytest.mark.timeout(900)
def test_what_ran_by_the_plan_is_compared(followed: Followed) -> None:
    outputs = {command.line: output for command, _, output in followed.typed}
    (planned,) = (text for line, text in outputs.items() if line.endswith("--run-dir runs/planned"))
    table = planned.partition("since the first invocation")[2]
    for name in (
        "step (s)",
        "start-up time (s)",
        "total time (s)",
        "cost (USD)",
        "memory peak (MiB)",
    ):
        assert name in table
    plan = Plan.parse((followed.directory / "plan.json").read_text())
    record = json.loads((followed.directory / "runs" / "planned" / "run.json").read_text())
    assert plan.prediction is not None
    assert record["planned"] == {"overridden": [], "changed": [], "unpredicted": None}
    assert record["result"]["predicted_step_s"] == plan.prediction.step_s
    page = (followed.directory / "runs" / "planned" / "report.html").read_text()
    assert "Predicted and measured" in page


def test_the_page_has_its_steps() -> None:
    assert [step.name for step in STEPS if isinstance(step, File)] == ["numerals.py"]
    lines = [step.line for step in STEPS if isinstance(step, Command)]
    for word, count in (
        ("profile ", 1),
        ("predict ", 3),
        ("plan ", 1),
        ("simulate ", 1),
        ("train ", 3),
    ):
        assert sum(line.startswith(f"dayfly {word}") for line in lines) == count
