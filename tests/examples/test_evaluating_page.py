"""The page on tests and predictions, followed by the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.launching import follow
from tests.examples.page import steps_of

ROOT = Path(__file__).parents[2]
STEPS = steps_of((ROOT / "docs" / "evaluating.md").read_text())


@pytest.mark.slow  # tests/runs/test_evaluating.py has all of it but the page's words
@pytest.mark.timeout(300)
def test_what_the_page_says_comes_out(tmp_path: Path) -> None:
    follow(STEPS, tmp_path)
