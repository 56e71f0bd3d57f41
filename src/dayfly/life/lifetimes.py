"""When a worker hands over to its successor: in time, but not before it must."""

from __future__ import annotations

import time

from dayfly.life.platforms.base import Context
from dayfly.specs.pace import LATE_SHARE, LATE_TIMES, MOST_SHARE, SPARE_S, end_in_order_s


class HandOver(Exception):
    """Raised while waiting for a message, when there is just enough time left to end in order.

    Args:
        kept: whether the worker kept its own state, from which its successor goes on.
    """

    def __init__(self, *, kept: bool = False) -> None:
        super().__init__()
        self.kept = kept


class Lifetime:
    """One attempt's view of its deadline, and of what its steps and checkpoints take.

    Args:
        context: of its function.
        renewed: whether a successor is started in time, and all workers hand over to theirs at
            once.
        later: steps between the one in which it is due and the one that all know to be the last.
    """

    def __init__(self, context: Context, *, renewed: bool = False, later: int = 0) -> None:
        self._context = context
        self._later = later
        self._renewed = renewed
        self._whole_s = context.remaining_s()
        self._longest_step_s = 0.0
        self._checkpoint_s = 0.0
        self._steps = 0
        self._began = time.monotonic()

    def step_begins(self) -> None:
        """Start the clock of a step."""
        self._began = time.monotonic()

    def step_ends(self) -> None:
        """Note what the step took."""
        self._steps += 1
        self._longest_step_s = max(self._longest_step_s, time.monotonic() - self._began)

    def checkpoint_took(self, seconds: float) -> None:
        """Note what a checkpoint took."""
        self._checkpoint_s = max(self._checkpoint_s, seconds)

    def due(self) -> bool:
        """Whether this step should be the last: another one might not leave time to end in order.

        Never in an attempt's first step: each attempt gets the run a step further, or is killed
        by its lifetime, which is a death that counts.
        """
        return self._steps > 0 and self._context.remaining_s() < self._needed_s()

    def late(self) -> bool:
        """Whether to hand over at a checkpoint that is made for another reason."""
        left = self._context.remaining_s()
        if self._renewed:
            return False
        late = max(LATE_SHARE * self._whole_s, LATE_TIMES * self._needed_s())
        return self._steps > 0 and left < late and left != float("inf")

    def _needed_s(self) -> float:
        """What must be left for another step and an end in order."""
        steps_s = (1 + self._later) * self._longest_step_s
        return end_in_order_s(steps_s, self._checkpoint_s, self._whole_s)

    def fits(self, steps: int) -> bool:
        """Whether so many more steps end in this life, even if each takes twice the longest.

        Not known, so not said, before this attempt's first step.
        """
        left = self._context.remaining_s()
        if self._steps == 0:
            return left == float("inf")
        return left > 2 * steps * self._longest_step_s + self._needed_s()

    def check_waiting(self) -> None:
        """Raise HandOver if an attempt that waits to begin has waited half of its life."""
        if self._context.remaining_s() < MOST_SHARE * self._whole_s:
            raise HandOver

    def check(self) -> None:
        """Raise HandOver if waiting any longer would end in a kill; for the engine's waits."""
        if self._steps > 0 and self._context.remaining_s() < SPARE_S / 2:
            raise HandOver
