"""Validation by many workers gives the measures of the whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from dayfly.batches import block_shares
from dayfly.training.arrays import store_arrays
from dayfly.training.combining import weighting_of
from dayfly.training.evaluation import Evaluation, right_answers
from dayfly.training.forward import SAMPLES, Weighting
from dayfly.training.replica import build_model
from dayfly.training.sources import ArraySource, DatasetSource
from tests.training.jobs import Pairs, clusters, job
from tests.training.stores import new_store


def measured(
    asked: Any, dataset: Any, world_size: int, weighting: Weighting = SAMPLES
) -> dict[str, float | None]:
    """What so many workers measure: their sums added up, the metrics of all that they handed in."""
    evaluation, model = Evaluation(asked, len(dataset), weighting), build_model(asked)
    total = evaluation.empty(len(evaluation.blocks))
    source, rows = DatasetSource(dataset, 0), evaluation.rows(range(len(dataset)))
    for blocks in block_shares(evaluation.blocks, world_size):
        total += evaluation.measure(model, source, blocks, rows)
    values = evaluation.no_values() if rows is None else evaluation.values(rows)
    return evaluation.record(total, values)


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
    evaluation, model = Evaluation(asked, 60), build_model(asked)
    arrays = {"x_train": clusters(60).x.numpy(), "y_train": clusters(60).y.numpy()}
    with new_store() as store:
        _, part = store_arrays(arrays, store, seed=0)
        sums = []
        for state in range(2):
            torch.manual_seed(state)
            source = ArraySource(store, part, None, seed=0)
            sums.append(evaluation.measure(model, source, evaluation.blocks[:2]).tolist())
    assert sums[0] == sums[1]


class Observing(nn.Module):
    """Scales by the greatest value so far, in evaluation, too, as observers of quantization do."""

    greatest: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("greatest", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.greatest = torch.maximum(self.greatest, x.detach().abs().max())
        return x / self.greatest


def test_validation_does_not_train_or_move_anything() -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(6), Observing(), nn.Dropout(0.5), nn.Linear(6, 4))

    asked = job(model=model)
    evaluation, built = Evaluation(asked, 12), build_model(asked)
    before = [tensor.clone() for tensor in built.state_dict().values()]
    first, second = (
        evaluation.measure(built, DatasetSource(clusters(12), 0), evaluation.blocks)
        for _ in range(2)
    )
    assert torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip(before, built.state_dict().values(), strict=True))


def f1(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    found = outputs.argmax(1) == 1
    right = int((found & (targets == 1)).sum())
    return 2 * right / int(found.sum() + (targets == 1).sum())


def auc(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """How often a sample of class 1 has a higher score than another one."""
    score = outputs[:, 1]
    ahead = score[targets == 1][:, None] - score[targets != 1]
    return float((ahead > 0).float().mean() + 0.5 * (ahead == 0).float().mean())


def class_weights(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, weight=torch.tensor([3.0, 1.0, 0.5, 7.0]))


def ignored(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """All of some blocks is ignored."""
    return F.cross_entropy(outputs, targets.masked_fill(outputs[:, 0] < 0.1, -1), ignore_index=-1)


@pytest.mark.parametrize("loss", [F.cross_entropy, class_weights, ignored])
def test_every_number_is_that_of_one_process_to_the_bit_whatever_the_workers(loss: Any) -> None:
    data = clusters(169)
    asked = job(loss=loss, batch_size=48, metrics={"f1": f1, "auc": auc})
    weighting = weighting_of(asked, build_model(asked), [data[at] for at in range(8)])
    found = [measured(asked, data, workers, weighting) for workers in (1, 2, 4, 7, 30)]
    assert len({repr(one) for one in found}) == 1
    with torch.no_grad():
        outputs = build_model(asked).eval()(data.x)
    assert found[0] == {
        "val_loss": pytest.approx(loss(outputs, data.y).item(), rel=1e-6),
        "val_accuracy": pytest.approx((outputs.argmax(1) == data.y).float().mean().item()),
        "f1": pytest.approx(f1(outputs, data.y), rel=1e-6),
        "auc": pytest.approx(auc(outputs, data.y), rel=1e-6),
    }


class Dicts:
    """A Dataset whose samples are mappings."""

    def __init__(self, data: Pairs, key: str) -> None:
        self.data, self.key = data, key

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x, y = self.data[index]
        return {"x": x, self.key: y}


@pytest.mark.parametrize("key", ["y", "target", "targets", "label", "labels", "else"])
def test_batches_of_dicts_have_metrics_and_accuracy(key: str) -> None:
    def step(model: nn.Module, batch: Any) -> Any:
        outputs = model(batch["x"])
        loss = F.cross_entropy(outputs, batch[key])
        if key == "else":  # nobody can guess it, so the step says it
            return {"loss": loss, "outputs": outputs, "targets": batch[key]}
        return loss, outputs

    data = clusters(23)
    asked = job(loss=None, step=step, metrics={"f1": f1})
    plain = measured(job(metrics={"f1": f1}), data, 1)
    assert measured(asked, Dicts(data, key), 2) == plain


def test_a_loss_without_any_counted_target_has_no_value() -> None:
    data = Pairs(clusters(5).x, torch.full((5,), -100))
    found = measured(job(), data, 2, Weighting("torch"))
    assert repr(found["val_loss"]) == "nan"
