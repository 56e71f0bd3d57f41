"""What a supervisor remembers of its workers: of one generation, and of all that it had."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Past:
    """What the generations of one supervisor share.

    Args:
        frontier: completed steps of the run, the most that there ever were.
        attempts: the latest of each rank.
        pause_s: before the functions of the next generation start, in seconds.
        start_s, step_s, checkpoint_s: the longest start of a function until it was warm, the
            longest step, and the longest time to write a worker's part of a checkpoint.
    """

    frontier: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    pause_s: float = 0.0
    start_s: float = 0.0
    step_s: float = 0.0
    checkpoint_s: float = 0.0

    def attempt(self, rank: int) -> int:
        """Returns the number of a rank's next attempt."""
        self.attempts[rank] = self.attempts.get(rank, -1) + 1
        return self.attempts[rank]


@dataclass(slots=True)
class WorkerState:
    """One worker of a generation.

    Args:
        attempt: the latest.
        started_from: the step of the checkpoint that it started from.
        caught_up: whether that attempt reads the message log no more.
        warm: whether it has all that it needs but the checkpoint.
        started_at: when its function was started, by the supervisor's clock in seconds.
        start_s: how long it took to be warm; None: it is not yet.
        status: how the worker ended, once nothing is left for it to do.
        start_at: when its next function is to start, by the supervisor's clock in seconds; None:
            one runs, or none is needed.
    """

    rank: int
    attempt: int = -1
    started_from: int = 0
    caught_up: bool = False
    warm: bool = False
    started_at: float = 0.0
    start_s: float | None = None
    status: str | None = None
    start_at: float | None = None

    def starts(self, attempt: int, from_step: int, now: float) -> None:
        """A new attempt begins at the checkpoint before `from_step`."""
        self.attempt, self.started_from, self.started_at = attempt, from_step, now
        self.caught_up, self.warm, self.start_s, self.start_at = False, False, None, None

    def reads_log_before(self, step: int) -> bool:
        """Whether it may read messages of earlier steps."""
        return self.status is None and not self.caught_up and self.started_from < step
