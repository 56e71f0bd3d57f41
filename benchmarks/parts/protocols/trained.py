"""Real runs of a task, each kept on a line, so that a bench that was stopped goes on where it was.

    task, seed, settings  ->  a run of dayfly.train  ->  Trained: losses by epoch, bytes, seconds

Runs of a seed have the same first weights, batches and order, and all take equally many samples.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

import dayfly
from benchmarks.parts import recorded
from benchmarks.parts.machine import one_thread
from benchmarks.parts.spread import say
from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.specs.streaming import Streaming, sequential
from dayfly.training.replica import build_model
from dayfly.training.streaming import layers_of

#: Passes of which the quickest tells what computing takes.
_PASSES = 200
T = TypeVar("T")
Batch = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What one run came to.

    Attributes:
        losses: of validation, after each epoch.
        accuracies: of validation, after each epoch; empty: the task has none.
        train_losses: of each epoch.
        steps: of the run.
        bytes_up: of all workers' messages.
        up_bytes: the same up to the end of each epoch, between workers' reports in proportion.
        bytes_down: of all workers' messages.
        requests: of all workers.
        train_s: from the first step to the end of the last validation, on this machine as it was.
        step_s: the median step, likewise.
        computed_s: of each worker, what it computed in its steps, likewise.
        stepping_s: of each worker, from its first step to the end of its last round, likewise.
    """

    losses: list[float]
    accuracies: list[float]
    train_losses: list[float]
    steps: int
    bytes_up: int
    up_bytes: list[float]
    bytes_down: int
    requests: int
    train_s: float
    step_s: float
    computed_s: list[float] = field(default_factory=list)
    stepping_s: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The least validation loss."""
        return min(self.losses)

    def reached(self, target: float) -> int | None:
        """Returns the first epoch, counted from 1, whose validation loss is at most `target`."""
        return next((n for n, loss in enumerate(self.losses, 1) if loss <= target), None)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained.

    Args:
        name: for people.
        facts: what its runs depend on beside seed and settings; kept runs of others do not count.
        make: the job, whose files go into a directory.
        batch: so many samples, to time a pass.
    """

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    make: Callable[[Path], Job]
    batch: Batch

    def pass_s(self, scratch: Path, samples: int) -> float:
        """Returns CPU seconds of forward and backward pass and optimizer on one thread, at best.

        Args:
            scratch: for the job's files.
            samples: of the pass.
        """
        job = self.make(scratch)
        model = build_model(job)
        optimizer = job.optimizer(model.parameters())  # type: ignore[operator]
        x, y = self.batch(samples)
        took = []
        with one_thread():
            for _ in range(_PASSES):
                began = time.process_time()
                optimizer.zero_grad()
                job.loss(model(x), y).backward()  # type: ignore[misc]
                optimizer.step()
                took.append(time.process_time() - began)
        return min(took)


def fragment_sizes(job: Job, streaming: Streaming) -> list[int]:
    """Returns parameters of each fragment in which a job's outer gradients are streamed."""
    layers = [sum(one.numel() for one in layer) for layer in layers_of(build_model(job))]
    return [sum(layers[at] for at in run) for run in sequential(layers, streaming.fragments)]


class Kept(Generic[T]):
    """What runs came to, in a file of a line a run.

    Args:
        file: which is made; None: nothing is kept.
        kind: a dataclass of what one came to.

    Raises:
        RequestError: a line of the file is of no such run.
    """

    def __init__(self, file: Path | None, kind: Callable[..., T]) -> None:
        self._file = file
        self._known: dict[str, T] = {}
        if file is not None and file.exists():
            for number, line in enumerate(file.read_text().splitlines(), 1):
                try:
                    kept = json.loads(line)
                    self._known[json.dumps(kept["of"], sort_keys=True)] = kind(**kept["came"])
                except (ValueError, KeyError, TypeError):
                    raise RequestError(
                        f"--keep {file}: line {number} is no run of this bench: take it out, or "
                        "give another file"
                    ) from None

    def of(self, what: Mapping[str, Any], make: Callable[[], T]) -> T:
        """Returns what a run came to, by what it depends on; one that is not there is made."""
        key = json.dumps(what, sort_keys=True)
        if key not in self._known:
            came = self._known[key] = make()
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(f"{json.dumps({'of': what, 'came': asdict(came)})}\n")  # type: ignore[call-overload]
        return self._known[key]


class Runs:
    """Trains, or finds what was trained before.

    Args:
        keep: file of a line a run, which is made; None: runs are not kept.
        scratch: directory for runs and data.
        workers: functions of each run, unless its settings say another number.

    Raises:
        RequestError: a line of the file is of no such run.
    """

    def __init__(self, keep: Path | None, scratch: Path, workers: int) -> None:
        self.scratch, self.workers = scratch, workers
        self.kept = Kept(keep, Trained)

    @cached_property
    def _directory(self) -> Path:
        return self.scratch / "run"

    def train(self, task: Task, seed: int, named: str, **settings: Any) -> Trained:
        """Returns what a run came to.

        Args:
            task: what is trained.
            seed: of the run.
            named: what people call these settings.
            settings: of `dayfly.train`.

        Raises:
            RequestError: only kept runs are asked for, and it is none.
        """
        how = {"workers": self.workers, **settings}
        of = {"task": task.name, **task.facts, "seed": seed, **how}

        def made() -> Trained:
            came = self._train(task, seed, how)
            say(
                f"{task.name}, seed {seed}, {named}: loss {came.losses[-1]:.4f}, least "
                f"{came.best:.4f}, {came.bytes_up / 1e6:.2f} MB up, {came.train_s:.0f} s"
            )
            return came

        return self.kept.of(of, made)

    def _train(self, task: Task, seed: int, how: dict[str, Any]) -> Trained:
        job = task.make(self.scratch)
        done = dayfly.train(job, seed=seed, run_dir=self._directory, progress=False, **how)
        result, history = done.result, done.history
        ends = [result.steps * n // len(history) - 1 for n in range(1, len(history) + 1)]
        up_bytes = sum(_sent(done.directory, rank, ends) for rank in range(how["workers"]))
        times = [_times(done.directory, rank) for rank in range(how["workers"])]
        shutil.rmtree(done.directory)
        return Trained(
            losses=[float(one["val_loss"]) for one in history],
            accuracies=[
                float(one["val_accuracy"]) for one in history if one.get("val_accuracy") is not None
            ],
            train_losses=[float(one["train_loss"]) for one in history],
            steps=result.steps,
            bytes_up=result.bytes_up,
            up_bytes=(up_bytes / up_bytes[-1] * result.bytes_up).tolist(),  # the last one exactly
            bytes_down=result.bytes_down,
            requests=result.requests,
            train_s=result.train_s or 0.0,
            step_s=result.step_s or 0.0,
            computed_s=[computed for computed, _ in times],
            stepping_s=[stepping for _, stepping in times],
        )


def _sent(directory: Path, rank: int, steps: Sequence[int]) -> NDArray[np.float64]:
    """Bytes that a worker had sent by the end of these steps, as its reports have them."""
    found = recorded.events(directory, f"worker-{rank}")
    at = {one["step"]: one["at"] for one in found if one["kind"] == "step"}
    told = sorted((one["at"], one["bytes_up"]) for one in found if one["kind"] == "traffic")
    return np.interp([at[step] for step in steps], *zip(*told, strict=True))


def _times(directory: Path, rank: int) -> tuple[float, float]:
    """Seconds of computing, and from the first step to the end of the last round, of a worker."""
    found = recorded.events(directory, f"worker-{rank}")
    told = [one for one in found if one["kind"] in ("step", "round")]
    spans = [span for one in told for span in one["spans"].get("compute", [])]
    ends = [one["began"] + one.get("round_s", one.get("step_s", 0.0)) for one in told]
    return sum(end - began for began, end in spans) / 1e3, max(ends) - told[0]["began"]
