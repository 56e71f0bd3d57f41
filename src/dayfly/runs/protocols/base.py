"""What a protocol is: it takes a round, the steps until replicas are equal again."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dayfly.closing import Closing
from dayfly.job import Job
from dayfly.life.faults import Faults
from dayfly.life.lifetimes import Lifetime
from dayfly.life.reports import Reporter
from dayfly.runs.catch_up import CatchUp
from dayfly.runs.progress import Progress
from dayfly.runs.spans import Spans
from dayfly.runs.task import Task
from dayfly.train.order import Epochs, Rounds
from dayfly.train.replica import Replica, Wishes
from dayfly.train.slices import Slices
from dayfly.train.state import Tensors
from dayfly.wire.engine import Engine
from dayfly.wire.store import FileStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """What a protocol works with in a worker.

    wishes: what this worker wants done after the round that is being taken. room: waits until the
    message log has room for another round.
    """

    task: Task
    job: Job
    store: FileStore
    replica: Replica
    progress: Progress
    epochs: Epochs
    rounds: Rounds
    slices: Slices
    engine: Engine
    catch_up: CatchUp
    faults: Faults
    reporter: Reporter
    lifetime: Lifetime
    spans: Spans
    wishes: Callable[[], Wishes]
    room: Callable[[], None]


class Protocol(Closing):
    """Takes rounds at a station. Made before the replica's state is loaded.

    hands_over_within: whether a worker may hand over within a round, keeping its own state.
    """

    hands_over_within: ClassVar[bool] = False

    def __init__(self, station: Station) -> None:
        self.station = station

    @staticmethod
    @abstractmethod
    def round_bytes(job: Job, replica: Replica, rounds: Rounds) -> int:
        """Size of what a round sums over the workers; may change the replica."""

    @abstractmethod
    def load_state(self, step: int, tree: Any, tensors: Tensors) -> int:
        """Become the replica of a checkpoint before `step`; returns the step to go on with."""

    def state(self) -> tuple[Tensors, Tensors]:
        """What a run checkpoint keeps beside the replica (not copied): shared, and this worker's.

        The shared tensors are equal on all workers, and have names that the replica's have not.
        """
        return {}, {}

    @abstractmethod
    def take(self, step: int) -> Wishes:
        """Take the rest of the round that `step` is in; returns what is granted after it.

        Raises HandOver if there is no time for it, WireError if the wire fails.
        """

    def tell_step(
        self,
        step: int,
        loss: float | None,
        *,
        computed: bool,
        began: float,
        at: float,
        **more: Any,
    ) -> None:
        """Report a step that took from `began` (monotonic; `at` in Unix seconds) until now."""
        here = self.station
        here.reporter.add(
            "step",
            step=step,
            loss=loss,
            computed=computed,
            began=at,
            step_s=time.monotonic() - began,
            spans=here.spans.take(began),
            **more,
        )

    def close(self) -> None:
        """End its threads."""
        return None
