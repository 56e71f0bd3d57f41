"""Scripts run in a directory of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which a test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
