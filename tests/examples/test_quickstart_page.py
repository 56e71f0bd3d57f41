"""The quick start, followed by the letter; the README has the same job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.launching import follow
from tests.examples.page import File, steps_of

ROOT = Path(__file__).parents[2]
STEPS = steps_of((ROOT / "docs" / "quickstart.md").read_text())


def test_the_readme_has_the_same_job() -> None:
    (job,) = (step.text for step in STEPS if isinstance(step, File))
    assert job in (ROOT / "README.md").read_text()


@pytest.mark.slow  # test_pages.py reads the page's job and commands in the suite
@pytest.mark.timeout(900)
def test_what_the_page_says_comes_out(tmp_path: Path) -> None:
    follow(STEPS, tmp_path)
