"""What a run consists of, before anything happens to it: its rounds, and what surrounds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dayfly.planning.simulation.chance import Floats, Ints
from dayfly.planning.simulation.rounds import Rounds

#: Puts, gets, bytes up and bytes down of each worker, (N, 4).
Moved = Ints


@dataclass(frozen=True, slots=True)
class Turn:
    """A round to be taken: its first step, what it is, what it moves, and, if an epoch ends with
    it, its number.

    validation_N: what validating takes each worker before it is summed, which takes validated_s;
    None: nobody validates.
    """

    first: int
    rounds: Rounds
    moved: Moved
    epoch: int | None = None
    validation_N: Floats | None = None
    validated_s: float = 0.0

    @property
    def stop(self) -> int:
        """The step after it."""
        return self.first + self.rounds.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A configuration in seconds and bytes.

    steps: of the run. turn: the round that begins with a step. init_N, start_N, end_N: of each
    worker's functions. lifetime_s: infinite: not limited.

    replays: a worker that starts again catches up alone. log_N: seconds in which it takes a round
    from the log; recomputes: as the log has its inputs alone. keeps_within: local SGD's workers
    keep their own state within a round; keep_s: how long that takes. part_N: to write a share of a
    checkpoint. log_moved, validation_moved: what a round from the log moves, and a validation.
    """

    workers: int
    steps: int
    turn: Callable[[int], Turn]
    init_N: Floats
    start_N: Floats
    end_N: Floats
    lifetime_s: float
    replays: bool
    log_N: Floats
    recomputes: bool
    keeps_within: bool
    keep_s: float
    part_N: Floats
    checkpoint_every_s: float
    log_moved: Moved
    validation_moved: Moved

    def turns(self, first: int) -> Iterator[Turn]:
        """The rounds from a step on."""
        while first < self.steps:
            turn = self.turn(first)
            yield turn
            first = turn.stop


def nothing_moved(workers: int) -> Moved:
    """No traffic."""
    return np.zeros((workers, 4), dtype=np.int64)
