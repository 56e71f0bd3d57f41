"""What short runs of a job are to measure: which methods and batch sizes, how long, and how often.

Each is checked as `dayfly train` checks a run, before the first begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from dayfly.errors import RequestError
from dayfly.job import Job
from dayfly.planning.efficiency import TOLERANCE, Convergence, Efficiency
from dayfly.runs.api import overridden
from dayfly.runs.outer_of_job import with_outer
from dayfly.runs.plans import JobSpec
from dayfly.runs.prepare import Prepared, prepare
from dayfly.runs.profiling.stopping import StopsAtNonFinite
from dayfly.runs.settings import WARN_OF_NAN, Settings
from dayfly.specs.methods import BSP, Method, method_and_batch
from dayfly.specs.outer import OF_JOB
from dayfly.training.order import Epochs
from dayfly.training.replica import Replica
from dayfly.training.schedules import walked
from dayfly.training.streams import measured as with_lengths

#: Times the job's batch size at which bsp is tried, unless batch sizes are named.
MULTIPLES = (2, 4, 8)
#: A short run that has not reached the target loss is ended after so many times bsp's epochs.
MOST = 3
#: Workers of a short run, unless they are named.
WORKERS = 4


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
    workers: int = WORKERS
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
            more: the other fields; None: as if it was not given. Workers are as many as usual, or
                one more than the aggregators of a method.

        Raises:
            RequestError: a name is no method's.
        """
        wanted = tuple(dict.fromkeys(method_and_batch(one.strip()) for one in text.split(",")))
        given = {name: value for name, value in more.items() if value is not None}
        least = max(1 + (method.aggregators or 0) for method, _ in wanted)
        return cls(wanted=wanted, **{"workers": max(WORKERS, least), **given})

    def within(self, workers: int | None) -> Self:
        """Returns the same of so many functions at most; None: of as many.

        Args:
            workers: of the plan that it is for.

        Raises:
            RequestError: so few cannot have a method.
        """
        return self if workers is None else replace(self, workers=min(self.workers, workers))

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
        samples = bsp.training_samples
        for method, batch in self.batches(job, samples):
            most = self.most_epochs(job, batch, samples)
            self._prepared(job, made, method, batch, most)

    def most_epochs(self, job: Job, batch: int, samples: int) -> int:
        """Returns the epochs after which a short run that is not at the target is ended.

        A schedule that fails after its last step, as OneCycleLR by steps, ends it sooner. One that
        lasts for no whole epoch has one, which `check` refuses.

        Args:
            job: whose convergence is measured.
            batch: samples of a step, all workers'.
            samples: of its data, to train on.
        """
        most = MOST * (self.epochs or job.epochs)
        if job.scheduler is None:
            return most
        one = self.job_of(job, BSP, batch, most, job.seed)
        epochs = Epochs.of(samples, one)
        by_steps = one.scheduler_every == "step"
        each = epochs.first(1) if by_steps else 1
        schedulers = Replica(one).schedulers.values()
        lasts = [walked(scheduler, most * each)[0] // each for scheduler in schedulers]
        return max(1, min(most, *lasts))

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

    def answered_by(self, found: Convergence | None, job: Job, samples: int) -> bool:
        """Returns whether what was measured before answers this.

        Args:
            found: of the same job, data and code; None: nothing.
            job: whose convergence is to be measured.
            samples: of its data, to train on.
        """
        if found is None:
            return False
        of = found.batch_size, found.epochs, found.tolerance
        same = of == (job.batch_size, self.epochs or job.epochs, self.tolerance)
        seeds = tuple(range(job.seed, job.seed + self.seeds))
        reference = next(iter(found.measured))
        has = {one.name for one in found.measured if one.workers == self.workers}
        # What was left out as its run failed, or there was no time, may be measured another time.
        return (
            same
            and tuple(one.seed for one in reference.curves) == seeds
            and all(
                f"{method}@{batch}" in has or spared_by(found.measured, method, batch) is not None
                for method, batch in self.batches(job, samples)
            )
        )

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


def spared_by(measured: Sequence[Efficiency], method: Method, batch: int) -> str | None:
    """Returns why a short run is not needed: a smaller batch of bsp that did not reach the target.

    Args:
        measured: so far.
        method: of the run.
        batch: samples of a step, all workers'.
    """
    found = (
        one.name
        for one in measured
        if one.method == str(BSP) == str(method) and one.samples is None and one.batch_size < batch
    )
    return next(found, None)
