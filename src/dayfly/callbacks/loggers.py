"""Loggers: the history of a run, epoch by epoch, in files or in a tracker.

A run that goes on after a death or a resume tells an epoch again. Files are therefore written whole
from the history, and trackers are given an epoch's number with its values.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dayfly.callbacks.base import Callback, RunView
from dayfly.errors import RequestError
from dayfly.misspelt import suggests

if TYPE_CHECKING:
    from dayfly.specs.events import Event


class EpochLogger(Callback):
    """A logger that is told each epoch of a run once in a life of the coordinator.

    Args:
        place: where it logs to; None: its usual place.
        optional: see `Callback`.
    """

    def __init__(self, place: str | Path | None = None, *, optional: bool = False) -> None:
        super().__init__(optional=optional)
        self.place = None if place is None else str(place)
        self._epoch = 0

    def on_run_start(self, run: RunView) -> None:
        self._epoch = len(run.history)

    def on_event(self, run: RunView, event: Event) -> None:
        from dayfly.specs.events import EpochTold  # who describes a job does not wait for it

        if isinstance(event, EpochTold) and event.epoch > self._epoch:
            self._epoch = event.epoch
            history = [one for one in run.history if one["epoch"] <= event.epoch]
            self.log(run, history)

    @abstractmethod
    def log(self, run: RunView, history: list[dict[str, Any]]) -> None:
        """Logs the last epoch.

        Args:
            run: the run.
            history: one dict an epoch, as of `Run.history`.
        """


class _FileLogger(EpochLogger):
    """Writes the whole history to a file after each epoch.

    Args:
        place: the file, whose directory must be there; None: in the run's directory.
        optional: see `Callback`.

    Raises:
        RequestError: there can be no such file.
    """

    usual = ""

    def __init__(self, place: str | Path | None = None, *, optional: bool = False) -> None:
        if place is not None:
            place = Path(place).expanduser().absolute()
            if place.is_dir() or not place.parent.is_dir():
                wrong = f"{place.parent} is no directory" if not place.is_dir() else "it is one"
                raise RequestError(f"cannot log to {str(place)!r}, as {wrong}: name a file")
        super().__init__(place, optional=optional)

    def on_run_start(self, run: RunView) -> None:
        super().on_run_start(run)
        self._file = run.directory / self.usual if self.place is None else Path(self.place)

    def log(self, run: RunView, history: list[dict[str, Any]]) -> None:
        beside = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        beside.write_text(self.text(history))
        beside.replace(self._file)

    @abstractmethod
    def text(self, history: list[dict[str, Any]]) -> str:
        """The file's content."""


@suggests
class CSVLogger(_FileLogger):
    """Writes the history as CSV: a column a value, a row an epoch.

    Args:
        place: the file, whose directory must be there; None: `log.csv` in the run's directory.
        optional: see `Callback`.

    Raises:
        RequestError: there can be no such file.
    """

    usual = "log.csv"

    def text(self, history: list[dict[str, Any]]) -> str:
        into = io.StringIO()
        names = list(dict.fromkeys(name for record in history for name in record))
        rows = csv.DictWriter(into, names, lineterminator="\n")
        rows.writeheader()
        rows.writerows(history)
        return into.getvalue()


@suggests
class JSONLogger(_FileLogger):
    """Writes the history as lines of JSON, one an epoch.

    Args:
        place: the file, whose directory must be there; None: `log.jsonl` in the run's directory.
        optional: see `Callback`.

    Raises:
        RequestError: there can be no such file.
    """

    usual = "log.jsonl"

    def text(self, history: list[dict[str, Any]]) -> str:
        return "".join(f"{json.dumps(record)}\n" for record in history)


@suggests
class TensorBoardLogger(EpochLogger):
    """Writes event files of TensorBoard: a scalar a value, with the epoch as its step.

    Args:
        place: their directory; None: `tensorboard` in the run's directory.
        optional: see `Callback`.

    Raises:
        RequestError: the package tensorboard is not installed.
    """

    def __init__(self, place: str | Path | None = None, *, optional: bool = False) -> None:
        super().__init__(place, optional=optional)
        _needs("tensorboard")

    def on_run_start(self, run: RunView) -> None:
        from torch.utils.tensorboard import SummaryWriter

        super().on_run_start(run)
        place = run.directory / "tensorboard" if self.place is None else self.place
        # What an earlier life wrote of later epochs does not count any more.
        make: Callable[..., Any] = SummaryWriter
        self._writer = make(str(place), purge_step=self._epoch + 1)

    def log(self, run: RunView, history: list[dict[str, Any]]) -> None:
        for name, value in numbers(history[-1]):
            self._writer.add_scalar(name, value, history[-1]["epoch"])
        self._writer.flush()

    def on_run_end(self, run: RunView) -> None:
        self._writer.close()


@suggests
class MLFlowLogger(EpochLogger):
    """Logs to MLflow: a metric a value, with the epoch as its step, in a run of the same name.

    A resumed run goes on in the same MLflow run, which has its id as the tag `dayfly.run_id`.

    Args:
        place: tracking URI; None: as MLflow's own settings say (`MLFLOW_TRACKING_URI`).
        experiment: its name.
        optional: see `Callback`.

    Raises:
        RequestError: the package mlflow (or mlflow-skinny) is not installed.
    """

    def __init__(
        self,
        place: str | Path | None = None,
        experiment: str = "dayfly",
        *,
        optional: bool = False,
    ) -> None:
        super().__init__(place, optional=optional)
        _needs("mlflow")
        self.experiment = experiment

    def on_run_start(self, run: RunView) -> None:
        from mlflow import MlflowClient

        super().on_run_start(run)
        make: Callable[..., Any] = MlflowClient
        self._client = make(tracking_uri=self.place)
        known = self._client.get_experiment_by_name(self.experiment)
        if known is None:
            experiment = self._client.create_experiment(self.experiment)
        else:
            experiment = known.experiment_id
        mine = self._client.search_runs([experiment], f"tags.`dayfly.run_id` = '{run.run_id}'")
        if mine:
            self._run_id = mine[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        tags = {"dayfly.run_id": run.run_id}
        made = self._client.create_run(experiment, run_name=run.run_id, tags=tags)
        self._run_id = made.info.run_id
        for name, value in parameters(run).items():
            self._client.log_param(self._run_id, name, value)

    def log(self, run: RunView, history: list[dict[str, Any]]) -> None:
        epoch = history[-1]["epoch"]
        for name, value in numbers(history[-1]):
            self._client.log_metric(self._run_id, name, value, step=epoch)

    def on_run_end(self, run: RunView) -> None:
        status = {"done": "FINISHED", "failed": "FAILED"}
        ended = run.result.status if run.result is not None else "failed"
        self._client.set_terminated(self._run_id, status.get(ended, "KILLED"))


@suggests
class WandbLogger(EpochLogger):
    """Logs to Weights & Biases: a value a key, with the epoch as its step.

    A resumed run goes on in the same run there. `WANDB_MODE=offline` writes to the run's directory
    alone; credentials are those of `wandb login`.

    Args:
        place: the project.
        optional: see `Callback`.

    Raises:
        RequestError: the package wandb is not installed.
    """

    def __init__(self, place: str | None = "dayfly", *, optional: bool = False) -> None:
        super().__init__(place or "dayfly", optional=optional)
        _needs("wandb")

    def on_run_start(self, run: RunView) -> None:
        import wandb

        super().on_run_start(run)
        init: Callable[..., Any] = wandb.init
        self._run = init(
            project=self.place,
            id=run.run_id,
            name=run.run_id,
            dir=str(run.directory),
            resume="allow",
            config=parameters(run),
        )

    def log(self, run: RunView, history: list[dict[str, Any]]) -> None:
        self._run.log(dict(numbers(history[-1])), step=history[-1]["epoch"])

    def on_run_end(self, run: RunView) -> None:
        failed = run.result is not None and run.result.status == "failed"
        self._run.finish(exit_code=int(failed))


#: What `--log` knows, by name.
LOGGERS: Mapping[str, type[EpochLogger]] = {
    "csv": CSVLogger,
    "jsonl": JSONLogger,
    "tensorboard": TensorBoardLogger,
    "mlflow": MLFlowLogger,
    "wandb": WandbLogger,
}


def logger(text: str) -> EpochLogger:
    """A logger as `--log` names it: `csv`, or `csv:PLACE`.

    Raises:
        RequestError: there is no such one, or its package is not installed.
    """
    check_named(text)
    name, _, place = text.partition(":")
    return LOGGERS[name](place or None)


def check_named(text: str) -> None:
    """Raises RequestError if `--log` does not know such a logger; its package may be missing."""
    name, colon, place = text.partition(":")
    if name not in LOGGERS or (colon and not place):
        raise RequestError(
            f"--log {text}: give one of {', '.join(LOGGERS)}, with :PLACE after it if need be"
        )


def numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The values of a record that are finite numbers, without the epoch's own."""
    for name, value in record.items():
        if name != "epoch" and isinstance(value, (int, float)) and math.isfinite(value):
            yield name, float(value)


def parameters(run: RunView) -> dict[str, Any]:
    """What trackers show as the parameters of a run."""
    job = run.job
    return {"batch_size": job.batch_size, "epochs": job.epochs, "seed": job.seed}


def _needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise RequestError(
            f"the {package} logger needs the package {package}: pip install 'dayfly[{package}]'"
        )
