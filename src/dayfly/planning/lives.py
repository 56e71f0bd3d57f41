"""Lives of a run's functions: start, training, hand-overs, end; and what they tell meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dayfly import batches
from dayfly.catalogue.metering import StoreTraffic
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.elementwise import choice, least, rounded
from dayfly.planning.configuration import Configuration, end_s, stage_size, start_s
from dayfly.planning.epochs import Epoch
from dayfly.planning.interruptions import interrupted_s
from dayfly.planning.plan import Volume
from dayfly.planning.profile import Profile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.renewal import ahead_of
from dayfly.planning.timing import times, together, volume
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.pace import Pace, end_in_order_s
from dayfly.wire.keys import HEADER_BYTES

#: Reports that each life sends at once: that it is level with its peers, its last checkpoint, and
#: what is left at its end.
_URGENT = 3
#: Of what a report says of a step, deflated, about.
_RECORD_BYTES = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One invocation. init_s: from the request to the handler. run_s: of the handler."""

    init_s: float
    run_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """ready_s: from the first invocation to the first step. ending_s: after the last one. run_s:
    all of it. of_kind: the lives of each worker of a kind. moved: by each worker, what its steps
    and validations do. told: by each worker beside that: its reports, and looks for a wish to stop.
    """

    ready_s: float
    ending_s: float
    run_s: float
    of_kind: Sequence[Sequence[Life]]
    moved: Sequence[StoreTraffic]
    told: Sequence[StoreTraffic]

    @property
    def volume(self) -> Volume:
        """Of all workers."""
        return volume(self.moved)


def validations(c: Configuration) -> int:
    """Of a run: every so many epochs, and after the last."""
    return batches.validations(c.epochs, c.validate_every)


def lives_of(profile: Profile, c: Configuration, pace: Pace, epoch: Epoch) -> Lives:
    """Of all workers. pace: of their reports."""
    measured = validations(c)
    training_s = c.epochs * epoch.trained.seconds + measured * epoch.validation.seconds
    kinds = range(len(c.kinds))
    sizes = [stage_size(profile, c, kind) for kind in kinds]
    inits = [size.init_s.value + c.cold_start_s for size in sizes]
    starts = [start_s(profile, c, kind) for kind in kinds]
    ready_s = max(init_s + its_s for init_s, its_s in zip(inits, starts, strict=True))
    ending_s = max(end_s(profile, c, kind) for kind in kinds)
    end_in_s = end_in_order_s(epoch.step_s, ending_s, c.lifetime_s or math.inf)
    ahead_s = ahead_of(profile, c, ready_s, pace.look_s, end_in_s)
    # Of each lifetime, what is no training.
    spare_s = max(starts) + end_in_s if ahead_s is None else ahead_s
    spans = _spans(c, training_s, epoch.step_s, spare_s)
    # Kinds that are ready earlier wait for the others in their first step.
    of_kind = [
        [Life(init_s=init_s, run_s=ready_s - init_s + span + ending_s) for span in spans]
        for init_s in inits
    ]
    moved = [
        together((times(trained, c.epochs), times(validated, measured)))
        for trained, validated in zip(epoch.trained.moved, epoch.validation.moved, strict=True)
    ]
    run_s = sum(ready_s + span + ending_s for span in spans)
    if ahead_s is not None:
        run_s -= ready_s * (len(spans) - 1)  # successors start while their predecessors train
    told = [
        told_by(c.epochs, pace, run_s, len(spans), epoch.steps, rank) for rank in range(c.workers)
    ]
    return Lives(
        ready_s=ready_s,
        ending_s=ending_s,
        run_s=run_s,
        of_kind=of_kind,
        moved=moved,
        told=told,
    )


def pace_of(
    means: ChannelModel,
    sizes_mib: Iterable[int | None],
    platform: FunctionPlatform,
    store: StoreFacts | None,
    workers: int,
    gpu_share: float | None = None,
) -> Pace:
    """Of a run: as its coordinator finds it; elementwise in workers.

    sizes_mib: of its functions. platform: whose prices they have. store: whose prices messages
    have; None: those of the channel's own store.
    """
    return Pace.of(
        [FunctionSpec(memory_mib=size_mib, gpu_share=gpu_share) for size_mib in sizes_mib],
        platform,
        store or means.store,
        workers=workers,
        immediate=means.immediate,
    )


def told_by(
    epochs: int, pace: Pace, run_s: float, lives: int, epoch_steps: int, rank: int
) -> StoreTraffic:
    """Of one worker, about: a report every so often, and at once when it started and at its end,
    of rank 0 after each epoch, too; some look for a wish to stop as they go on. Elementwise in the
    pace, run_s, lives and rank."""
    steps = epochs * epoch_steps
    puts = least(steps, rounded(run_s / pace.report_s)) + _URGENT * lives
    puts = puts + choice(rank == 0, epochs, 0)
    looks = choice(rank < pace.lookers, least(steps, rounded(run_s / pace.look_s)), 0)
    nbytes = HEADER_BYTES * puts + _RECORD_BYTES * (steps + epochs)
    return StoreTraffic(puts=puts, requests=puts + looks, bytes_up=nbytes)


def _spans(c: Configuration, training_s: float, step_s: float, spare_s: float) -> list[float]:
    """Seconds of training in each life."""
    if c.lifetime_s is None:
        return [training_s]
    most_s = max(step_s, c.lifetime_s - spare_s)
    count = max(1, math.ceil(training_s / most_s - 1e-9))
    return [most_s] * (count - 1) + [training_s - most_s * (count - 1)]


def interrupted(lives: Lives, c: Configuration, platform: FunctionPlatform) -> Lives:
    """With the interruptions of spot machines that are to be expected, in each last life."""
    run_s = interrupted_s(
        lives.run_s,
        c.workers,
        platform,
        start_s=lives.ready_s,
        checkpoint_every_s=c.checkpoint_every_s,
    )
    if run_s == lives.run_s:
        return lives
    longer_s = run_s - lives.run_s
    of_kind = [[*few, replace(last, run_s=last.run_s + longer_s)] for *few, last in lives.of_kind]
    return replace(lives, run_s=run_s, of_kind=of_kind)
