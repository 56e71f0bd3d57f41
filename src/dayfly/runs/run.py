"""A run, over or stopped: the results that it leaves in its directory, and what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import safetensors
import safetensors.torch
from torch import nn

from dayfly.catalogue.metering import Bill, FunctionUse
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.commits import Checkpoint
from dayfly.life.faults import Fault
from dayfly.runs.directory import RECORD
from dayfly.runs.home import AVERAGED, BEST, WEIGHTS, Home
from dayfly.runs.keywords import ChangeKeywords, SettingKeywords, check_keywords, shows
from dayfly.runs.progress import Progress
from dayfly.runs.recorder import Recorder
from dayfly.runs.result import Result, write_json
from dayfly.runs.settings import Settings
from dayfly.runs.tariffs import billed
from dayfly.runs.whole_files import replacing
from dayfly.training.paged import paged
from dayfly.training.replica import averaged_part, build_model, model_part
from dayfly.training.state import Tensors, load_model_tensors
from dayfly.wire.stores.base import Store, StoreError

# What reads a run is imported where it is asked for: a run that starts shall not wait for it.
if TYPE_CHECKING:
    from dayfly.runs.evaluating.coordinator import EvaluationRequest
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

    def __repr__(self) -> str:
        losses = {"loss": self.result.train_loss, "val_loss": self.result.val_loss}
        known = [f"{name} {value:.4g}" for name, value in losses.items() if value is not None]
        what = [self.result.status, f"{self.result.epochs} epochs", *known]
        return f"<Run {str(self.directory)!r}: {', '.join(what)}>"

    @property
    def lives(self) -> int | None:
        """Workers of a job are restarted one by one: it has no lives of all."""
        return None

    @property
    def stop_reason(self) -> str | None:
        """What ended the run before its last epoch, as of its result; None: nothing did."""
        return self.result.stop_reason

    @property
    def best_epoch(self) -> int | None:
        """The epoch whose weights were kept as the best; None: none was to be kept."""
        return self.result.best_epoch

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
        """One record an epoch: epoch (from 1), train_loss, val_loss, val_accuracy, metrics; then
        what it took: workers, seconds, samples_per_s, cost_usd, cpu (see docs/metrics.md)."""
        from dayfly.runs.report.epoch_use import history_of

        return history_of(self.directory)

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

        Args:
            output: the page's file; None: `report.html` in the run's directory.
        """
        from dayfly.runs.report import write_report

        return write_report(self.directory, output)

    @shows(ChangeKeywords)
    def scale(self, *, timeout_s: float = 120.0, **changes: Unpack[ChangeKeywords]) -> str:
        """Has a run that is under way go on by another plan, and waits until it does.

        Args:
            timeout_s: longest wait.
            changes: settings from the next boundary between two steps on, such as `workers=8`.

        Returns:
            From which step on it has which plan, in a sentence.

        Raises:
            RequestError: nobody runs it, or its coordinator refuses the change.
            RunFailed: it ended before the change, or has not changed in time.
        """
        from dayfly.runs.changes import Changes
        from dayfly.runs.steering import scale

        check_keywords(changes, Changes, beside=Run.scale)
        return scale(str(self.directory), Changes(**changes), timeout_s)

    def stop(self, *, timeout_s: float = 120.0) -> str:
        """Ends a run that is under way in order, with a checkpoint, and waits until it has ended.

        Args:
            timeout_s: longest wait.

        Returns:
            What became of it, in a sentence.

        Raises:
            RequestError: nobody runs it.
            RunFailed: it has not ended in time.
        """
        from dayfly.runs.steering import stop

        return stop(str(self.directory), timeout_s)

    @property
    def weights(self) -> Path:
        """The file of the weights that count: the best if kept, else the last, or their average.

        Raises:
            RequestError: the run has none yet.
        """
        last = WEIGHTS if self.job.ema is None else AVERAGED
        best = self.directory / BEST
        file = best if best.is_file() else self.directory / last
        if not file.is_file():
            raise RequestError(
                f"the run in {str(self.directory)!r} is {self.result.status} and has no weights "
                f"yet: go on with it by dayfly train --resume {self.directory}"
            )
        return file

    def model(self) -> nn.Module:
        """The job's model in evaluation mode: with the best weights if kept, else the last.

        Of a job with `ema` their moving average, which validation measured.

        Raises:
            RequestError: the run has no weights yet.
        """
        model = build_model(self.job)
        safetensors.torch.load_model(model, str(self.weights))
        return model.eval()

    def export(self, file: str | Path, *, sample: Any = None) -> Path:
        """Writes the model into a file for other programs, in the form that its ending says.

        Args:
            file: `.safetensors` or `.pt` (a state_dict) for the weights; with the computation:
                `.onnx`, for any number of samples (`pip install 'dayfly[export]'`), or `.ts`, which
                is TorchScript.
            sample: of `.onnx` and `.ts`: the model's arguments for a batch of two samples, a tensor
                or a tuple. None: x of the job's validation data.

        Returns:
            The file's path.

        Raises:
            RequestError: another ending, or the model cannot be written so; nothing was written.
        """
        from dayfly.runs.exporting import export

        return export(self.job, self.model(), file, sample)

    @shows(SettingKeywords)
    def test(
        self,
        data: Any = None,
        *,
        progress: bool = True,
        faults: Sequence[Fault] = (),
        **settings: Unpack[SettingKeywords],
    ) -> dict[str, float | None]:
        """Measures the model on data, by functions as the run had them.

        Args:
            data: what a Job takes, of which the validation half counts; or one torch Dataset,
                whose samples are (x, y) or what the job's step takes; or a pair (x, y) of arrays.
                None: the job's own data.
            progress: say on standard error what happens, and what it cost.
            faults: for tests.
            settings: in place of the run's, such as `workers`.

        Returns:
            `loss`, `accuracy` if it is measured, and each metric by its name: the same to the last
            bit for any number of workers.

        Raises:
            RequestError: the run has no weights yet, or the data does not fit; nothing was started.
            RunFailed: the functions failed; with the cause.
        """
        return self._evaluation(progress, faults, settings).test(data)

    @shows(SettingKeywords)
    def predict(
        self,
        data: Any = None,
        *,
        progress: bool = True,
        faults: Sequence[Fault] = (),
        **settings: Unpack[SettingKeywords],
    ) -> Any:
        """Computes the model's outputs, by functions as the run had them.

        Args:
            data: as of `test`; samples need no targets: x alone, an array or an `.npy` file.
            progress: as of `test`.
            faults: for tests.
            settings: as of `test`.

        Returns:
            What the model (or the job's `infer`, or its step) gives, with one row a sample in the
            order of the samples: on the CPU, floats as float32, nested as the model gives it.

        Raises:
            RequestError: as of `test`, or one function has no memory for all outputs.
            RunFailed: as of `test`.
        """
        return self._evaluation(progress, faults, settings).predict(data)

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """What tests and predictions of this run found, took and cost; the latest last."""
        from dayfly.runs.evaluating.records import read_evaluations

        return read_evaluations(self.directory)

    def _evaluation(
        self, progress: bool, faults: Sequence[Fault], settings: SettingKeywords
    ) -> EvaluationRequest:
        from dayfly.runs.evaluating.coordinator import EvaluationRequest

        check_keywords(settings, Settings, beside=Run.test)
        changes = {name: value for name, value in settings.items() if value is not None}
        outer = ("sync", "k", "outer", "outer_lr", "outer_momentum", "fragments", "overlap")
        more = ("compress", "virtual_workers", "shares", "target_accuracy", "checkpoint_every_s")
        for name in (*outer, *more):
            if name in changes:
                raise RequestError(f"{name} is for training: leave it out")
        return EvaluationRequest(
            directory=self.directory,
            weights=self.weights,
            job=self.job,
            changes=changes,
            progress=progress,
            faults=faults,
        )


def write_results(
    store: Store,
    directory: Path,
    job: Job,
    checkpoint: Checkpoint,
    recorder: Recorder,
    settings: Settings,
    profiling: Sequence[FunctionUse] | None,
    summary: Result,
) -> Result:
    """Writes `bill.json` and `history.json`, and the weights of a run that is done, or at a cap.

    Args:
        store: of the run; gets the bill and the history.
        directory: of the run; gets `weights.safetensors`.
        job: what was trained.
        checkpoint: the last one.
        recorder: knows what was used and moved.
        settings: of the last generation; messages cost nothing here.
        profiling: what measured the job for this run; None: it did not choose its plan itself.
        summary: how the run ended.

    Returns:
        The summary with figures and results.

    Raises:
        StoreError: something cannot be written.
    """
    whole_bill = billed(
        recorder.used,
        settings,
        moved=recorder.moved,
        stored_bytes=recorder.stored_bytes,
        coordinator=recorder.coordinator_used(),
        profiling=profiling,
    )
    write_json(store, "bill.json", whole_bill.dump())
    with paged(directory, when=checkpoints.stages(checkpoint) > 1):
        tree, tensors = checkpoints.read(store, checkpoint)
        history = Progress.load(tree["progress"]).history
        losses = [recorder.losses.get(step) for step in range(checkpoint.step)]
        whole = {
            "epochs": history,
            "step_loss": losses,
            "redone_steps": recorder.redone_steps,
            "rollbacks": recorder.rollbacks,
        }
        write_json(store, "history.json", whole)
        if summary.has_weights:
            _write_weights(directory / WEIGHTS, job, model_part(tensors))
            if (average := averaged_part(tensors)) is not None:
                _write_weights(directory / AVERAGED, job, average)
    last = history[-1] if history else {}
    return replace(
        with_bill(summary, whole_bill, recorder),
        epochs=len(history),
        steps=checkpoint.step,
        restarts=recorder.restarts,
        train_loss=last.get("train_loss"),
        val_loss=last.get("val_loss"),
        val_accuracy=last.get("val_accuracy"),
        step_s=recorder.median_step_s,
        startup_s=recorder.startup_s,
        train_s=recorder.train_s,
    )


def with_bill(summary: Result, billed: Bill, recorder: Recorder) -> Result:
    """What is known of a run, with what it cost and moved filled in."""
    return replace(
        summary,
        billed_s=billed.billed_s,
        gb_s=billed.gb_s,
        cost_usd=billed.cost_usd,
        price_list=billed.price_list,
        bytes_up=recorder.traffic["bytes_up"],
        bytes_down=recorder.traffic["bytes_down"],
        requests=recorder.traffic["requests"],
    )


def keep_weights(home: Home, job: Job, checkpoint: Checkpoint, name: str) -> None:
    """Writes the weights that were validated as a file of the run's directory, and of its store.

    Args:
        home: of the run.
        job: what is trained.
        checkpoint: committed, and still there.
        name: the file's.

    Raises:
        StoreError: it cannot be written.
    """
    with paged(home.directory, when=checkpoints.stages(checkpoint) > 1):
        _, tensors = checkpoints.read(home.store, checkpoint)
        validated = averaged_part(tensors) or model_part(tensors)
        _write_weights(home.directory / name, job, validated)
    home.keep(name)


def _write_weights(final: Path, job: Job, tensors: Tensors) -> None:
    model = build_model(job)
    load_model_tensors(model, tensors)
    try:
        final.parent.mkdir(exist_ok=True)
        with replacing(final) as beside:
            safetensors.torch.save_model(model, str(beside))
    except (OSError, safetensors.SafetensorError) as error:
        raise StoreError(f"cannot write {final}: {error}") from error
