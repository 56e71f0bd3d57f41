"""The run does not depend on the number of workers, and one worker is plain PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import dayfly
from dayfly.data.npy_arrays import load_arrays
from dayfly.training.order import Epochs, permuted
from dayfly.training.randomness import SPLIT, WEIGHTS, seeded
from tests.runs import small

pytestmark = pytest.mark.long


def losses(run: dayfly.Run) -> list[float]:
    found: list[float] = json.loads((run.directory / "history.json").read_text())["step_loss"]
    return found


def test_1_and_3_workers_give_the_same_curve(data: Path, tmp_path: Path) -> None:
    """Three have unequal slices; four are compared with a plain loop."""
    job = small.job(data, model=small.plain_model, accumulate=2)
    runs = {
        workers: dayfly.train(job, workers=workers, run_dir=tmp_path / str(workers), progress=False)
        for workers in (1, 3)
    }
    for workers, run in runs.items():
        assert len(losses(run)) == small.STEPS
        np.testing.assert_allclose(losses(run), losses(runs[1]), rtol=0, atol=1e-5)
        for own, one in zip(run.history, runs[1].history, strict=True):
            assert own["val_loss"] == pytest.approx(one["val_loss"], abs=1e-5), workers
            assert own["val_accuracy"] == one["val_accuracy"]


def test_four_workers_train_what_a_plain_loop_trains(data: Path, tmp_path: Path) -> None:
    """The loop that a user of PyTorch would write, over the same samples in the same order."""
    job = small.job(
        data, model=small.plain_model, transform=None, scheduler=None, clip_norm=None, seed=3
    )
    run = dayfly.train(job, workers=4, run_dir=tmp_path, progress=False)

    arrays = load_arrays(data)
    validation = small.SAMPLES // 10
    training = small.SAMPLES - validation
    with seeded(WEIGHTS, 3):
        model = small.plain_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    epochs = Epochs(training, small.BATCH, 3)
    expected = []
    for step in range(small.STEPS):
        rows = permuted(epochs.indices(step, 0, 1) + validation, small.SAMPLES, SPLIT, 3)
        x, y = (torch.from_numpy(arrays[name][rows]) for name in ("x_train", "y_train"))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())

    np.testing.assert_allclose(losses(run), expected, rtol=0, atol=1e-5)
    for trained, plain in zip(run.model().parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(trained, plain, rtol=0, atol=1e-5)
