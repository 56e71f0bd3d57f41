"""What a round of a real worker takes, and what of it is computing and applying.

a round    | ... | compute: reading, passes, the flat buffer | sum | apply | tell, ... |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from dayfly.training.replica import Wishes
from dayfly.training.slices import Piece
from dayfly.training.synchronous import Synchronous


class Round(NamedTuple):
    """Wall seconds; CPU seconds of the training thread, of all threads, and of the training
    thread's computing and applying."""

    wall_s: float
    thread_s: float
    process_s: float
    compute_s: float
    apply_s: float


class TimedSteps(Synchronous):
    """The steps of a replica, as another has them; tells what the last one took.

    compute_s, apply_s: CPU seconds of the thread that took it.
    """

    def __init__(self, steps: Synchronous) -> None:
        self._steps = steps
        self.flat = steps.flat
        self.own_loss = 0.0
        self.compute_s = 0.0
        self.apply_s = 0.0

    def compute(
        self,
        pieces: Iterable[Piece],
        batch_samples: int,
        step: int,
        rank: int,
        wishes: Wishes,
        ready: Callable[[int], None] = lambda bucket: None,
    ) -> None:
        began = time.thread_time()
        self._steps.compute(pieces, batch_samples, step, rank, wishes, ready)
        self.own_loss = self._steps.own_loss
        self.compute_s = time.thread_time() - began

    def apply(self) -> tuple[float, Wishes]:
        began = time.thread_time()
        applied = self._steps.apply()
        self.apply_s = time.thread_time() - began
        return applied
