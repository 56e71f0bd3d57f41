"""Format, lint and types of the whole repository, as `make lint` checks them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A tool of this environment, run at the root of the repository."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "tool",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=["ruff-check", "ruff-format", "mypy"],
)
def test_is_clean(tool: tuple[str, ...]) -> None:
    done = run(*tool)
    assert done.returncode == 0, f"{' '.join(tool)}:\n{done.stdout}{done.stderr}"


def test_no_file_escapes() -> None:
    """ruff and the packager pass over what .gitignore names: a pattern must not hit the source."""
    done = run("ruff", "check", "--show-files", ".")
    seen = {Path(line) for line in done.stdout.splitlines()}
    files = {path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")}
    assert sorted(str(path.relative_to(ROOT)) for path in files - seen) == []
