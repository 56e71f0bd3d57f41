"""What metrics and losses need is known before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.runs.log_budget import check_gathering
from dayfly.runs.prepare import prepare
from dayfly.runs.settings import Settings
from dayfly.training.forward import SAMPLES, Weighting
from tests.job.asked import Rows, given, prepared, refusal


def wide() -> nn.Module:
    return nn.Linear(6, 100_000)


def right(outputs: Any, targets: Any) -> float:
    return float((outputs.argmax(1) == targets).float().mean())


def test_outputs_that_one_function_cannot_hold_are_refused() -> None:
    """400 kB a sample: 360 samples are 137 MiB."""
    changes = {"model": wide, "data": lambda: (Rows(), Rows(360)), "metrics": {"right": right}}
    found = prepare(Job(**given(**changes)), Settings(workers=2)).round_bytes
    assert found.gathered == 360 * (4 * 100_000 + 8)
    assert found.measured == 8 * (4 * 45 + 1), "45 blocks of 8 samples, which is the batch"
    check_gathering(found, Settings(workers=2), lambda: 150)
    check_gathering(found, Settings(workers=2, memory_mib=300), lambda: 150)
    with pytest.raises(RequestError) as refused:
        check_gathering(found, Settings(workers=2, memory_mib=280), lambda: 150)
    assert str(refused.value) == (
        "the job's metrics need outputs and targets of all validation samples at one function: "
        "they take 137 MiB beside the model's 3 MiB and PyTorch's 150 MiB, and it has 280 MiB: "
        "raise --memory, validate on fewer samples, or let the job's step return smaller outputs, "
        "such as the classes that are predicted"
    )


def test_without_metrics_nothing_is_gathered() -> None:
    assert prepared().round_bytes.gathered == 0


def in_dicts(key: str) -> dict[str, Any]:
    samples = [{"x": x, key: y} for x, y in (Rows()[i] for i in range(24))]

    def step(model: nn.Module, batch: Any) -> Any:
        outputs = model(batch["x"])
        return F.cross_entropy(outputs, batch[key]), outputs

    return {"loss": None, "step": step, "data": lambda: (samples, samples[:5])}


def test_targets_that_nobody_finds_are_told_with_the_way_out() -> None:
    prepared(metrics={"right": right}, **in_dicts("labels"))
    found = refusal(metrics={"right": right}, **in_dicts("kind"))
    assert "its metric 'right' fails: " in found
    assert found.endswith(
        "it is given None as targets, as a batch has none under targets, target, labels, label or "
        "y: let the step return a mapping of loss, outputs and targets"
    )


def test_a_step_without_outputs_has_no_metrics() -> None:
    found = refusal(
        loss=None, step=lambda m, b: F.cross_entropy(m(b[0]), b[1]), metrics={"right": right}
    )
    assert found == "the job has metrics, and its step returns no outputs: return (loss, outputs)"


@pytest.mark.parametrize(
    ("loss", "weighting"),
    [
        (F.cross_entropy, SAMPLES),
        (nn.CrossEntropyLoss(weight=torch.tensor([2.0, 2.0, 2.0])), Weighting("torch", 2.0)),
        (nn.CrossEntropyLoss(ignore_index=7), Weighting("torch", 1.0)),
    ],
)
def test_workers_are_told_how_losses_are_combined(loss: Any, weighting: Weighting) -> None:
    assert prepared(loss=loss).weighting == weighting
