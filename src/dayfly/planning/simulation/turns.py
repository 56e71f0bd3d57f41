"""The rounds of a simulated run in their order, and what else of it does not depend on chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dayfly.planning.simulation.rounds import Rounds
from dayfly.planning.simulation.scenario import Floats, Ints

#: Puts, gets, bytes up and bytes down of each worker, (N, 4).
TrafficRows = Ints


@dataclass(frozen=True, slots=True)
class Turn:
    """A round to be taken: its first step, what it is, what it moves, and, if an epoch ends with
    it, its number.

    Attributes:
        validation_N: what validating takes each worker before it is summed, which takes
            validated_s; None: nobody validates.
    """

    first: int
    rounds: Rounds
    moved: TrafficRows
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

    Attributes:
        steps: of the run.
        turn: the round that begins with a step.
        init_N, start_N, end_N: of each worker's functions.
        lifetime_s: infinite: not limited.
        hears_s: until a worker hears that it is to end; None: no successors of all workers are
            warm before lifetimes end.
        replays: a worker that starts again catches up alone.
        log_N: seconds in which it takes a round from the log.
        recomputes_N: whether it does by computing, as the log has its inputs alone, or it has
            state of its own.
        stage_N: of each worker.
        keeps_within: local SGD's workers keep their own state within a round.
        keep_s: how long that takes.
        part_N: to write a share of a checkpoint.
        log_moved, validation_moved: what a round from the log moves, and a validation.
    """

    workers: int
    steps: int
    turn: Callable[[int], Turn]
    init_N: Floats
    start_N: Floats
    end_N: Floats
    lifetime_s: float
    hears_s: float | None
    replays: bool
    log_N: Floats
    recomputes_N: NDArray[np.bool_]
    stage_N: Ints
    keeps_within: bool
    keep_s: float
    part_N: Floats
    checkpoint_every_s: float
    log_moved: TrafficRows
    validation_moved: TrafficRows

    def turns(self, first: int) -> Iterator[Turn]:
        """The rounds from a step on."""
        while first < self.steps:
            turn = self.turn(first)
            yield turn
            first = turn.stop


def nothing_moved(workers: int) -> TrafficRows:
    """No traffic."""
    return np.zeros((workers, 4), dtype=np.int64)
