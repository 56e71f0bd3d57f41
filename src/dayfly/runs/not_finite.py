"""Finds losses and weights that become NaN or infinite; all workers find them in the same step.

    the loss   is in the sum of every step. If it is not finite, and only then, the workers sum once
               more, to find whose share of it was not
    weights    may be spoilt by a gradient whose loss is finite: the next loss shows it. A
               checkpoint in between must not replace the last finite one, so each worker checks its
               share before it reports it

With `--on-nan stop` all workers end before they write anything, and the run fails with the cause.
With `warn` the run says so once, and goes on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dayfly.life.reports import Reporter
from dayfly.runs.progress import CatchUp, LoggedSum, Progress
from dayfly.runs.settings import STOP_ON_NAN
from dayfly.runs.spans import FaultPoints
from dayfly.runs.task import Task
from dayfly.training.order import Epochs
from dayfly.training.state import Tensors, bad_tensor
from dayfly.training.streaming import OWN
from dayfly.wire.engine import Engine

_OPERATION = "nan"
_ADVICE = (
    "lower the learning rate, clip gradients by clip_norm=, check the data, or let training go on "
    "with it by --on-nan warn, also with --resume"
)
#: Most ranks that are listed by number.
_LISTED = 8


class NotFiniteError(Exception):
    """Ends a worker; the text is the cause with which the run fails."""


class FiniteWatch:
    """Looks at what a worker's round, validation and checkpoint gave.

    Args:
        engine: of all ranks.
        progress: from the checkpoint.
        trained: names of the parameters to train, as in the model.
    """

    def __init__(
        self,
        task: Task,
        epochs: Epochs,
        progress: Progress,
        trained: frozenset[str],
        engine: Engine,
        catch_up: CatchUp,
        reporter: Reporter,
        fault_points: FaultPoints,
    ) -> None:
        self._task = task
        self._stops = task.on_nan == STOP_ON_NAN
        self._epochs = epochs
        self._progress = progress
        self._trained = frozenset(f"{own}model.{name}" for own in ("", OWN) for name in trained)
        self._engine = engine
        self._catch_up = catch_up
        self._reporter = reporter
        self._fault_points = fault_points
        if self._stops:
            progress.not_finite = None  # of a life that went on with it

    def after_round(self, steps: range, *, own_finite: bool) -> None:
        """Say it if a loss of these steps is the run's first that is not finite.

        Args:
            own_finite: whether this worker's own shares of them are, as far as it computed them.

        Raises:
            NotFiniteError: if the run is to stop.
        """
        found = self._progress.not_finite
        if found is None or found[0] not in steps:
            return
        step, loss = found
        ranks = self._whose(steps.start, own_finite=own_finite)
        epoch = self._epochs.epoch(step) + 1
        self._say(step, f"the loss became {loss} in step {step} of epoch {epoch}{_at(ranks)}")

    def after_validation(self, step: int, val_loss: float | None) -> None:
        """The same of the validation after a step; its loss is equal at all workers."""
        if val_loss is None or math.isfinite(val_loss) or self._progress.not_finite is not None:
            return
        self._progress.not_finite = step, val_loss
        epoch = self._epochs.epoch(step) + 1
        self._say(step, f"the validation loss became {val_loss} after epoch {epoch}")

    def check_share(self, step: int, share: Tensors, own: Tensors) -> None:
        """Raise NotFiniteError if a checkpoint's share before a step must not replace another.

        Args:
            share: of what all workers have alike.
            own: what this worker alone goes on with.
        """
        if not self._stops:
            return
        for tensors, at in ((share, ""), (own, _at([self._task.rank]))):
            if (name := bad_tensor(tensors, self._trained)) is not None:
                what = name.removeprefix(OWN).removeprefix("model.")
                raise NotFiniteError(
                    f"{what} holds NaN or infinity before step {step}{at}: {_ADVICE}"
                )

    def _say(self, step: int, text: str) -> None:
        if self._stops:
            raise NotFiniteError(f"{text}: {_ADVICE}")
        if self._task.rank == 0:
            self._reporter.add("not finite", urgent=True, step=step, text=text)

    def _whose(self, step: int, *, own_finite: bool) -> list[int]:
        """The ranks whose share was not finite; a share that nobody computed anew is not known."""
        self._fault_points.operation = _OPERATION
        flags = torch.zeros(self._task.world_size, dtype=torch.float64)
        one = LoggedSum(self._engine, _OPERATION, flags)
        (stored,) = self._catch_up.stored(step, [one])
        flags[self._task.rank] = float(not own_finite)
        one.take(step, stored)
        return torch.nonzero(flags).flatten().tolist()


def _at(ranks: Sequence[int]) -> str:
    """`, at worker 1`, `, at workers 0 and 3`; nothing if it is not known."""
    if not ranks:
        return ""
    if len(ranks) == 1:
        return f", at worker {ranks[0]}"
    if len(ranks) > _LISTED:
        some = ", ".join(map(str, ranks[:_LISTED]))
        return f", at {len(ranks)} workers, such as {some}"
    *first, last = map(str, ranks)
    return f", at workers {', '.join(first)} and {last}"
