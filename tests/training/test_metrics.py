"""Metrics as objects: their states are merged, or they see outputs and targets of all samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchmetrics import MaxMetric, MetricCollection, PearsonCorrCoef
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)
from torchmetrics.regression import MeanSquaredError
from torchmetrics.wrappers import MinMaxMetric

from dayfly.errors import RequestError
from dayfly.training.evaluation import Evaluation
from dayfly.training.metrics import MOST_NUMBERS, State
from dayfly.training.probe import probe
from dayfly.training.replica import Replica, build_model
from tests.training.jobs import clusters, job
from tests.training.test_evaluation import measured


class Highest(MaxMetric):  # type: ignore[misc]
    """The largest score of all: its state is merged by the maximum."""

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        super().update(outputs)


class Own:
    """A class of one's own by the same convention, without torchmetrics."""

    def reset(self) -> None:
        self.seen: list[torch.Tensor] = []

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.seen.append(outputs)

    def compute(self) -> torch.Tensor:
        return torch.cat(self.seen).median()


SUMMED = {
    "f1": MulticlassF1Score(4),
    "accuracy": MulticlassAccuracy(4),
    "binned": MulticlassAUROC(4, thresholds=20),
    "highest": Highest(),
}
GATHERED = {
    "auc": MulticlassAUROC(4),
    "range": MinMaxMetric(MulticlassAccuracy(4)),
    "median": Own(),
}


def alone(metric: Any, outputs: torch.Tensor, targets: torch.Tensor) -> float:
    metric.reset()
    metric.update(outputs, targets)
    found = metric.compute()
    metric.reset()
    return float(found)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_objects_measure_the_whole_set(workers: int) -> None:
    data = clusters(50)
    metrics = {name: one for name, one in {**SUMMED, **GATHERED}.items() if name != "range"}
    asked = job(batch_size=32, metrics=metrics)
    with torch.no_grad():
        outputs = build_model(asked).eval()(data.x)
    evaluation = Evaluation(asked, 50)
    assert set(evaluation.gathered) == {"auc", "median"}
    for _ in range(2):  # nothing is left of the validation before
        found = measured(asked, data, workers)
        assert list(found)[2:] == list(metrics)
        for name, metric in metrics.items():
            assert found[name] == pytest.approx(alone(metric, outputs, data.y), rel=1e-6), name


def test_what_can_be_merged() -> None:
    assert all(State.of(name, metric) for name, metric in SUMMED.items())
    assert not any(State.of(name, metric) for name, metric in GATHERED.items())
    assert State.of("correlation", PearsonCorrCoef()) is None
    assert State.of("function", lambda outputs, targets: 0.0) is None
    assert State.of("large", MulticlassConfusionMatrix(round(MOST_NUMBERS**0.5) + 1)) is None
    assert State.of("error", MeanSquaredError()) is not None


def test_a_collection_is_its_metrics() -> None:
    asked = job(metrics=MetricCollection([MulticlassF1Score(4), MulticlassAccuracy(4)]))
    assert set(asked.metrics) == {"MulticlassF1Score", "MulticlassAccuracy"}
    found = measured(asked, clusters(20), 2)
    assert found["MulticlassF1Score"] == pytest.approx(
        alone(MulticlassF1Score(4), build_model(asked).eval()(clusters(20).x), clusters(20).y)
    )


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (MulticlassF1Score(4, average=None), "gives a Tensor of shape [4]"),
        (MulticlassAUROC(4, average=None), "gives a Tensor of shape [4]"),
        (MulticlassF1Score(7), "its metric 'bad' fails"),
        (MulticlassF1Score, "it must be a function metric(outputs, targets), or an object"),
    ],
)
def test_a_metric_that_gives_no_number_is_refused(metric: Any, said: str) -> None:
    samples = [clusters(8)[at] for at in range(8)]

    def tried() -> None:
        asked = job(metrics={"bad": metric})
        probe(asked, Replica(asked), samples, samples)

    with pytest.raises(RequestError) as refused:
        tried()
    assert said in str(refused.value)
