"""What a configuration will take: the very schedules that a run has, in virtual time.

a step    each worker's passes, its collectives over its link, its share of the CPU
an epoch  its steps, the last of which may be smaller, and the validation
a run     start, epochs, checkpoints, hand-overs, end; billed as a run is
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dayfly import batches
from dayfly.batches import Batches, Rounds
from dayfly.catalogue.metering import MeteredInvocation, StoreTraffic, bill
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.elementwise import least, rounded
from dayfly.planning import data_parallel, staged, staged_validation
from dayfly.planning.closed_form import MOST_SIMULATED, many_requests, many_step, many_validation
from dayfly.planning.configuration import (
    Configuration,
    check_configuration,
    end_s,
    stage_memory_mib,
    stage_size,
    start_s,
)
from dayfly.planning.gpus import DERIVED
from dayfly.planning.interruptions import interrupted_s, per_s
from dayfly.planning.intervals import interval_of
from dayfly.planning.local_rounds import local_round
from dayfly.planning.memory import gpu_peak_mib, peak_mib
from dayfly.planning.plan import Prediction, Volume
from dayfly.planning.profile import Profile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.renewal import ahead_of
from dayfly.planning.servers import check_server_memory
from dayfly.planning.timing import Steps, moved_by, repeated, timed, times, together, volume
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.pace import Pace, end_in_order_s
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.streams import Rank

#: Operations of a simulation, about: what takes a few hundredths of a second.
_ENOUGH = 2500
#: Steps at most: the CPU's periods begin anywhere in a step, so several are looked at.
_MOST_STEPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some steps that all workers take, or a validation. moved: by each worker."""

    seconds: float
    moved: Sequence[StoreTraffic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """See `Prediction`. steps: of an epoch, and trained: what they take and move together.
    validation: what one takes and moves."""

    step_s: float
    breakdown: Mapping[str, float]
    step_volume: Volume
    steps: int
    trained: Part
    validation: Part

    @property
    def epoch_s(self) -> float:
        """Steps and a validation."""
        return self.trained.seconds + self.validation.seconds

    @property
    def epoch_volume(self) -> Volume:
        """Of steps and a validation."""
        return volume([*self.trained.moved, *self.validation.moved])


def epoch_of(
    profile: Profile, c: Configuration, means: ChannelModel, most_simulated: int = MOST_SIMULATED
) -> Epoch:
    """Predict it. most_simulated: workers up to which all messages are gone through."""
    epochs = Batches(profile.samples, c.batch_size)
    rounds = Rounds(epochs, c.round_steps)
    full = tuple([min(c.batch_size, profile.samples)] * rounds.longest)
    whole, last = divmod(epochs.steps, rounds.longest)
    ragged = len(epochs.batch(epochs.steps - 1))
    final = (last or rounds.longest) - 1
    closing = (*full[:final], ragged)
    kinds = {full: whole - (not last)}  # rounds, by their batches
    kinds[closing] = kinds.get(closing, 0) + 1
    found = {
        batches: round_of(profile, c, means, batches, most_simulated)
        for batches, count in kinds.items()
        if count
    }
    usual, moved = found.get(full) or found[closing]
    steps = rounds.longest if full in found else len(closing)
    trained = Part(
        seconds=sum(kinds[batches] * one.step_s for batches, (one, _) in found.items()),
        moved=[
            together(times(by[rank], kinds[batches]) for batches, (_, by) in found.items())
            for rank in range(c.workers)
        ],
    )
    return Epoch(
        step_s=usual.step_s / steps,
        breakdown={what: seconds / steps for what, seconds in usual.breakdown.items()},
        step_volume=volume(moved, steps),
        steps=epochs.steps,
        trained=trained,
        validation=validation_of(profile, c, means, most_simulated),
    )


def step_messages(profile: Profile, c: Configuration) -> int:
    """Requests for messages of a step, all workers' together, by closed forms."""
    rounds = Rounds(Batches(profile.samples, c.batch_size), c.round_steps)
    full = [min(c.batch_size, profile.samples)] * rounds.longest
    requests = many_requests(profile, c, ChannelModel.of(profile), full)
    return sum(round(count / rounds.longest) for count in requests)


def steps_gone_through(operations: int) -> int:
    """Returns how many steps virtual time goes through.

    Args:
        operations: of a step, all workers' together.
    """
    return max(1, min(_MOST_STEPS, _ENOUGH // max(1, operations)))


def round_of(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    batches: tuple[int, ...],
    most_simulated: int = MOST_SIMULATED,
) -> tuple[Steps, Sequence[StoreTraffic]]:
    """A round, which is a step of bsp, and what each worker moves."""
    if c.workers > most_simulated:
        return many_step(profile, c, means, batches)
    if c.protocol.averages:
        return local_round(profile, c, means, batches)
    if c.cut:
        once = staged.ranks(profile, c, means, batches[0])
    else:
        once = data_parallel.ranks(profile, c, means, batches)
    moved = [moved_by(rank, means) for rank in once[: c.workers]]
    operations = sum(len(stream.plan.numbers) for rank in once for stream in rank.streams)
    count, each = steps_gone_through(operations), len(once[0].streams)
    several = repeated(once, count)
    return timed(several, count, lambda at: at == each - 1, means.shared), moved


def validation_of(
    profile: Profile, c: Configuration, means: ChannelModel, most_simulated: int = MOST_SIMULATED
) -> Part:
    """A validation of all workers."""
    if c.workers > most_simulated and c.layout.even:
        seconds, moved = many_validation(profile, c, means)
        return Part(seconds=seconds, moved=moved)
    seconds, found = 0.0, [StoreTraffic() for _ in range(c.workers)]
    rounds: list[tuple[Sequence[Rank], Sequence[Rank], int]] = []
    if c.cut:
        for one in staged_validation.validation(profile, c, means):
            rounds.append((one.ranks, staged_validation.joining(one, means.shared), one.count))
    else:
        everybody = data_parallel.validation(profile, c, means)
        rounds.append((everybody, everybody, 1))
    for ranks, timed_by, count in rounds:
        seconds += count * timed(timed_by, 1, lambda number: False, means.shared).step_s
        each = [moved_by(rank, means) for rank in ranks[: c.workers]]
        found = [together((a, times(b, count))) for a, b in zip(found, each, strict=True)]
    return Part(seconds=seconds, moved=found)


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
    """ready_s: from the first invocation to the first step. ending_s: after the last one. run_s:
    all of it. of_stage: the lives of each worker of a stage. moved: by each worker, what its steps
    and validations do. told: by each worker beside that: its reports, and looks for a wish to stop.
    """

    ready_s: float
    ending_s: float
    run_s: float
    of_stage: Sequence[Sequence[Life]]
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
    sizes = [stage_size(profile, c, stage) for stage in range(c.stages)]
    inits = [size.init_s.value + c.cold_start_s for size in sizes]
    starts = [start_s(profile, c, stage) for stage in range(c.stages)]
    ready_s = max(init_s + its_s for init_s, its_s in zip(inits, starts, strict=True))
    ending_s = max(end_s(profile, c, stage) for stage in range(c.stages))
    end_in_s = end_in_order_s(epoch.step_s, ending_s, c.lifetime_s or math.inf)
    ahead_s = ahead_of(profile, c, ready_s, pace.look_s, end_in_s)
    # Of each lifetime, what is no training.
    spare_s = max(starts) + end_in_s if ahead_s is None else ahead_s
    spans = _spans(c, training_s, epoch.step_s, spare_s)
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
    if ahead_s is not None:
        run_s -= ready_s * (len(spans) - 1)  # successors start while their predecessors train
    told = [told_by(c, pace, run_s, len(spans), epoch.steps, rank) for rank in range(c.workers)]
    return Lives(
        ready_s=ready_s,
        ending_s=ending_s,
        run_s=run_s,
        of_stage=of_stage,
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
    """Of a run: as its coordinator finds it.

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
    c: Configuration, pace: Pace, run_s: float, lives: int, epoch_steps: int, rank: int
) -> StoreTraffic:
    """Of one worker, about: a report every so often, and at once when it started and at its end,
    of rank 0 after each epoch, too; some look for a wish to stop as they go on."""
    steps = c.epochs * epoch_steps
    puts = least(steps, rounded(run_s / pace.report_s)) + _URGENT * lives
    puts += c.epochs if rank == 0 else 0
    looks = least(steps, rounded(run_s / pace.look_s)) if rank < pace.lookers else 0
    nbytes = HEADER_BYTES * puts + _RECORD_BYTES * (steps + c.epochs)
    return StoreTraffic(puts=puts, requests=puts + looks, bytes_up=nbytes)


def _spans(c: Configuration, training_s: float, step_s: float, spare_s: float) -> list[float]:
    """Seconds of training in each life."""
    if c.lifetime_s is None:
        return [training_s]
    most_s = max(step_s, c.lifetime_s - spare_s)
    count = max(1, math.ceil(training_s / most_s - 1e-9))
    return [most_s] * (count - 1) + [training_s - most_s * (count - 1)]


def predict(
    profile: Profile,
    configuration: Configuration,
    platform: FunctionPlatform,
    store: StoreFacts | None = None,
    *,
    most_simulated: int = MOST_SIMULATED,
) -> Prediction:
    """Predict a run.

    platform: whose prices the bill has. store: whose prices its messages have; None: they cost
    nothing. most_simulated: workers up to which every message is gone through; with more, closed
    forms say what collectives take (`planning.closed_form`). Raises RequestError for what cannot
    be run or not be predicted, for memory sizes that the profile does not have, and if the
    catalogue has no prices.
    """
    check_configuration(profile, configuration)
    means = ChannelModel.of(profile)
    epoch = epoch_of(profile, configuration, means, most_simulated)
    c = configuration
    check_server_memory(profile, c.members, store)
    pace = pace_of(means, c.memory_mib, platform, store, c.workers, c.gpu_share)
    lives = lives_of(profile, c, pace, epoch)
    lives = _interrupted(lives, c, platform)
    vcpus = c.vcpus if profile.imitate is not None else None
    used, moved = [], {}
    for rank in range(c.workers):
        stage = c.layout.stage_rank(rank).stage
        name = f"worker-{rank}"
        memory_mib = stage_memory_mib(c, stage)
        for attempt, life in enumerate(lives.of_stage[stage]):
            used.append(
                MeteredInvocation(
                    function=name,
                    attempt=attempt,
                    memory_mib=memory_mib,
                    init_s=life.init_s,
                    run_s=life.run_s,
                    outcome="returned",
                    vcpus=vcpus,
                    gpu_share=c.gpu_share,
                )
            )
        moved[name] = together((lives.moved[rank], lives.told[rank]))
    billed = bill(used, platform, store, moved)
    said = Prediction(
        step_s=epoch.step_s,
        epoch_s=epoch.epoch_s,
        startup_s=lives.ready_s,
        train_s=lives.run_s - lives.ready_s - lives.ending_s,
        total_s=lives.run_s,
        run_s=lives.run_s,
        billed_s=billed.billed_s,
        gb_s=billed.gb_s,
        cost_usd=billed.cost_usd,
        by_kind=billed.by_kind,
        price_list=billed.price_list,
        memory_mib=tuple(
            peak_mib(profile, c, stage, lasts_s=lives.run_s) for stage in range(c.stages)
        ),
        gpu_memory_mib=()
        if profile.gpu is None
        else tuple(gpu_peak_mib(profile, c, stage) for stage in range(c.stages)),
        step_volume=epoch.step_volume,
        epoch_volume=epoch.epoch_volume,
        run_volume=lives.volume,
        breakdown=epoch.breakdown,
        invocations=len(used),
        interruptions=c.workers * per_s(platform) * lives.run_s,
        warnings=warnings_of(profile, c),
    )
    simulated = c.workers <= most_simulated
    return replace(said, interval=interval_of(profile, c, said, simulated=simulated))


def _interrupted(lives: Lives, c: Configuration, platform: FunctionPlatform) -> Lives:
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
    of_stage = [[*few, replace(last, run_s=last.run_s + longer_s)] for *few, last in lives.of_stage]
    return replace(lives, run_s=run_s, of_stage=of_stage)


def warnings_of(profile: Profile, c: Configuration) -> tuple[str, ...]:
    """What speaks against the figures of the functions of a configuration."""
    gpu = profile.gpu
    derived = [] if gpu is None or not gpu.derived else [f"times on the {gpu.type} are {DERIVED}"]
    sizes = [stage_size(profile, c, stage) for stage in range(c.stages)]
    said = derived + [one for size in sizes if size.conditions for one in size.conditions.doubts]
    return tuple(dict.fromkeys(said))
