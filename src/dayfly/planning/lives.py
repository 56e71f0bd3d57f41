"""A run: the lives of its functions, one after another, and what they move together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dayfly.catalogue.metering import Moved
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.planning.channels import Means
from dayfly.planning.configuration import Configuration
from dayfly.planning.epochs import Epoch
from dayfly.planning.prediction import Volume
from dayfly.planning.profile import Profile
from dayfly.planning.stages import end_s, stage_size, start_s
from dayfly.planning.traffic import times, together, volume
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.pace import Pace, end_in_order_s
from dayfly.wire.keys import HEADER_BYTES

#: Reports that each life sends at once: that it is level with its peers, its last checkpoint, and
#: what is left at its end.
_URGENT = 3
#: Of what a report says of a step, about.
_RECORD_BYTES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One invocation. init_s: from the request to the handler. run_s: of the handler."""

    init_s: float
    run_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """of_stage: the lives of each worker of a stage. moved: by each worker, what its steps and
    validations do. told: by each worker beside that: its reports, and looks for a wish to stop.
    """

    run_s: float
    of_stage: Sequence[Sequence[Life]]
    moved: Sequence[Moved]
    told: Sequence[Moved]

    @property
    def volume(self) -> Volume:
        """Of all workers."""
        return volume(self.moved)


def validations(c: Configuration) -> int:
    """Of a run: every so many epochs, and after the last."""
    return c.epochs // c.validate_every + bool(c.epochs % c.validate_every)


def lives_of(profile: Profile, c: Configuration, pace: Pace, epoch: Epoch) -> Lives:
    """Of all workers. pace: of their reports."""
    measured = validations(c)
    training_s = c.epochs * epoch.trained.seconds + measured * epoch.validation.seconds
    sizes = [stage_size(profile, c, stage) for stage in range(c.stages)]
    inits = [size.init_s.value + c.cold_start_s for size in sizes]
    starts = [start_s(profile, c, stage) for stage in range(c.stages)]
    ready_s = max(init_s + its_s for init_s, its_s in zip(inits, starts, strict=True))
    ending_s = max(end_s(profile, c, stage) for stage in range(c.stages))
    spans = _spans(c, training_s, max(starts), ending_s, epoch.step_s)
    # Stages that are ready earlier wait for the others in their first step.
    of_stage = [
        [Life(init_s=init_s, run_s=ready_s - init_s + span + ending_s) for span in spans]
        for init_s in inits
    ]
    moved = [
        together((times(trained, c.epochs), times(validated, measured)))
        for trained, validated in zip(epoch.trained.moved, epoch.validation.moved, strict=True)
    ]
    run_s = sum(ready_s + span + ending_s for span in spans)
    told = [told_by(c, pace, run_s, len(spans), epoch.steps, rank) for rank in range(c.workers)]
    return Lives(run_s=run_s, of_stage=of_stage, moved=moved, told=told)


def pace_of(
    means: Means,
    sizes_mib: Iterable[int | None],
    platform: FunctionPlatform,
    store: StoreFacts | None,
    workers: int,
) -> Pace:
    """Of a run: as its coordinator finds it.

    sizes_mib: of its functions. platform: whose prices they have. store: whose prices messages
    have; None: those of the channel's own store.
    """
    return Pace.of(
        [FunctionSpec(memory_mib=size_mib) for size_mib in sizes_mib],
        platform,
        store or means.store,
        workers=workers,
        immediate=means.immediate,
    )


def told_by(
    c: Configuration, pace: Pace, run_s: float, lives: int, epoch_steps: int, rank: int
) -> Moved:
    """Of one worker, about: a report every so often, and at once when it started and at its end,
    of rank 0 after each epoch, too; some look for a wish to stop as they go on."""
    steps = c.epochs * epoch_steps
    puts = min(steps, round(run_s / pace.report_s)) + _URGENT * lives
    puts += c.epochs if rank == 0 else 0
    looks = min(steps, round(run_s / pace.look_s)) if rank < pace.lookers else 0
    nbytes = HEADER_BYTES * puts + _RECORD_BYTES * (steps + c.epochs)
    return Moved(puts=puts, requests=puts + looks, bytes_up=nbytes)


def _spans(
    c: Configuration, training_s: float, starting_s: float, ending_s: float, step_s: float
) -> list[float]:
    """Seconds of training in each life."""
    if c.lifetime_s is None:
        return [training_s]
    spare_s = end_in_order_s(step_s, ending_s, c.lifetime_s)
    most_s = max(step_s, c.lifetime_s - starting_s - spare_s)
    count = max(1, math.ceil(training_s / most_s - 1e-9))
    return [most_s] * (count - 1) + [training_s - most_s * (count - 1)]
