"""`dayfly profile --convergence`: short runs to one loss, and what of samples each method takes.

    bsp, the job's batch   E epochs with each seed; the target is the loss that each of them reached
    bsp, 2, 4, 8 times it  until they are at the target, or after 3 E epochs
    other methods          likewise
                           ---> epochs to the target beside bsp's of the same seed, and S(B)

Runs are real ones, by local functions without limits. What they learn depends on no clock, so a
loaded machine measures the same.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dayfly.errors import RequestError, RunFailed
from dayfly.job import Job
from dayfly.planning.efficiency import (
    TOLERANCE,
    Convergence,
    Efficiency,
    SeedCurve,
)
from dayfly.planning.short_runs import epochs_to, measured_efficiency, noise_fit
from dayfly.runs import launch
from dayfly.runs.api import overridden
from dayfly.runs.display import Display
from dayfly.runs.outer_of_job import with_outer
from dayfly.runs.plans import JobSpec
from dayfly.runs.prepare import Prepared, prepare
from dayfly.runs.profiling.stopping import StopsAtNonFinite
from dayfly.runs.result import MAX_TIME
from dayfly.runs.run import Run
from dayfly.runs.settings import WARN_OF_NAN, Settings
from dayfly.runs.signals import Stopped
from dayfly.specs.methods import BSP, Method, method_and_batch
from dayfly.specs.outer import OF_JOB
from dayfly.training.streams import measured as with_lengths

#: Times the job's batch size at which bsp is tried, unless batch sizes are named.
MULTIPLES = (2, 4, 8)
#: Epochs after which a run that is not at the target is ended, over those of bsp.
_MOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceQuery:
    """What is to be measured. Raises RequestError for numbers that cannot be.

    Args:
        wanted: methods, each with a batch size; None: the job's. Bsp at None stands for multiples
            of it.
        seeds: runs of each.
        epochs: of bsp at the job's batch size; None: the job's.
        max_time_s: for all runs together; None: any.
        workers: of each run.
        tolerance: as a share, how many more samples than bsp a batch or a method may take, so that
            it counts as converging as well.
    """

    wanted: tuple[tuple[Method, int | None], ...]
    seeds: int = 3
    epochs: int | None = None
    max_time_s: float | None = None
    workers: int = 4
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        for name, value in (("seeds", self.seeds), ("workers", self.workers)):
            if value < 1:
                raise RequestError(f"--{name} {value}: give a whole number from 1")
        if self.epochs is not None and self.epochs < 1:
            raise RequestError(f"--epochs {self.epochs}: give a whole number from 1")
        if self.max_time_s is not None and self.max_time_s <= 0:
            raise RequestError(f"--max-time {self.max_time_s:g}: give more than 0 s")
        if not 0 < self.tolerance < math.inf:
            raise RequestError(f"--tolerance {self.tolerance:g}: give a number above 0")
        for method, _ in self.wanted:
            self.settings(method)  # whether so many workers can have it

    @classmethod
    def parse(cls, text: str, **more: Any) -> ConvergenceQuery:
        """Returns what `--convergence` asks for.

        Args:
            text: names of methods with commas between, such as `bsp,local-sgd:8,nesterov:20@512`.
            more: the other fields; None: as if it was not given.

        Raises:
            RequestError: a name is no method's.
        """
        wanted = tuple(dict.fromkeys(method_and_batch(one.strip()) for one in text.split(",")))
        given = {name: value for name, value in more.items() if value is not None}
        return cls(wanted=wanted, **given)

    def settings(self, method: Method, **more: Any) -> Settings:
        """Returns the settings of a short run."""
        asked = {"workers": self.workers, "on_nan": WARN_OF_NAN, **method.settings, **more}
        try:
            return Settings(**asked)
        except RequestError as refusal:
            raise RequestError(
                f"--convergence {method} with --workers {self.workers}: {refusal}"
            ) from None

    def check(self, job: Job) -> None:
        """Checks that each short run of a job can be carried out, as `dayfly train` checks one.

        Args:
            job: whose convergence is to be measured.

        Raises:
            RequestError: one of them cannot, or the job has more than one batch size.
        """
        JobSpec.of(job)  # of one batch size
        if job.batch_per_worker is not None:
            raise RequestError(
                "--convergence compares global batch sizes, and the job's batch_per_worker has one "
                "for each number of workers: give --batch-size"
            )
        job, made = with_lengths(job)
        bsp = self._prepared(job, made, BSP, job.batch_size, self.epochs or job.epochs)
        most = _MOST * (self.epochs or job.epochs)
        for method, batch in self.batches(job, bsp.training_samples):
            self._prepared(job, made, method, batch, most)

    def _prepared(
        self, job: Job, made: tuple[Any, Any] | None, method: Method, batch: int, epochs: int
    ) -> Prepared:
        """Tries a batch of a short run. Raises RequestError if the run cannot be."""
        try:
            job = self.job_of(job, method, batch, epochs, job.seed)
            return prepare(job, with_outer(job, self.settings(method)), made=made)
        except RequestError as refusal:
            raise RequestError(
                f"--convergence: {method}@{batch}, up to {epochs} epochs: {refusal}"
            ) from None

    def job_of(self, job: Job, method: Method, batch: int, epochs: int, seed: int) -> Job:
        """Returns the job of a short run, which is validated after each epoch.

        Args:
            job: whose convergence is measured.
            method: of the run.
            batch: samples of a step, all workers'.
            epochs: of the run, at most.
            seed: of the run.
        """
        job = overridden(
            job, batch_size=batch, epochs=epochs, seed=seed, callbacks=(StopsAtNonFinite(),)
        )
        own = method.outer == OF_JOB
        return replace(job, validate_every=1, outer_optimizer=job.outer_optimizer if own else None)

    def batches(self, job: Job, samples: int) -> tuple[tuple[Method, int], ...]:
        """Returns methods with their batch sizes, without bsp's at the job's own."""
        found: list[tuple[Method, int]] = []
        for method, batch in self.wanted:
            several = method == BSP and batch is None
            sizes = [times * job.batch_size for times in MULTIPLES] if several else [batch]
            kept = [size or job.batch_size for size in sizes]
            # A batch of more samples than there are is the same as one of all.
            found += [(method, size) for size in kept if size <= samples or not several]
        return tuple(one for one in dict.fromkeys(found) if one != (BSP, job.batch_size))


def convergence(
    job: Job,
    samples: int,
    asked: ConvergenceQuery,
    *,
    name: str = "job",
    code: Path | None = None,
    told: Callable[[str], None] = lambda text: None,
    note: Callable[[str], None] = lambda text: None,
) -> Convergence:
    """Measures what methods and batch sizes take to the loss that bsp reaches.

    Args:
        job: that is trained.
        samples: of its data, to train on.
        asked: methods, seeds and epochs; its `check` knows the job.
        name: the job's.
        code: directory of its file; None: it has none.
        told: what is being run.
        note: what is to be known.

    Raises:
        RequestError: there was no time for bsp at the job's batch size, or it reached no loss.
        RunFailed: a run of it failed. What else fails is left out.
    """
    epochs = asked.epochs or job.epochs
    bench = _Bench(job, asked, name, code, told)
    seeds = range(job.seed, job.seed + asked.seeds)
    bsp = [bench.losses(BSP, job.batch_size, seed, epochs) for seed in seeds]
    if bench.timed_out:
        raise RequestError(
            f"--max-time {asked.max_time_s:g} was over before bsp had trained {epochs} epochs with "
            f"each of {asked.seeds} seeds: give more, fewer --epochs or --seeds"
        )
    least = [min((one for one in losses if one is not None), default=math.nan) for losses in bsp]
    target = max(least)
    if not all(map(math.isfinite, least)):
        raise RequestError(
            f"bsp's validation loss was NaN or infinite with one of {asked.seeds} seeds: there is "
            "no target to reach; lower the job's learning rate"
        )
    reference = [_curve(seed, one, target) for seed, one in zip(seeds, bsp, strict=True)]
    most = _MOST * epochs
    compared = (job.batch_size, asked.workers)
    measured = [measured_efficiency(BSP, *compared, reference, reference, most)]
    left_out: dict[str, str] = {}
    for method, batch in asked.batches(job, samples):
        which = f"{method}@{batch}"
        if method == BSP and (worse := _worse(measured, batch)) is not None:
            left_out[which] = f"{worse} did not reach the target, and its batch is smaller"
            continue
        curves: list[SeedCurve] = []
        try:
            for seed in seeds:
                losses = bench.losses(method, batch, seed, most, target)
                if bench.timed_out:
                    left_out[which] = "the time of --max-time was over"
                    break
                curves.append(_curve(seed, losses, target))
                if curves[-1].epochs is None:
                    break
        except (RequestError, RunFailed) as failure:
            left_out[which] = str(failure)
        if which in left_out:
            continue
        found = measured_efficiency(method, batch, asked.workers, curves, reference, most)
        measured.append(found)
        if found.samples is None:
            at = min((one for one in curves[-1].losses if one is not None), default=math.nan)
            note(
                f"{which} did not reach the validation loss {target:.4g} within "
                f"{len(curves[-1].losses)} epochs with seed {curves[-1].seed}: it came to {at:.4g}"
            )
    for which, why in left_out.items():
        note(f"{which} was left out: {why}")
    batches = {
        one.batch_size: one.samples
        for one in measured
        if one.method == str(BSP) and one.samples is not None
    }
    return Convergence(
        batch_size=job.batch_size,
        epochs=epochs,
        target_loss=target,
        tolerance=asked.tolerance,
        most_epochs=most,
        measured=tuple(measured),
        left_out=left_out,
        fit=noise_fit(batches, job.batch_size),
        **bench.used(),
    )


def _worse(measured: Sequence[Efficiency], batch: int) -> str | None:
    """A batch size of bsp that did not reach the target, and is smaller."""
    found = (
        one.name
        for one in measured
        if one.method == str(BSP) and one.samples is None and one.batch_size < batch
    )
    return next(found, None)


def _curve(seed: int, losses: Sequence[float | None], target: float) -> SeedCurve:
    return SeedCurve(seed=seed, losses=tuple(losses), epochs=epochs_to(losses, target))


@dataclass(slots=True)
class _Bench:
    """Runs the job, and adds up what that takes.

    timed_out: whether the time was over.
    """

    job: Job
    asked: ConvergenceQuery
    name: str
    code: Path | None
    told: Callable[[str], None]
    timed_out: bool = False
    began: float = field(default_factory=time.monotonic)
    bills: list[dict[str, Any]] = field(default_factory=list)

    def losses(
        self, method: Method, batch: int, seed: int, epochs: int, target: float | None = None
    ) -> list[float | None]:
        """Returns the validation loss after each epoch, up to the one that reached the target."""
        left_s = math.inf
        if self.asked.max_time_s is not None:
            left_s = self.asked.max_time_s - (time.monotonic() - self.began)
        if self.timed_out or left_s <= 0:
            self.timed_out = True
            return []
        ends = {"max_time_s": left_s} if left_s < math.inf else {}
        settings = self.asked.settings(method, target_loss=target, **ends)
        job = self.asked.job_of(self.job, method, batch, epochs, seed)
        self.told(f"convergence: {method}, batch {batch}, seed {seed}")
        with tempfile.TemporaryDirectory(prefix="dayfly-") as scratch:
            directory = Path(scratch) / "run"
            run = launch.begin(
                job,
                settings,
                name=self.name,
                code=self.code,
                directory=directory,
                display=Display(),
            )
            self.bills.append(run.bill)
            return self._losses_of(run)

    def _losses_of(self, run: Run) -> list[float | None]:
        if run.stopped_by is not None:
            raise Stopped(run.stopped_by)
        if run.result.status == "failed":
            raise RunFailed(f"a short run failed: {run.result.error}")
        self.timed_out = run.stop_reason == MAX_TIME
        losses = [one["val_loss"] for one in run.history]
        return [one if one is not None and math.isfinite(one) else None for one in losses]

    def used(self) -> dict[str, Any]:
        """Returns what all runs cost and took, by the names of `Convergence`."""
        return {
            "billed_s": sum(one["billed_s"] for one in self.bills),
            "cost_usd": sum(one["cost_usd"] for one in self.bills),
            "price_list": self.bills[0]["price_list"],
            "took_s": time.monotonic() - self.began,
        }
