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
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dayfly.catalogue.metering import FunctionUse
from dayfly.errors import RequestError, RunFailed
from dayfly.job import Job
from dayfly.planning.efficiency import Convergence, SeedCurve
from dayfly.planning.profile import Profile
from dayfly.planning.short_runs import epochs_to, measured_efficiency, noise_fit
from dayfly.runs import launch
from dayfly.runs.display import Display
from dayfly.runs.profiling.convergence_query import MOST, ConvergenceQuery, spared_by
from dayfly.runs.result import MAX_TIME
from dayfly.runs.run import Run
from dayfly.runs.signals import Stopped
from dayfly.specs.methods import BSP, Method

_OF_USE = tuple(one.name for one in fields(FunctionUse))


class ConvergenceFailed(RunFailed):
    """Short runs came to no target.

    Args:
        cause: the reason.
        profile: what was measured before them, without a convergence.
    """

    def __init__(self, cause: str, profile: Profile) -> None:
        super().__init__(f"{cause} (the profile that was measured before is this error's profile)")
        self.profile = profile


def convergence(
    job: Job,
    samples: int,
    asked: ConvergenceQuery,
    *,
    name: str = "job",
    code: Path | None = None,
    told: Callable[[str], None] = lambda text: None,
    note: Callable[[str], None] = lambda text: None,
    heard: Callable[[FunctionUse], None] = lambda use: None,
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
        heard: what each function of the short runs used.

    Raises:
        RequestError: there was no time for bsp at the job's batch size, or it reached no loss.
        RunFailed: a run of it failed. What else fails is left out.
    """
    epochs = asked.epochs or job.epochs
    bench = _Bench(job, asked, name, code, told, heard)
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
    compared = (job.batch_size, asked.workers)
    measured = [measured_efficiency(BSP, *compared, reference, reference, epochs)]
    left_out: dict[str, str] = {}
    for method, batch in asked.batches(job, samples):
        which = f"{method}@{batch}"
        if (worse := spared_by(measured, method, batch)) is not None:
            left_out[which] = f"{worse} did not reach the target, and its batch is smaller"
            continue
        curves: list[SeedCurve] = []
        most = asked.most_epochs(job, batch, samples)
        if most < MOST * epochs:
            note(f"{which} has {most} epochs at most, for which the job's scheduler lasts")
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
        most_epochs=MOST * epochs,
        measured=tuple(measured),
        left_out=left_out,
        fit=noise_fit(batches, job.batch_size),
        **bench.used(),
    )


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
    heard: Callable[[FunctionUse], None]
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
            for row in run.bill["invocations"]:
                self.heard(FunctionUse(**{name: row[name] for name in _OF_USE}))
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
