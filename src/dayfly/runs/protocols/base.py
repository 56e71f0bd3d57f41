"""What a protocol is: it takes a round, the steps until replicas are equal again."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dayfly.closing import Closing
from dayfly.job import Job
from dayfly.life.faults import Faults
from dayfly.life.lifetimes import Lifetime
from dayfly.life.reports import Reporter
from dayfly.runs.catch_up import CatchUp
from dayfly.runs.places import Places
from dayfly.runs.progress import Progress
from dayfly.runs.spans import Spans
from dayfly.runs.task import Task
from dayfly.training.evaluation import Evaluation
from dayfly.training.order import Epochs, Rounds
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Slices
from dayfly.training.sources import Source
from dayfly.training.state import Tensors
from dayfly.wire.channels.base import Channel
from dayfly.wire.engine import Engine
from dayfly.wire.stores.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """What a protocol works with in a worker.

    wishes: what this worker wants done after the round that is being taken. room: waits until the
    message log has room for another round. written: waits until a checkpoint that is under way is
    written. among: another engine, of some of the ranks, for sums by the run's collective; whoever
    made it closes it. From a name for their messages (None: as all ranks name them), and the ranks.
    """

    task: Task
    job: Job
    store: Store
    replica: Replica
    progress: Progress
    epochs: Epochs
    rounds: Rounds
    slices: Slices
    channel: Channel
    validation: Source
    evaluation: Evaluation
    engine: Engine
    catch_up: CatchUp
    faults: Faults
    places: Places
    reporter: Reporter
    lifetime: Lifetime
    spans: Spans
    wishes: Callable[[], Wishes]
    room: Callable[[], None]
    written: Callable[[], None]
    among: Callable[[str | None, Sequence[int]], Engine]


class Protocol(Closing):
    """Takes rounds at a station. Made before the replica's state is loaded.

    steps_when_written: whether it calls the station's `written` before the replica's `step`, so
    that a checkpoint needs no copies of what that changes. own_finite: whether this worker's own
    losses of the round that was taken are finite, as far as it computed them.
    """

    steps_when_written: ClassVar[bool] = False
    own_finite: bool = True

    def __init__(self, station: Station) -> None:
        self.station = station

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

    @abstractmethod
    def validate(self, step: int) -> dict[str, float | None]:
        """Measure the model after an epoch's last step; the same at every worker."""

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
