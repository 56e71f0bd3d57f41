"""A run, over or stopped: what came of it and where its files are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from dayfly.job import Job
from dayfly.life.reports import plain
from dayfly.runs.report import write_report
from dayfly.train.replica import build_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The JSON line of a run; times in seconds, null (None) where never measured."""

    run_id: str | None
    status: str
    error: str | None = None
    epochs: int = 0
    steps: int = 0
    workers: int = 0
    restarts: int = 0
    train_loss: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    wall_s: float = 0.0
    step_s: float | None = None
    billed_s: float = 0.0
    gb_s: float = 0.0
    cost_usd: float = 0.0
    price_list: str | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    requests: int = 0
    predicted_step_s: float | None = None
    predicted_cost_usd: float | None = None

    def line(self) -> str:
        """The JSON object, on one line."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return json.dumps(plain(values), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Run:
    """What `dayfly.train` returns. directory: the run's files.

    stopped_by: the signal that ended the run early, if one did.
    """

    directory: Path
    job: Job
    result: Result
    stopped_by: int | None = None

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record an epoch: epoch, train_loss, val_loss, val_accuracy, and the job's metrics."""
        history: list[dict[str, Any]] = json.loads((self.directory / "history.json").read_text())[
            "epochs"
        ]
        return history

    @property
    def bill(self) -> dict[str, Any]:
        """Dollars, and what they are for, by invocation."""
        whole: dict[str, Any] = json.loads((self.directory / "bill.json").read_text())
        return whole

    def report(self, output: Path | None = None) -> Path:
        """Write the run as one page of HTML, and return its path; see `dayfly report`.

        output: the page's file; None: `report.html` in the run's directory.
        """
        return write_report(self.directory, output)

    def model(self) -> nn.Module:
        """The job's model with the final weights, in evaluation mode."""
        model = build_model(self.job)
        safetensors.torch.load_model(model, str(self.directory / "weights.safetensors"))
        return model.eval()
