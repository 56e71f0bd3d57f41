"""What a coordinator knows of the workers of its generation, and what follows from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dayfly.life.platforms.base import Ended
from dayfly.life.rollback import is_hand_over


@dataclass(slots=True)
class WorkerState:
    """One worker of a generation.

    attempt: the latest. started_from: the step of the checkpoint that it started from. caught_up:
    whether that attempt reads the message log no more. status: how the worker ended, once nothing
    is left for it to do. start_at: when its next function is to start, by a monotonic clock in
    seconds; None: one runs, or none is needed.
    """

    rank: int
    attempt: int = -1
    started_from: int = 0
    caught_up: bool = False
    status: str | None = None
    start_at: float | None = None

    def starts(self, from_step: int) -> None:
        """A new attempt begins at the checkpoint before `from_step`."""
        self.attempt += 1
        self.started_from, self.caught_up, self.start_at = from_step, False, None


def status_after(ended: Ended, over: str | None) -> str | None:
    """The status of a worker whose function ended; None: another function has to go on.

    over: how the run ends, if the checkpoint is committed after which all workers end. Then
    nothing is left to be done, even for one that died: its part is in that checkpoint.
    """
    if ended.result is not None and not is_hand_over(ended):
        return str(ended.result["status"])
    return over


def may_trim(step: int, trimmed_step: int, workers: Iterable[WorkerState]) -> bool:
    """Whether the message log before the checkpoint of `step` can go: nobody reads it any more.

    trimmed_step: before which it is gone already.
    """
    return step > trimmed_step and not any(
        worker.status is None and not worker.caught_up and worker.started_from < step
        for worker in workers
    )
