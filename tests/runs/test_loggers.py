"""Loggers: what a tracker is told is the history, also after a resume."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import dayfly
from dayfly.callbacks import CSVLogger, JSONLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from dayfly.callbacks.loggers import EpochLogger, logger
from dayfly.errors import RequestError
from dayfly.specs.events import EpochTold
from tests.runs import small


@dataclass
class Seen:
    """A run as a logger sees it."""

    directory: Path
    job: Any
    run_id: str = "digits-20260101-120000-ab12"
    result: Any = None
    epochs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def history(self) -> list[dict[str, Any]]:
        return [dict(one) for one in self.epochs]


HISTORY: list[dict[str, Any]] = [
    {"epoch": 1, "train_loss": 0.5, "val_loss": None, "val_accuracy": None},
    {"epoch": 2, "train_loss": 0.25, "val_loss": 0.75, "val_accuracy": 0.5, "f1": 0.125},
    {"epoch": 3, "train_loss": 0.125, "val_loss": 0.5, "val_accuracy": 0.75, "f1": 0.25},
]


def log(one: EpochLogger, run: Seen, *epochs: int) -> None:
    """A life of a run in which these epochs end; two workers tell of each."""
    one.on_run_start(run)
    for epoch in epochs:
        run.epochs = HISTORY[:epoch]
        told = EpochTold(at=1.0, record=HISTORY[epoch - 1], spans=())
        for _ in range(2):
            one.on_event(run, told)
    run.result = dayfly.runs.result.Result(run_id=run.run_id, status="done")
    one.on_run_end(run)


@pytest.fixture
def run(tmp_path: Path, data: Path) -> Seen:
    return Seen(tmp_path, small.job(data))


def test_csv_has_a_column_a_value_and_a_row_an_epoch(run: Seen) -> None:
    log(CSVLogger(), run, 1, 2)
    run.epochs = HISTORY[:1]
    log(CSVLogger(), run, 2, 3)  # from a checkpoint between
    with (run.directory / "log.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["epoch", "train_loss", "val_loss", "val_accuracy", "f1"]
    assert [one["train_loss"] for one in rows] == ["0.5", "0.25", "0.125"]
    assert (rows[0]["val_loss"], rows[2]["f1"]) == ("", "0.25")
    assert [one.name for one in run.directory.iterdir()] == ["log.csv"]


def test_jsonl_has_the_history_line_by_line_where_it_is_wanted(run: Seen, tmp_path: Path) -> None:
    log(JSONLogger(tmp_path / "other.jsonl"), run, 1, 2, 3)
    lines = (tmp_path / "other.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == HISTORY


def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere" / "log.csv"):
        with pytest.raises(RequestError, match="cannot log to"):
            CSVLogger(place)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in ("tensorboard", "mlflow", "wandb"):
        with pytest.raises(RequestError, match=rf"pip install 'dayfly\[{name}\]'"):
            logger(name)


@pytest.mark.slow
def test_tensorboard_reads_back_what_was_logged(run: Seen) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log(TensorBoardLogger(), run, 1, 2)
    run.epochs = HISTORY[:1]
    log(TensorBoardLogger(), run, 2, 3)
    read: Any = EventAccumulator(str(run.directory / "tensorboard"))
    read.Reload()
    assert set(read.Tags()["scalars"]) == {"train_loss", "val_loss", "val_accuracy", "f1"}
    found = [(one.step, one.value) for one in read.Scalars("train_loss")]
    assert found == [(1, 0.5), (2, 0.25), (3, 0.125)]
    assert [one.step for one in read.Scalars("val_loss")] == [2, 3]


@pytest.mark.slow
def test_mlflow_has_one_run_with_all_epochs(
    run: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = f"file://{tmp_path}/mlruns"
    log(MLFlowLogger(place), run, 1, 2)
    run.epochs = HISTORY[:2]
    log(MLFlowLogger(place), run, 3)
    make: Any = MlflowClient
    client = make(tracking_uri=place)
    (one,) = client.search_runs([client.get_experiment_by_name("dayfly").experiment_id])
    assert (one.info.status, one.info.run_name) == ("FINISHED", run.run_id)
    assert one.data.params == {"batch_size": str(small.BATCH), "epochs": "3", "seed": "0"}
    told = client.get_metric_history(one.info.run_id, "train_loss")
    assert sorted((x.step, x.value) for x in told) == [(1, 0.5), (2, 0.25), (3, 0.125)]


def wandb_records(file: bytes) -> Iterator[bytes]:
    """Records of a file in LevelDB's log format: blocks of 32 KiB, fragments of 7 bytes' head."""
    at, whole = 7, b""
    while at + 7 <= len(file):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", file, at)
        whole += file[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # it is whole, or its last fragment
            yield whole
            whole = b""


@pytest.mark.slow
def test_wandb_writes_offline(run: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    import wandb

    log(WandbLogger("things"), run, 1, 2, 3)
    teardown: Any = wandb.teardown
    teardown()  # as at the end of a process: the file is whole then
    (file,) = run.directory.glob("wandb/offline-run-*/run-*.wandb")
    from wandb.proto import wandb_internal_pb2

    rows: list[dict[str, Any]] = []
    for data in wandb_records(file.read_bytes()):
        record: Any = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({x.key or x.nested_key[0]: json.loads(x.value_json) for x in items})
    assert [(one["_step"], one["train_loss"]) for one in rows] == [(1, 0.5), (2, 0.25), (3, 0.125)]


@pytest.mark.slow
@pytest.mark.long
def test_a_run_logs_everywhere_by_flags(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log = ("csv", "jsonl", "tensorboard", f"mlflow:file://{tmp_path}/mlruns", "wandb:things")
    run = dayfly.train(small.job(data), run_dir=tmp_path / "run", log=log, **small.SETTINGS)
    lines = (run.directory / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == small.history(run)["epochs"]
    assert len(list((run.directory / "tensorboard").iterdir())) == 1
    assert list(run.directory.glob("wandb/offline-run-*"))
    assert list((tmp_path / "mlruns").glob("*/*/metrics/macro_f1"))
