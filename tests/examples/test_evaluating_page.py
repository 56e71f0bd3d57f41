"""The page on tests and predictions, followed by the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.launching import typed
from tests.examples.page import Command, missing, steps_of

ROOT = Path(__file__).parents[2]
STEPS = steps_of((ROOT / "docs" / "evaluating.md").read_text())


@pytest.mark.slow  # tests/runs/test_evaluating.py has all of it but the page's words
@pytest.mark.timeout(300)
def test_what_the_page_says_comes_out(tmp_path: Path) -> None:
    for step in STEPS:
        if isinstance(step, Command):
            code, output = typed(step.line, tmp_path)
            assert code == 0, f"{step.line}\n{output}"
            assert not missing(step.said, output), f"{step.line}\n{output}"
        else:
            (tmp_path / step.name).write_text(step.text)
