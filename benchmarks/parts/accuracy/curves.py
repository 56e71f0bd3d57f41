"""Accuracy by epoch, of each way and seed: neither load nor caps change it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.parts.accuracy.forms import BATCH, Form
from benchmarks.parts.accuracy.peers import Peers
from benchmarks.parts.accuracy.ways import Way
from benchmarks.parts.protocols.trained import Kept, Runs
from benchmarks.parts.spread import say
from dayfly.closing import Closing
from dayfly.errors import RunFailed
from dayfly.job import Job

#: How far DDP's mean loss of the first epoch's steps may be from bsp's, as a share of it.
_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What one run came to.

    Attributes:
        accuracies: of validation, after each epoch, 0 to 1.
        losses: of validation.
        train_losses: of each epoch's steps.
        steps: of the run.
    """

    accuracies: list[float]
    losses: list[float]
    train_losses: list[float]
    steps: int

    @property
    def best(self) -> float:
        """The greatest accuracy."""
        return max(self.accuracies)

    @property
    def plateau(self) -> float:
        """The mean accuracy of the last quarter of the epochs: a single one may be lucky."""
        return fmean(self.accuracies[-max(1, len(self.accuracies) // 4) :])

    def reached(self, target: float) -> int | None:
        """Returns the first epoch, counted from 1, whose accuracy is at least `target`."""
        return next((n for n, one in enumerate(self.accuracies, 1) if one >= target), None)


class Curves(Closing):
    """Trains, or finds what was trained before. Close it to end the peers.

    Args:
        keep: file of a line a run, which is made; None: runs are not kept.
        scratch: directory for runs and data.

    Raises:
        RequestError: a line of the file is of no such run.
    """

    def __init__(self, keep: Path | None, scratch: Path) -> None:
        self._kept = Kept(keep, Curve)
        self._scratch = scratch
        self._peers = Peers(scratch)

    def of(self, form: Form, way: Way, workers: int, seed: int) -> Curve:
        """Returns the curve of a run.

        Args:
            form: what is trained.
            way: how.
            workers: on which; each has as many samples of a step.
            seed: of first weights and of the order of samples.
        """
        settings = "ddp" if way.settings is None else dict(way.settings)
        what = {"task": form.name, **form.task.facts, "settings": settings}

        def made() -> Curve:
            curve = (self._by_ddp if way.settings is None else self._by_dayfly)(
                form, way, workers, seed
            )
            say(
                f"{form.name} on {workers}, seed {seed}, {way.name}: accuracy "
                f"{100 * curve.accuracies[-1]:.1f}%, best {100 * curve.best:.1f}%"
            )
            return curve

        return self._kept.of({**what, "workers": workers, "seed": seed}, made)

    def close(self) -> None:
        self._peers.close()

    def _by_dayfly(self, form: Form, way: Way, workers: int, seed: int) -> Curve:
        runs, batch = Runs(None, self._scratch, workers), BATCH * workers
        came = runs.train(form.task, seed, way.name, batch_size=batch, **(way.settings or {}))
        return Curve(
            accuracies=came.accuracies,
            losses=came.losses,
            train_losses=came.train_losses,
            steps=came.steps,
        )

    def _by_ddp(self, form: Form, _: Way, workers: int, seed: int) -> Curve:
        fitted = self._peers.fit(on_all(form.job(self._scratch), workers, seed), workers)
        return Curve(
            accuracies=fitted.accuracies,
            losses=fitted.losses,
            train_losses=fitted.train_losses,
            steps=fitted.steps,
        )


def on_all(job: Job, workers: int, seed: int) -> Job:
    """Returns the job with the batch of so many workers."""
    return replace(job, batch_size=BATCH * workers, seed=seed)


def check_alike(form: Form, seed: int, ours: Curve, theirs: Curve) -> None:
    """Checks that bsp and DDP trained alike: the mean loss of the first epoch's steps.

    Raises:
        RunFailed: they did not, so that their speed says nothing.
    """
    one, other = ours.train_losses[0], theirs.train_losses[0]
    if not abs(one - other) <= _TOLERANCE * other or ours.steps != theirs.steps:
        raise RunFailed(
            f"{form.name}, seed {seed}: bsp and DDP did not train alike, so their speed says "
            f"nothing: the first epoch's loss is {one:.6g} by bsp and {other:.6g} by DDP, in "
            f"{ours.steps} and {theirs.steps} steps"
        )
