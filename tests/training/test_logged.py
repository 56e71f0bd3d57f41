"""Values that a step logs: what is taken, and that parts of a batch add up to the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from dayfly.errors import RequestError
from dayfly.training.combining import weighting_of
from dayfly.training.forward import Weighting
from dayfly.training.logged import added, by_name, means, numbers_of, values_given
from dayfly.training.replica import build_model
from tests.training.jobs import World, clusters, job
from tests.training.test_evaluation import measured

NAMES = ("margin", "of_class_1")


def logging_step(model: nn.Module, batch: Any) -> dict[str, Any]:
    """margin: a mean over the samples. of_class_1: over those of a class, of which it has none."""
    x, y = batch
    outputs = model(x)
    best = outputs.topk(2).values
    of_class = outputs[y == 1, 1]
    log = {
        "margin": (best[:, 0] - best[:, 1]).mean(),
        "of_class_1": (of_class.mean(), len(of_class)),
    }
    return {"loss": F.cross_entropy(outputs, y), "outputs": outputs, "log": log}


def by_one_process(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    with torch.no_grad():
        log = logging_step(model, (x, y))["log"]
    return {"margin": float(log["margin"]), "of_class_1": float(log["of_class_1"][0])}


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_step_logs_what_one_process_computes_of_the_whole_batch(
    workers: int, accumulate: int
) -> None:
    data = clusters()
    asked = job(loss=None, step=logging_step, accumulate=accumulate)
    world = World(asked, data, workers, weighting=Weighting(logged=NAMES))
    indices = torch.from_numpy(world.epochs.indices(0, 0, 1))
    expected = by_one_process(build_model(asked), data.x[indices], data.y[indices])
    world.step()
    found = means(by_name(NAMES, world.steps[0].logged))
    assert found == pytest.approx(expected, rel=1e-5)


@settings(max_examples=20, deadline=None)
@given(samples=st.integers(1, 50), batch_size=st.integers(1, 60), workers=st.integers(1, 9))
def test_validation_logs_what_one_process_computes(
    samples: int, batch_size: int, workers: int
) -> None:
    data = clusters(samples)
    asked = job(loss=None, step=logging_step, batch_size=batch_size)
    found = measured(asked, data, workers, Weighting(logged=NAMES))
    expected = by_one_process(build_model(asked).eval(), data.x, data.y)
    if not (data.y == 1).any():
        assert found["val_of_class_1"] is None
        del expected["of_class_1"]
    assert {name: found[f"val_{name}"] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_names_are_found_and_values_without_a_weight_must_be_means() -> None:
    data = clusters(8)
    samples = [data[index] for index in range(8)]

    def found(log: Any, **more: Any) -> Weighting:
        asked = job(
            loss=None,
            step=lambda m, b: {"loss": F.cross_entropy(m(b[0]), b[1]), "log": log(b)},
            **more,
        )
        return weighting_of(asked, build_model(asked), samples, ["only_in_training"])

    mean = found(lambda b: {"mean": b[0].mean(), "rate": 0.1, "drawn": torch.rand(())})
    assert mean.logged == ("only_in_training", "mean", "rate", "drawn")
    assert mean.by == "torch" or mean.by == "samples"
    with pytest.raises(
        RequestError, match=r"'most', which is no mean .*log a pair \(value, weight\)"
    ):
        found(lambda b: {"most": b[0].max()})
    assert found(lambda b: {"most": (b[0].max(), 1)}).logged[1:] == ("most",)  # is believed
    with pytest.raises(RequestError, match="a metric is called 'val_mean'"):
        found(lambda b: {"mean": 1.0}, metrics={"val_mean": lambda o, t: 1.0})


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        ([1.0], "a log of type list"),
        ({3: 1.0}, "logs 3, which is no name"),
        ({"loss": 1.0}, "logs 'loss', which is no name"),
        ({"a": torch.ones(2)}, r"logs a tensor of shape \[2\] as 'a'"),
        ({"a": "high"}, "logs a str as 'a'"),
        ({"a": (1.0, "x")}, "logs a tuple as 'a'"),
    ],
)
def test_what_is_no_log_is_refused(log: Any, wrong: str) -> None:
    with pytest.raises(RequestError, match=wrong):
        values_given(log)


def test_numbers_of_parts() -> None:
    names = ("a", "b")
    one = numbers_of(names, values_given({"a": 3.0, "b": (torch.tensor(5.0), 2)}), 4)
    assert one == [12.0, 4.0, 10.0, 2.0]
    other = numbers_of(names, values_given({"a": np.float32(1.0), "b": (float("nan"), 0)}), 2)
    assert other == [2.0, 2.0, 0.0, 0.0]
    assert means(by_name(names, added([one, other], names)), "val_") == {
        "val_a": 14.0 / 6.0,
        "val_b": 5.0,
    }
    assert means(by_name(names, added([], names))) == {"a": None, "b": None}
    with pytest.raises(RequestError, match="logs c, which it did not of its first samples"):
        numbers_of(names, values_given({"c": 1.0}), 4)
    with pytest.raises(RequestError, match="with the weight -1"):
        numbers_of(names, values_given({"a": (1.0, -1)}), 4)
