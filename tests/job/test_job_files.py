"""Job files that give no job are refused, saying where they fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dayfly.errors import RequestError
from dayfly.runs.shipping import load_job_file


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("job.py", None, "is not there"),
        ("job.txt", "", "is no Python file"),
        ("job.py", "x = 1", "has no variable `job`: write job = dayfly.Job"),
        ("job.py", "job = 3", "has a `job` that is int: write job = dayfly.Job"),
        ("job.py", "\n1 / 0", r"fails at .*job\.py:2: ZeroDivisionError"),
        ("job.py", "\nif", r"fails at .*job\.py:2: SyntaxError"),
        ("job.py", "import dayfly\ndayfly.Job()", "has no model"),
        ("job.py", "raise SystemExit('no')", "fails .*SystemExit: no"),
    ],
)
def test_job_files_that_are_none(
    name: str, content: str | None, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "job", sys)  # to have it removed
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(RequestError, match=text):
        load_job_file(tmp_path / name)
