"""Validation by many workers gives the measures of the whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from dayfly.train.arrays import place
from dayfly.train.evaluation import Evaluation, right_answers
from dayfly.train.replica import build_model
from dayfly.train.sources import ArraySource, DatasetSource
from tests.train.jobs import Pairs, clusters, job
from tests.train.stores import new_store


def measured(asked: Any, dataset: Any, world_size: int) -> dict[str, float | None]:
    evaluation, model = Evaluation(asked), build_model(asked)
    total = evaluation.empty()
    for rank in range(world_size):
        total += evaluation.sums(model, DatasetSource(dataset, 0), rank, world_size)
    return evaluation.means(total)


def top_2(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    best = outputs.topk(2).indices
    return (best == targets[:, None]).any(1).float().mean()


@settings(max_examples=30, deadline=None)
@given(
    samples=st.integers(1, 50),
    batch_size=st.integers(1, 60),
    workers=st.integers(1, 9),
)
def test_the_workers_sums_are_the_wholes(samples: int, batch_size: int, workers: int) -> None:
    data = clusters(samples)
    asked = job(batch_size=batch_size, metrics={"top_2": top_2, "three": lambda o, t: 3})
    found = measured(asked, data, workers)
    with torch.no_grad():
        outputs = build_model(asked).eval()(data.x)
    expected = {
        "val_loss": F.cross_entropy(outputs, data.y).item(),
        "val_accuracy": (outputs.argmax(1) == data.y).float().mean().item(),
        "top_2": top_2(outputs, data.y).item(),
        "three": 3.0,
    }
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=1e-5)


def test_regression_has_no_accuracy() -> None:
    data = Pairs(torch.randn(10, 6), torch.randn(10, 4))
    found = measured(job(loss=F.mse_loss), data, 3)
    assert found["val_accuracy"] is None
    assert found["val_loss"] is not None


def test_accuracy_of_sequences_counts_positions() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores = nn.Conv1d(2, 3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scores(x)  # (N, C, T)

    data = Pairs(torch.randn(7, 2, 5), torch.randint(0, 3, (7, 5)))
    asked = job(model=Tagger)
    with torch.no_grad():
        right = build_model(asked)(data.x).argmax(1) == data.y
    assert measured(asked, data, 3)["val_accuracy"] == pytest.approx(right.float().mean().item())


@pytest.mark.parametrize(
    ("outputs", "targets", "right"),
    [
        (torch.eye(3), torch.tensor([0, 1, 0]), 2),
        (torch.eye(3), torch.tensor([0, 1, 2], dtype=torch.uint8), 3),
        (torch.eye(2).expand(4, 2, 2), torch.tensor([[0, 1]] * 4), 8),
        (torch.eye(3), torch.tensor([0.0, 1, 2]), None),
        (torch.eye(3), torch.tensor([True, False, True]), None),
        (torch.eye(3), torch.eye(3, dtype=torch.int64), None),
        (torch.ones(3, 1), torch.zeros(3, dtype=torch.int64), None),
        (torch.ones(3), torch.zeros(3, dtype=torch.int64), None),
        (torch.eye(3, dtype=torch.int64), torch.tensor([0, 1, 2]), None),
        ((torch.eye(3),), torch.tensor([0, 1, 2]), None),
        (torch.eye(3), None, None),
    ],
)
def test_right_answers(outputs: Any, targets: Any, right: int | None) -> None:
    assert right_answers(outputs, targets) == right


def test_a_step_of_ones_own_is_measured_and_may_give_no_outputs() -> None:
    data = clusters(11)

    def step(model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch[0]), batch[1])

    with_outputs = job(loss=None, step=lambda m, b: (step(m, b), m(b[0])), metrics={"top_2": top_2})
    plain = measured(job(metrics={"top_2": top_2}), data, 1)
    assert measured(with_outputs, data, 2) == pytest.approx(plain)
    without = measured(job(loss=None, step=step), data, 2)
    assert without["val_accuracy"] is None
    assert without["val_loss"] == pytest.approx(plain["val_loss"])


def test_validation_draws_the_same_numbers_whatever_came_before() -> None:
    """A worker that starts again did not compute the steps that it reads from the log."""

    def noisy(model: nn.Module, batch: Any) -> torch.Tensor:
        x, y = batch
        return F.cross_entropy(model(x + torch.rand_like(x)), y)

    asked = job(loss=None, step=noisy, eval_transform=None)
    evaluation, model = Evaluation(asked), build_model(asked)
    arrays = {"x_train": clusters(60).x.numpy(), "y_train": clusters(60).y.numpy()}
    with new_store() as store:
        _, part = place(arrays, store, seed=0)
        sums = []
        for state in range(2):
            torch.manual_seed(state)
            source = ArraySource(store, part, None, seed=0)
            sums.append(evaluation.sums(model, source, 0, 2).tolist())
    assert sums[0] == sums[1]


def test_validation_does_not_train_or_move_anything() -> None:
    asked = job(model=lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 4)))
    evaluation, model = Evaluation(asked), build_model(asked)
    before = [tensor.clone() for tensor in model.state_dict().values()]
    first = evaluation.sums(model, DatasetSource(clusters(12), 0), 0, 1)
    assert torch.equal(first, evaluation.sums(model, DatasetSource(clusters(12), 0), 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
