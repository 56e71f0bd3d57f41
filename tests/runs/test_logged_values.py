"""Values that a step logs, in real runs: over workers and protocols, after deaths, everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dayfly
from dayfly.callbacks import Callback, CSVLogger
from dayfly.life.faults import Fault
from tests.runs import small

NAMES = ("entropy", "of_class_1")


def step(model: nn.Module, batch: Any) -> dict[str, Any]:
    """entropy: a mean over the samples. of_class_1: over those of one class."""
    x, y = batch
    outputs = model(x)
    own = outputs[y == 1, 1]
    entropy = torch.distributions.Categorical(logits=outputs).entropy()
    log = {"entropy": entropy.mean(), "of_class_1": (own.mean(), len(own))}
    return {"loss": F.cross_entropy(outputs, y), "outputs": outputs, "log": log}


class Watching(Callback):
    """Stops once the training's values are there under their names."""

    def on_epoch_end(self, run: Any, record: dict[str, Any]) -> None:
        if record["epoch"] == 2 and {f"train_{name}" for name in NAMES} <= record.keys():
            run.stop("seen")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.write_data(tmp_path_factory.mktemp("data"))


def trained(data: Path, directory: Path, **settings: Any) -> dayfly.Run:
    job = small.job(
        data,
        model=small.plain_model,
        loss=None,
        step=step,
        transform=None,
        callbacks=[Watching(), CSVLogger()],
    )
    return dayfly.train(job, run_dir=directory, **{**small.SETTINGS, **settings})


@pytest.mark.long
@pytest.mark.quick
def test_logged_values_do_not_depend_on_workers_and_survive_a_death(
    data: Path, tmp_path: Path
) -> None:
    one = trained(data, tmp_path / "one", workers=1)
    assert one.stop_reason == "seen"
    last = one.history[-1]
    assert list(last)[4:8] == ["train_entropy", "train_of_class_1", "val_entropy", "val_of_class_1"]
    header = (one.directory / "log.csv").read_text().splitlines()[0]
    assert "train_entropy,train_of_class_1,val_entropy" in header
    told = [event for event in small.events(one.directory, "worker-0") if event["kind"] == "step"]
    assert set(told[0]["logged"]) == set(NAMES)
    two = trained(data, tmp_path / "two", workers=2)
    histories = [small.history(run)["epochs"] for run in (one, two)]
    for record, other in zip(*histories, strict=True):
        assert other == pytest.approx(record, rel=1e-4)
    faults = [Fault(0, 4, "computed"), Fault(1, small.STEPS_AN_EPOCH - 1, "evaluated")]
    again = trained(data, tmp_path / "again", workers=2, faults=faults)
    assert again.result.restarts == 2
    assert small.bits(again) == small.bits(two)


@pytest.mark.long
def test_local_sgd_logs_and_so_does_a_test(data: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"workers": 2, "sync": "local-sgd", "k": 4}
    run = trained(data, tmp_path / "run", **settings)
    faults = [Fault(1, 6, "stepped")]
    again = trained(data, tmp_path / "again", faults=faults, **settings)
    assert small.bits(again) == small.bits(run)
    rounds = [one for one in small.events(run.directory, "worker-0") if one["kind"] == "round"]
    assert [set(one) for one in rounds[0]["logged"]] == [set(NAMES)] * 4
    last = run.history[-1]
    assert last["train_entropy"] is not None
    found = run.test(data, workers=2, progress=False)
    assert list(found) == ["loss", "accuracy", *NAMES, "macro_f1"]
