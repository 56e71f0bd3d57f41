"""The page on pipelines, followed by the letter in a directory that has the examples."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.examples.launching import typed
from tests.examples.page import Command, File, missing, steps_of

ROOT = Path(__file__).parents[2]
STEPS = steps_of((ROOT / "docs" / "pipelines.md").read_text())


@dataclass(frozen=True)
class Followed:
    """The page, after it was followed to its end in `directory`: codes and outputs by command."""

    directory: Path
    typed: list[tuple[Command, int, str]]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    directory = tmp_path_factory.mktemp("page")
    (directory / "examples").mkdir()
    for name in ("pipelined.py", "charlm.py"):
        shutil.copy(ROOT / "examples" / name, directory / "examples")
    found = []
    for step in STEPS:
        if isinstance(step, File):
            (directory / step.name).write_text(step.text)
        else:
            found.append((step, *typed(step.line, directory)))
    return Followed(directory, found)


def fails(command: Command) -> bool:
    """Whether the page shows how the command fails."""
    return any(line.startswith("dayfly: ") for line in command.said)


@pytest.mark.slow  # test_pages.py reads the page's files and commands in the suite
@pytest.mark.timeout(900)
def test_what_the_page_says_comes_out(followed: Followed) -> None:
    for command, code, output in followed.typed:
        assert code == int(fails(command)), f"{command.line}\n{output}"
        lost = missing(command.said, output)
        assert not lost, f"{command.line}\ndid not say {lost}, but\n{output}"


@pytest.mark.slow  # tests/runs/test_cut_agreement.py and test_pipeline_channels.py, of smaller jobs
@pytest.mark.timeout(900)
def test_a_cut_leaves_the_bits_that_no_cut_leaves(followed: Followed) -> None:
    """Over files, and by a ring over sockets."""
    whole, cut, ring = (
        (followed.directory / "runs" / name / "weights.safetensors").read_bytes()
        for name in ("whole", "cut", "hydrozoa")
    )
    assert cut == whole
    assert ring == whole


@pytest.mark.slow  # tests/report/test_pipeline_page.py and test_stages.py, of made-up runs
@pytest.mark.timeout(900)
def test_the_report_speaks_of_the_pipeline(followed: Followed) -> None:
    (output,) = (out for command, _, out in followed.typed if "dayfly report" in command.line)
    said = " ".join(output.split())
    assert "pipeline: " in said
    assert "33% would be ideal for 2 equal stages and 2 micro-batches" in said


def test_the_page_has_its_steps() -> None:
    assert [step.name for step in STEPS if isinstance(step, File)] == ["deep.py", "wide.py"]
    commands = [step for step in STEPS if isinstance(step, Command)]
    assert sum(map(fails, commands)) == 1
    assert sum("--cut" in command.line for command in commands) == 5
