"""A run from its directory alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dayfly
from tests.runs import small

Undisturbed = Callable[[int], dayfly.Run]


def test_a_loaded_run_is_the_one_that_was_trained(undisturbed: Undisturbed) -> None:
    trained = undisturbed(2)
    loaded = dayfly.load(str(trained.directory))
    assert loaded.result == trained.result
    assert (loaded.history, loaded.bill) == (trained.history, trained.bill)
    assert loaded.job.epochs == trained.job.epochs
    mine, theirs = loaded.model().state_dict(), trained.model().state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_one_that_has_no_result_yet_is_running(undisturbed: Undisturbed, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    shutil.copytree(undisturbed(2).directory, directory)
    small.change_record(directory, status="running", result=None)
    assert dayfly.load(directory).result.status == "running"


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(dayfly.RequestError, match="holds no run"):
        dayfly.load(tmp_path)


@pytest.mark.long
def test_a_job_that_never_validates(data: Path, tmp_path: Path) -> None:
    job = small.job(data, validate_every=0, epochs=2)
    run = dayfly.train(job, run_dir=tmp_path / "run", progress=False)
    assert [record["val_loss"] for record in run.history] == [None, None]
    with pytest.raises(dayfly.RequestError, match="target-accuracy goes by validations"):
        dayfly.train(job, run_dir=tmp_path / "two", progress=False, target_accuracy=0.9)


def test_a_run_is_shown_in_a_line(undisturbed: Undisturbed) -> None:
    shown = repr(undisturbed(2))
    assert len(shown) < 200
    assert "done" in shown
    assert str(undisturbed(2).directory) in shown
