"""Real runs, over any workers and stages, measure what one process of plain PyTorch measures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchmetrics.classification import BinaryAUROC, MulticlassF1Score

import dayfly
from tests.runs import small
from tests.training.test_evaluation import auc, f1

UNSEEN = 169


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


class Scores(BinaryAUROC):  # type: ignore[misc]
    """Of the scores of the second of two classes."""

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        super().update(preds.softmax(1)[:, 1], target)


def weighted(outputs: Any, targets: Any) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 5.0]))


def still(parameters: Any) -> torch.optim.Optimizer:
    """Weights stay equal, whoever summed their gradients."""
    return torch.optim.SGD(parameters, lr=0.0)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(4)
    y = (random.random(264 + UNSEEN) < 0.2).astype("int64")
    x = (random.normal(size=(len(y), 6)) + y[:, None]).astype("float32")
    path: Path = tmp_path_factory.mktemp("unbalanced") / "data.npz"
    np.savez(path, x_train=x[UNSEEN:], y_train=y[UNSEEN:], x_val=x[:UNSEEN], y_val=y[:UNSEEN])
    return path


def job(data: Path) -> dayfly.Job:
    return dayfly.Job(
        model=net,
        data=data,
        loss=weighted,
        optimizer=still,
        batch_size=64,
        metrics={
            "f1": f1,
            "auc": auc,
            "macro_f1": MulticlassF1Score(2),  # its states are summed
            "exact_auc": Scores(),  # outputs and targets are gathered
        },
    )


Train = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def train(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    def trained(**settings: Any) -> dict[str, Any]:
        run = dayfly.train(
            job(written), run_dir=tmp_path_factory.mktemp("run") / "d", progress=False, **settings
        )
        with np.load(written) as arrays, torch.no_grad():
            outputs = run.model()(torch.from_numpy(arrays["x_val"]))
            targets = torch.from_numpy(arrays["y_val"])
        record: dict[str, Any] = small.history(run)["epochs"][-1]
        assert record["val_loss"] == pytest.approx(weighted(outputs, targets).item(), rel=1e-6)
        assert record["f1"] == pytest.approx(f1(outputs, targets), rel=1e-6)
        assert record["auc"] == pytest.approx(auc(outputs, targets), rel=1e-6)
        whole = MulticlassF1Score(2)(outputs, targets).item()
        assert record["macro_f1"] == pytest.approx(whole, rel=1e-6)
        assert record["exact_auc"] == pytest.approx(Scores()(outputs, targets).item(), rel=1e-6)
        right = (outputs.argmax(1) == targets).double().mean().item()
        assert record["val_accuracy"] == pytest.approx(right)
        return record

    return trained


@pytest.mark.long
def test_numbers_do_not_depend_on_workers_stages_or_protocol(train: Train) -> None:
    one = train(workers=1)
    for settings in (
        {"workers": 3},
        {"workers": 2, "sync": "local-sgd", "k": 2},
        {"cut": (1,), "replicas": 2, "micro_batches": 2},
    ):
        other = train(**settings)
        assert other.pop("train_loss") == pytest.approx(one["train_loss"], rel=1e-6), settings
        assert other == {name: value for name, value in one.items() if name != "train_loss"}
