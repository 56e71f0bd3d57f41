"""A run, over or stopped: what came of it and where its files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
from torch import nn

from dayfly.job import Job
from dayfly.runs.directory import RECORD
from dayfly.runs.result import Result
from dayfly.specs.events import epochs_from_1
from dayfly.training.replica import build_model

# What reads a run is imported where it is asked for: a run that starts shall not wait for it.
if TYPE_CHECKING:
    from dayfly.runs.report.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Run:
    """What `dayfly.train` returns.

    Attributes:
        directory: the run's files.
        job: what was trained.
        result: seconds, dollars, steps, and how the run ended.
        stopped_by: number of the signal that ended the run early; None: none did.
        sure_to_fail: whether to go on with it would only fail again.
    """

    directory: Path
    job: Job
    result: Result
    stopped_by: int | None = None
    sure_to_fail: bool = False

    @property
    def lives(self) -> int | None:
        """Workers of a job are restarted one by one: it has no lives of all."""
        return None

    @property
    def to_go_on(self) -> str | None:
        """What to type to go on with a run that is not done.

        None where that is of no use, or its directory was removed.
        """
        if self.sure_to_fail or not (self.directory / RECORD).is_file():
            return None
        return f"to go on from step {self.result.steps}: dayfly train --resume {self.directory}"

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record an epoch: epoch (from 1), train_loss, val_loss, val_accuracy, and metrics."""
        from dayfly.runs.report.reading import History, read_history

        history = read_history(self.directory) or History()
        return [dict(record) for record in epochs_from_1(history.epochs)]

    @property
    def bill(self) -> dict[str, Any]:
        """Dollars, and what they are for, by invocation."""
        from dayfly.runs.report.reading import read_bill

        return dict(read_bill(self.directory) or {})

    def comparison(self) -> Comparison | None:
        """What was predicted beside what was measured; None of a run without a plan."""
        from dayfly.runs.report.comparison import compared_in

        return compared_in(self.directory)

    def report(self, output: Path | None = None) -> Path:
        """Write the run as one page of HTML, and return its path; see `dayfly report`.

        output: the page's file; None: `report.html` in the run's directory.
        """
        from dayfly.runs.report import write_report

        return write_report(self.directory, output)

    def model(self) -> nn.Module:
        """The job's model with the final weights, in evaluation mode."""
        model = build_model(self.job)
        safetensors.torch.load_model(model, str(self.directory / "weights.safetensors"))
        return model.eval()
