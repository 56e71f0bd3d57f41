"""From a step to a run: its seconds, and what any plan of whole models takes at least.

least step    its share of the samples through all layers, in one piece; or reading, the forward
              pass and what any sum moves (`least_sum_s`); then the optimizer's step. An epoch's
              last batch, which may be smaller, counts as what it is
least run     with start, validation and end; all its workers for that long, at their price

    n, S, w    workers, bytes that they sum, bytes a second of one
    C          bytes a second of the store for all of them, each way

However n workers sum, they receive 2 (n - 1) S in all: each split's contributions come to where it
is added up, n - 1 of them beside its own, and its sum to all others. One of them receives 2 (n - 1)
S / n or more. Where the store sums, each sends S and receives S.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from dayfly.batches import block_samples, validations
from dayfly.catalogue.platform import FunctionPlatform
from dayfly.catalogue.store import StoreFacts
from dayfly.elementwise import by_value, ceiling, choice, most
from dayfly.planning.bursts import Bursts
from dayfly.planning.configuration import (
    CHECKPOINT_EVERY_S,
    Configuration,
    end_s,
    stage_range,
    stage_size,
)
from dayfly.planning.configuration import start_s as start_of
from dayfly.planning.data_parallel import validating_s
from dayfly.planning.function_times import passed
from dayfly.planning.interruptions import interrupted_s
from dayfly.planning.lives import pace_of, told_by
from dayfly.planning.profile import NOTHING, Affine, Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel, channel_of

if TYPE_CHECKING:
    from dayfly.planning.choose.data_parallel_problem import DataParallelProblem


def run_of(
    p: DataParallelProblem, size: SizeProfile, workers: int, step_s: float, summed_s: float
) -> tuple[float, int]:
    """Returns the seconds of a run, and the lives of each of its functions; elementwise.

    Args:
        p: the problem.
        size: of the functions.
        workers: how many.
        step_s: seconds of a step.
        summed_s: seconds in which a validation is summed.

    Raises:
        RequestError: interruptions of spot machines leave no time to train.
    """
    validation_s = validating_s(size, p.profile.validation_samples, p.batch_size, workers)
    validated = validations(p.epochs, p.validate_every)
    training_s = p.steps * step_s + validated * (validation_s + summed_s)
    return lived(p, size, workers, training_s)


def lived(
    p: DataParallelProblem, size: SizeProfile, workers: int, training_s: float
) -> tuple[float, int]:
    """Returns the seconds of a run, and the lives of each of its functions; elementwise.

    Args:
        p: the problem.
        size: of the functions.
        workers: how many.
        training_s: seconds of all steps and validations.

    Raises:
        RequestError: interruptions of spot machines leave no time to train.
    """
    ended_s = p.ending_s(size, workers)
    lives = _lives(p.platform, training_s, size.start_s.value + ended_s)
    start_s = size.init_s.value + size.start_s.value
    run_s = interrupted_s(
        training_s + lives * (start_s + ended_s),
        workers,
        p.platform,
        start_s=start_s,
        checkpoint_every_s=CHECKPOINT_EVERY_S,
    )
    return run_s, lives


def usd_beside_sums(
    p: DataParallelProblem,
    memory_mib: int,
    size: SizeProfile,
    workers: int,
    run_s: float,
    lives: int,
    steps: int,
) -> float:
    """Returns the dollars of a run but for its sums: functions, reports, servers; elementwise in
    workers, run_s, lives and steps.

    Args:
        p: the problem.
        memory_mib: of each function.
        size: its figures.
        workers: how many.
        run_s: seconds of the run.
        lives: of each function.
        steps: of an epoch.
    """
    kind = p.profile.kind_of(size)
    own_usd = p.platform.usd_per_s(memory_mib, kind.gpu_share, kind.vcpus)
    request_usd = p.platform.prices.usd_per_request if p.platform.prices else 0.0
    usd = workers * (billed_s(p.platform, run_s) * own_usd + lives * request_usd)
    if p.store is None:
        return usd
    means, share = ChannelModel.of(p.profile), size.gpu_share
    pace = pace_of(means, [memory_mib], p.platform, p.store, workers, share)
    lookers = pace.lookers
    for rank, count in ((0, 1), (1, lookers - 1), (lookers, workers - lookers)):
        told = told_by(p.epochs, pace, run_s, lives, steps, rank)
        asked = told.requests - told.puts
        each = p.store.puts_usd(told.puts, told.bytes_up) + p.store.gets_usd(asked, 0)
        usd = usd + count * (each + p.store.transfer_usd(told.bytes_up, 0))
    return usd + by_value(p.store.servers_usd, run_s) if p.store.rented else usd


def _lives(platform: FunctionPlatform, training_s: float, spare_s: float) -> int:
    """Of a function, one after another; spare_s: of each, for its start and end."""
    if platform.lifetime_max_s is None:
        return 1
    room_s = platform.lifetime_max_s - spare_s
    lives: int = most(1, ceiling(training_s / most(room_s, 1.0)))
    return lives


def billed_s(platform: FunctionPlatform, run_s: float) -> float:
    """Returns the seconds of a run that are billed: the least that a platform bills, or more.

    Elementwise.

    Args:
        platform: with prices or without.
        run_s: of the run.
    """
    least_ms = platform.prices.billing_min_ms if platform.prices else 0
    seconds: float = most(run_s, least_ms / 1000) if least_ms else run_s
    return seconds


def least_sum_s(profile: Profile, size: SizeProfile, workers: int, summed_bytes: float) -> float:
    """Returns seconds that a sum takes at least, whatever the collective; elementwise in workers.

    Args:
        profile: over a channel.
        size: of the workers.
        workers: how many there are.
        summed_bytes: of each worker.
    """
    down = size.down.peak_bytes_per_s.value
    if channel_of(profile.channel).abilities.sums:
        each_s: float = summed_bytes / min(size.up.peak_bytes_per_s.value, down)
        received = choice(workers > 1, workers * summed_bytes, 0.0)
        one_s = choice(workers > 1, each_s, 0.0)
    else:
        received = 2 * (workers - 1) * summed_bytes
        one_s = received / workers / down
    seconds: float = most(one_s, received / (profile.store_bytes_per_s or math.inf))
    return seconds


def least_run(
    p: DataParallelProblem,
    memory_mib: int,
    size: SizeProfile,
    workers: int,
    summed_bytes: float,
) -> tuple[float, float]:
    """Returns seconds and dollars that a run takes at least, whatever sums it up and how.

    Args:
        p: the problem.
        memory_mib: of each function.
        size: its figures.
        workers: how many there are; elementwise.
        summed_bytes: of the gradients and what is summed with them.

    Raises:
        RequestError: interruptions of spot machines leave no time to train.
    """
    profile = p.profile
    summed_s = least_sum_s(profile, size, workers, summed_bytes)
    apply_s = size.apply(sum(layer.trained for layer in profile.layers))
    apply_s += p.sums_a_step * p.exchanging_s(size)
    bursts, step_s = Bursts.of(size, workers, profile.shared_cores), 0.0
    for batch, part in p.shares_of_steps:
        mine = -(-batch // workers)
        backward_s = _in_one(size.backward)(mine)
        work_s = size.data(mine) + _in_one(size.forward)(mine) + backward_s + apply_s
        even_s = work_s + most(0.0, summed_s - backward_s)
        # What begins sums takes no less than it saves.
        step_s += part * bursts.step_s(even_s, work_s, 0.0, work_s)
    run_s, lives = run_of(p, size, workers, step_s, 0.0)
    kind = profile.kind_of(size)
    usd_per_s = p.platform.usd_per_s(memory_mib, kind.gpu_share, kind.vcpus)
    request_usd = p.platform.prices.usd_per_request if p.platform.prices else 0.0
    usd = workers * (billed_s(p.platform, run_s) * usd_per_s + lives * request_usd)
    if p.store is None or not p.store.rented:
        return run_s, usd
    return run_s, usd + by_value(p.store.servers_usd, run_s)


@lru_cache(maxsize=1024)
def _in_one(lines: tuple[Affine, ...]) -> Affine:
    """All layers together."""
    return sum(lines, NOTHING)


def cut_run_s(profile: Profile, c: Configuration, stepping_s: float) -> float:
    """Returns the seconds of a run of a cut model: its steps, and start, validation and end of all
    lives.

    Args:
        profile: of the job.
        c: the run.
        stepping_s: of all its steps.
    """
    stages = range(c.stages)
    start_s = max(stage_size(profile, c, k).init_s.value + start_of(profile, c, k) for k in stages)
    ending_s = max(end_s(profile, c, stage) for stage in stages)
    block = min(block_samples(c.batch_size), profile.validation_samples)
    passes_s = []
    for stage in stages:
        mine = stage_range(profile, c, stage)
        passes_s.append(
            passed(stage_size(profile, c, stage).forward[mine.start : mine.stop], block)
        )
    blocks = -(-profile.validation_samples // max(1, block))
    more_s = (
        (-(-blocks // replicas) - 1) * pass_s
        for replicas, pass_s in zip(c.layout.each, passes_s, strict=True)
    )
    validation_s = sum(passes_s) + max(0.0, *more_s)
    training_s = stepping_s + validations(c.epochs, c.validate_every) * validation_s
    room_s = math.inf if c.lifetime_s is None else c.lifetime_s - start_s - ending_s
    return training_s + max(1, math.ceil(training_s / max(room_s, 1.0))) * (start_s + ending_s)


def at_place(
    seconds: float,
    usd: float,
    workers: int,
    platform: FunctionPlatform,
    store: StoreFacts | None,
    *,
    start_s: float,
) -> tuple[float, float]:
    """Returns seconds and dollars of a run with its place's interruptions, and the store's servers.

    Elementwise in the first three.

    Args:
        seconds: of the run without them.
        usd: of the run without them.
        workers: how many are interrupted.
        platform: where they are.
        store: what they talk through; None: it costs nothing by time.
        start_s: of a function, once more.

    Raises:
        RequestError: interruptions leave no time to train.
    """
    run_s = interrupted_s(
        seconds, workers, platform, start_s=start_s, checkpoint_every_s=CHECKPOINT_EVERY_S
    )
    usd = usd * (run_s / seconds)
    if store is None or not store.rented:
        return run_s, usd
    return run_s, usd + by_value(store.servers_usd, run_s)
