"""What pages have a reader write and type: jobs that train, flags that there are, figures printed.

The whole pages are followed to their ends in `make slow`.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from dayfly.cli.app import app
from dayfly.runs.prepare import prepare
from dayfly.runs.settings import Settings
from dayfly.runs.shipping import load_job_file
from tests.examples.launching import typed
from tests.examples.page import Command, File, missing, steps_of

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("pipelines", "planning", "quickstart", "scripts")
#: Short ones, which are followed here, in the repository's own order of files.
SHORT = (
    *("from-hugging-face", "from-lightning", "from-ray", "from-torchrun"),
    *("loop", "own-data", "protocols", "unequal"),
)


def steps(page: str) -> list[File | Command]:
    return steps_of((DOCS / f"{page}.md").read_text())


def parsed(name: str, words: list[str]) -> dict[str, Any]:
    """What a command would be given."""
    commands: dict[str, Any] = typer.main.get_group(app).commands  # type: ignore[assignment]
    given: dict[str, Any] = commands[name].make_context(name, words).params
    return given


@pytest.mark.parametrize("page", [*PAGES, *SHORT])
def test_every_command_has_its_flags(page: str) -> None:
    lines = [step.line for step in steps(page) if isinstance(step, Command)]
    of_dayfly = [words for program, *words in map(shlex.split, lines) if program == "dayfly"]
    assert len(of_dayfly) >= (5 if page in PAGES else 1)
    for name, *words in of_dayfly:
        parsed(name, words)  # or says what is wrong with it


@pytest.mark.slow  # the files and commands of pages are read above
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", SHORT)
def test_what_a_short_page_says_comes_out(page: str, tmp_path: Path) -> None:
    """In a directory with the examples, as in a checkout."""
    needed = {"from-hugging-face": "transformers", "from-lightning": "pytorch_lightning"}
    if page in needed:
        pytest.importorskip(needed[page], reason=f"{needed[page]} is installed by `make slow`")
    (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
    for step in steps(page):
        if isinstance(step, File):
            (tmp_path / step.name).write_text(step.text)
            continue
        code, output = typed(step.line, tmp_path)
        assert code == 0, f"{step.line}\n{output}"
        assert not missing(step.said, output), f"{step.line}\n{output}"


def test_a_flag_that_is_none_is_found() -> None:
    with pytest.raises(Exception, match="No such option: --replicated"):
        parsed("train", ["deep.py", "--replicated", "2"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "name", "settings"),
    [
        ("pipelines", "deep.py", Settings(workers=4, replicas=2, cut=(7,), micro_batches=2)),
        ("planning", "numerals.py", Settings(workers=2, memory_mib=512)),
        ("quickstart", "first.py", Settings(workers=4)),
    ],
)
def test_a_job_passes_what_is_tried_before_a_run(
    page: str, name: str, settings: Settings, tmp_path: Path
) -> None:
    texts = {step.name: step.text for step in steps(page) if isinstance(step, File)}
    (tmp_path / name).write_text(texts[name])
    prepared = prepare(load_job_file(tmp_path / name), settings)
    assert (prepared.pipelining is not None) == bool(settings.cut)


@pytest.mark.long
def test_a_script_says_on_functions_what_the_page_says(tmp_path: Path) -> None:
    (script,) = [s for s in steps("scripts") if isinstance(s, File) and s.name == "train_ddp.py"]
    (tmp_path / script.name).write_text(script.text)
    line = f"dayfly run --workers 4 {script.name}"
    (command,) = [s for s in steps("scripts") if isinstance(s, Command) and s.line == line]
    # The figures do not depend on the number of processes, as the page says.
    code, output = typed(line.replace("4", "2"), tmp_path)
    assert code == 0, output
    assert not missing(command.said, output), output
