"""A loss, or weights, that become NaN: the run fails at once, or says it once and goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dayfly
from dayfly.life import checkpoints
from dayfly.runs import launch
from dayfly.runs.display import Display
from dayfly.runs.settings import Settings
from dayfly.training.order import Epochs
from dayfly.wire.stores.files import FileStore
from tests.runs import small

MARK = 99.0
SAMPLES, BATCH = 120, 20
STEPS = SAMPLES // BATCH


class Spoils(nn.Module):
    """A layer whose output, or whose gradient alone, is NaN if it sees a marked sample."""

    def __init__(self, gradient: bool) -> None:
        super().__init__()
        self.gradient = gradient

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        marked = self.training and bool((x[:, 0] > MARK / 2).any())
        if marked and self.gradient and x.requires_grad:
            x.register_hook(lambda gradient: gradient * math.nan)
        return x * math.nan if marked and not self.gradient else x.clamp(-9, 9)


class Lifts(nn.Linear):
    """A layer by which gradients come to the next one; its first column stays as it is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, :1], super().forward(x)], 1)


def model(gradient: bool) -> nn.Module:
    return nn.Sequential(Lifts(12, 12), Spoils(gradient), nn.Linear(13, 5))


def marked(directory: Path, step: int) -> tuple[Path, int]:
    """Data of which one sample, of the second of two workers, is marked; and the step it is in."""
    random = np.random.default_rng(3)
    x = random.normal(size=(SAMPLES, 12)).astype("float32")
    y = random.integers(0, 5, SAMPLES)
    (mine,) = Epochs(SAMPLES, BATCH, 0).slices(range(step, step + 1), 1, 2)
    tried = set(np.linspace(0, SAMPLES - 1, 8, dtype=int)) | {int(y.argmin()), int(y.argmax())}
    x_val, y_val = x[:30].copy(), y[:30]
    x[next(int(one) for one in mine if int(one) not in tried), 0] = MARK
    np.savez(directory / "marked.npz", x_train=x, y_train=y, x_val=x_val, y_val=y_val)
    return directory / "marked.npz", step


def job(data: Path, *, gradient: bool = False, **changes: Any) -> dayfly.Job:
    given = {"scheduler": None, "transform": None, "clip_norm": None, "batch_size": BATCH}
    return small.job(data, model=lambda: model(gradient), **{**given, "epochs": 1, **changes})


class Noted(Display):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def last_checkpoint(directory: Path) -> tuple[int, bool]:
    """Its step, and whether all in it is finite."""
    store = FileStore(directory)
    latest = checkpoints.latest(store)
    assert latest is not None
    _, tensors = checkpoints.read(store, latest)
    return latest.step, all(bool(torch.isfinite(one).all()) for one in tensors.values())


@pytest.mark.parametrize(
    ("settings", "at"),
    [
        ({"workers": 2}, ", at worker 1: lower"),
        ({"workers": 2, "sync": "local-sgd", "k": 4}, ", at worker 1: lower"),
        ({"cut": (2,), "replicas": 2, "log_budget_mib": 8}, ", at worker 3: lower"),
        ({"workers": 2, "channel": "tcp://"}, ", at worker 1: lower"),
    ],
    ids=["bsp", "local-sgd", "stages", "ring"],
)
@pytest.mark.long
def test_the_run_fails_at_once_and_names_step_and_worker(
    settings: dict[str, Any], at: str, tmp_path: Path
) -> None:
    data, step = marked(tmp_path, 2)
    with pytest.raises(dayfly.RunFailed) as failure:
        dayfly.train(job(data, epochs=4), run_dir=tmp_path / "run", progress=False, **settings)
    assert str(failure.value).startswith(f"the loss became nan in step {step} of epoch 1{at}")
    assert "--on-nan warn" in str(failure.value)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "failed"
    assert record["result"]["restarts"] == 0, "that is no death"
    assert last_checkpoint(tmp_path / "run") == (0, True)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (2, "the loss became nan in step 3 of epoch 1"),
        (STEPS - 1, "the validation loss became nan after epoch 1"),
    ],
)
def test_spoilt_weights_replace_no_checkpoint(step: int, text: str, tmp_path: Path) -> None:
    """A gradient was NaN, its step's loss was finite, and a checkpoint is due after each step."""
    data, _ = marked(tmp_path, step)
    with pytest.raises(dayfly.RunFailed) as failure:
        dayfly.train(
            job(data, gradient=True),
            workers=2,
            run_dir=tmp_path / "run",
            progress=False,
            checkpoint_every_s=1e-6,
        )
    by_checkpoint = f"0.bias holds NaN or infinity before step {step + 1}"
    assert str(failure.value).startswith((text, by_checkpoint))
    at, finite = last_checkpoint(tmp_path / "run")
    assert 0 < at <= step
    assert finite


@pytest.mark.long
def test_a_streamed_workers_own_spoilt_weights_replace_no_checkpoint(tmp_path: Path) -> None:
    """Rounds are of two steps, and one is marked whose layer 0 was exchanged before: neither the
    outer model nor a sum has NaN before step 4, but what worker 1 goes on with has."""
    data, _ = marked(tmp_path, 3)
    streamed = {"sync": "local-sgd", "k": 2, "outer": "nesterov", "fragments": 2, "overlap": 1}
    with pytest.raises(dayfly.RunFailed) as failure:
        dayfly.train(
            job(data, gradient=True),
            workers=2,
            run_dir=tmp_path / "run",
            progress=False,
            checkpoint_every_s=1e-6,
            **streamed,
        )
    own = "optimizer.state.0.bias.exp_avg holds NaN or infinity before step 4, at worker 1"
    assert str(failure.value).startswith((own, "the loss became nan in step 4"))
    assert last_checkpoint(tmp_path / "run") == (0, True)


def test_warn_goes_on_and_says_it_once_also_after_a_resume(tmp_path: Path) -> None:
    data, step = marked(tmp_path, 2)
    shown = Noted()
    run = launch.begin(
        job(data, epochs=2),
        Settings(workers=2, on_nan="warn", log_budget_mib=1),
        directory=tmp_path / "run",
        display=shown,
    )
    assert run.result.status == "done"
    said = [note for note in shown.notes if "loss" in note]
    assert said == [
        f"the loss became nan in step {step} of epoch 1, at worker 1; it goes on (--on-nan warn)"
    ]
    assert [one["train_loss"] for one in run.history] == [None, None]
