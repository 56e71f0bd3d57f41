"""Stages with different numbers of replicas: the curve of one process, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import dayfly
from dayfly.errors import RequestError
from dayfly.runs.settings import Settings
from tests.runs import small

pytestmark = pytest.mark.long

REPLICAS = (3, 1, 2)


def model() -> nn.Module:
    """Nothing is drawn, as draws are those of layers if the model is cut."""
    return nn.Sequential(
        nn.Linear(12, 48), nn.BatchNorm1d(48), nn.Tanh(), nn.Linear(48, 24), nn.Linear(24, 5)
    )


def weights(run: dayfly.Run) -> dict[str, torch.Tensor]:
    """The trained ones: each replica's statistics of BatchNorm move on from micro-batch to
    micro-batch, so they are others on other replicas."""
    named = load_file(run.directory / "weights.safetensors")
    return {name: one for name, one in named.items() if name in dict(model().named_parameters())}


@pytest.mark.parametrize("schedule", ["fill-drain", "1f1b"])
def test_the_curve_is_that_of_one_process(schedule: str, data: Path, tmp_path: Path) -> None:
    """An epoch's last batch has 12 samples, and not every micro-batch as many."""
    job = small.job(data, model=model, batch_size=24, epochs=2, optimizer=small.sgd)
    alone = dayfly.train(job, micro_batches=6, run_dir=tmp_path / "alone", progress=False)
    run = dayfly.train(
        job,
        cut=(1, 3),
        replicas=REPLICAS,
        micro_batches=2,
        schedule=schedule,
        run_dir=tmp_path / "run",
        progress=False,
    )
    assert run.result.workers == 6
    torch.testing.assert_close(weights(run), weights(alone), rtol=1e-4, atol=1e-6)
    for found, right in zip(run.history, alone.history, strict=True):
        assert found["train_loss"] == pytest.approx(right["train_loss"], rel=1e-5)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"replicas": (4, 2)}, "--replicas 4,2: --cut makes 3 stages, so give 3 numbers, or one"),
        ({"replicas": (4, 0, 1)}, "--replicas 4,0,1: give numbers from 1"),
        ({"replicas": (4, 2, 1), "workers": 6}, "--workers 6: --replicas 4,2,1 are 7"),
        ({"replicas": (4, 2, 1), "virtual_workers": 3}, "cannot be shared by 4 workers"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        Settings(cut=(1, 3), **given)
    assert said in str(refused.value)


@pytest.mark.quick
def test_equal_numbers_are_one() -> None:
    assert Settings(cut=(1, 3), replicas=(2, 2, 2)) == Settings(cut=(1, 3), replicas=2)


@pytest.mark.slow
def test_virtual_workers_have_the_same_bits(data: Path, tmp_path: Path) -> None:
    """As the uncut model on one worker: leaves are micro-batches, and are added along one tree."""
    job = small.job(data, model=model, epochs=2)
    given: dict[str, Any] = {"virtual_workers": 5, "progress": False}
    whole = dayfly.train(job, run_dir=tmp_path / "whole", workers=2, **given)
    run = dayfly.train(job, run_dir=tmp_path / "run", cut=(1, 3), replicas=REPLICAS, **given)
    assert small.bits(run)[0] == small.bits(whole)[0]
