"""Data and undisturbed runs, made once for all tests of runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import dayfly
from dayfly.runs.stage_checks import Replicas
from tests.runs import small, staged


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def undisturbed(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], dayfly.Run]:
    """The run of `small.job` on so many workers, with nothing in its way."""

    @cache
    def run(workers: int) -> dayfly.Run:
        directory = tmp_path_factory.mktemp(f"undisturbed-{workers}")
        return dayfly.train(small.job(data), workers=workers, run_dir=directory, **small.SETTINGS)

    return run


@pytest.fixture(scope="session")
def undisturbed_stages(data: Path, tmp_path_factory: pytest.TempPathFactory) -> staged.Undisturbed:
    """The run of `small.job` in stages with so many replicas, with nothing in its way."""

    @cache
    def run(replicas: Replicas) -> dayfly.Run:
        return staged.train(data, tmp_path_factory.mktemp("stages"), replicas)

    return run
