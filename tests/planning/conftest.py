"""The small job's data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs import small


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.write_data(tmp_path_factory.mktemp("data"))
