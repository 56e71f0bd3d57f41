"""Steps of many workers, by the closed forms of their collectives.

Virtual time goes through every message of every worker, of which n workers have n^2 and more. So
beyond `MOST_SIMULATED` workers a step is what its parts take, each worker being like all others:

    all-reduce   the closed form of its schedule (wire.collectives), at the rate of its messages
    bsp          every bucket's all-reduce begins when it is whole and the one before is through
    local SGD    the steps of a round, then the average, and the copies of both
    cut models   one replica's pipeline in virtual time, then the sums of the largest stage; the
                 whole pipeline, where stages have different numbers of replicas

The rate of messages of m bytes is the least of what the line carries, of one latency for as many
messages as are under way, and of the CPU time of each. What the CPU's periods make of a step is in
`planning.bursts`. What it leaves out: that buckets share the link. See
tests/planning/test_closed_form.py for how far both are apart where both run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dayfly.batches import BLOCK_NUMBERS
from dayfly.catalogue.metering import StoreTraffic
from dayfly.planning import data_parallel, staged, staged_validation
from dayfly.planning.bursts import Bursts
from dayfly.planning.closed_form_kinds import many_unequal
from dayfly.planning.closed_sums import (
    all_reduced_s,
    asked_of,
    begun_s,
    handled_s,
    hosts_s,
    passes_s,
    shared_among,
    steps_of_parts,
    sum_of,
    whole_s_of,
)
from dayfly.planning.configuration import (
    Configuration,
    elements,
    flat,
    stage_layers,
    stage_memory_mib,
    stage_range,
    stage_size,
)
from dayfly.planning.function_times import slowest
from dayfly.planning.local_rounds import SumTimes, reduced_at_s
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.planning.summed import Summed
from dayfly.planning.timing import Steps, moved_by, steps_of, timed, together, volume
from dayfly.wire.collectives import SMALL_SUM
from dayfly.wire.collectives.cost import Cost
from dayfly.wire.leaves import leaves_of
from dayfly.wire.simulation import run
from dayfly.wire.streams import HostLink, Rank, Shared

#: Workers whose messages are gone through one by one.
MOST_SIMULATED = 64


def many_step(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    batches: Sequence[int],
    *,
    closes: bool = False,
) -> tuple[Steps, Sequence[StoreTraffic]]:
    """A round, which is a step of bsp, and what each worker moves: an equal part of its role's.

    closes: whether it ends an epoch; what is streamed is waited for then.
    """
    if c.cut:
        return _staged_step(profile, c, means, batches)
    if len(c.kinds) > 1:
        return many_unequal(profile, c, means, batches[0])
    local = c.protocol.averages
    passes = c.pieces * (len(batches) if local else 1)
    size = slowest(stage_size(profile, c, 0), c.workers, passes)
    apply_s = size.apply(sum(layer.trained for layer in profile.layers))
    if local:
        averaged = data_parallel.averaged_of(profile, c)
        summed = [
            sum_of(c.collective, c.aggregators, asked_of(c.workers, one, means, size))
            for one in averaged
        ]
        compute_s = sum(_passes_s(size, c, batch) for batch in batches)
        overhead_s = len(batches) * apply_s + size.step_s.value
        overhead_s += sum(data_parallel.copying_s(size, c, averaged))
        sums = [SumTimes(one.seconds, one.carried_s, one.busiest_s) for one in summed]
        reduced_s = reduced_at_s(c, compute_s, apply_s, len(batches), sums, closes=closes)
    else:
        buffer = data_parallel.flat_of(profile, c)
        summed = [
            sum_of(
                c.collective,
                c.aggregators,
                asked_of(c.workers, one, means, size),
                c.virtual_workers,
            )
            for one in data_parallel.buckets_of(profile, c)
        ]
        leaves = leaves_of(0, c.workers, c.leaves)
        compute_s = _passes_s(size, c, batches[0])
        compute_s += data_parallel.adding_s(size, c, leaves, buffer)
        mine = -(-batches[0] // c.workers)
        begin = whole_s_of(size.backward, buffer, compute_s, -(-mine // c.pieces))
        reduced_s = all_reduced_s(begin, summed)
        overhead_s = apply_s + size.step_s.value
    bursts = Bursts.of(size, c.workers, profile.shared_cores)
    steps = steps_of_parts(
        compute_s, reduced_s, overhead_s, bursts, means.link(size), summed, c.workers
    )
    return steps, shared_among(summed, c.workers)


def many_validation(
    profile: Profile, c: Configuration, means: ChannelModel
) -> tuple[float, Sequence[StoreTraffic]]:
    """Seconds of a validation, and what each worker moves."""
    if c.cut:
        seconds, found = 0.0, [StoreTraffic()] * c.workers
        size = stage_size(profile, c, 0)
        mine = -(-profile.validation_samples // c.members)
        whole = replace(_beside_all(profile, c), validation_samples=mine)
        beside = _of_replica(means, c)
        for one in staged_validation.validation(whole, _one_replica(c), means):
            seconds += one.count * timed(one.ranks, 1, lambda number: False, beside).step_s
            moved = [moved_by(rank.streams, means) for rank in one.ranks for _ in range(c.members)]
            numbers = BLOCK_NUMBERS * c.members * c.micro_batches
            tail = shared_among([_tail(numbers, c, means, size)], c.workers)
            once = [together(pair) for pair in zip(moved, tail, strict=True)]
            for _ in range(one.count):
                found = [together(pair) for pair in zip(found, once, strict=True)]
        return seconds, found
    sizes = [stage_size(profile, c, kind) for kind in range(len(c.kinds))]
    samples = profile.validation_samples
    seconds = max(
        data_parallel.validating_s(size, samples, c.batch_size, c.workers) for size in sizes
    )
    length = data_parallel.summed_numbers(profile, c.batch_size)
    asked = [asked_of(c.workers, Summed(length), means, size, itemsize=8) for size in sizes]
    sums = [sum_of(c.collective, c.aggregators, one) for one in asked]
    return seconds + max(one.seconds for one in sums), shared_among(sums[:1], c.workers)


def many_requests(
    profile: Profile, c: Configuration, means: ChannelModel, batches: Sequence[int]
) -> tuple[int, int]:
    """Returns the puts and gets of all workers in a round, as `many_step` has them.

    Args:
        profile: of the job.
        c: of the run.
        means: ways to the store.
        batches: samples of each step of the round.

    Raises:
        RequestError: as of `sum_of`.
    """
    if not c.cut:
        # A round that ends an epoch has as many requests, and may be shorter than `--overlap`.
        whole = volume(many_step(profile, c, means, batches, closes=True)[1])
        return whole.puts, whole.gets
    # The schedules of the passes are those that virtual time takes, which are made once.
    even = c.layout.even
    some = range(1) if even else range(c.members)
    passes = staged.passages(profile, c, means, batches[0], some)
    size = stage_size(profile, c, 0)
    norms = 2 * sum(len(elements(layer)) for layer in profile.layers)
    lengths = (staged.TAIL, norms) if c.clips else (staged.TAIL,)
    every: list[Cost | StoreTraffic] = [
        sum_of(*SMALL_SUM, asked_of(c.workers, Summed(n), means, size, itemsize=8)) for n in lengths
    ]
    for summed in _stage_sums(profile, c, means):
        every += summed
    for passage in passes:
        every += [moved_by([passage], means)] * (c.members if even else 1)
    return sum(one.puts for one in every), sum(one.gets for one in every)


def _staged_step(
    profile: Profile, c: Configuration, means: ChannelModel, batches: Sequence[int]
) -> tuple[Steps, Sequence[StoreTraffic]]:
    """The pipeline; each stage's sums from when its workers have computed; the latest counts."""
    ranks, sums = _piped(profile, c, means, batches), _stage_sums(profile, c, means)
    took = run(ranks, _of_replica(means, c) if c.layout.even else means.shared)
    once = steps_of(ranks[0].streams, took[0], 1, lambda at: at == len(took[0]) - 1)
    step_s, mine = once.step_s, -(-batches[0] // c.members)
    last = -(-mine // c.micro_batches)
    begin: list[list[float]] = [[] for _ in sums]
    end: list[float] = []
    for rank, moments in enumerate(took):
        stage = rank if c.layout.even else c.layout.stage_rank(rank).stage
        size, mine_of = stage_size(profile, c, stage), stage_range(profile, c, stage)
        buffer = flat(stage_layers(profile, c, stage), tail=0)
        backward = size.backward[mine_of.start : mine_of.stop]
        # A replica may have none of an epoch's last samples.
        *before_s, ended_s = (max(stream.done_s, default=0.0) for stream in moments)
        applying_s = ended_s - max(before_s)
        whole_s = whole_s_of(backward, buffer, before_s[0], last)[: len(sums[stage])]
        step_s = max(step_s, all_reduced_s(whole_s, sums[stage]) + applying_s)
        # One step has CPU time of periods before it, which it would not have after many others.
        bursts = Bursts.of(size, c.workers, profile.shared_cores)
        rank_s = _rank_work_s(ranks[rank], means, size, sums[stage], c.members_of(stage))
        step_s = max(step_s, bursts.slowed * rank_s)
        begin[stage] = [*map(max, begin[stage], whole_s)] if begin[stage] else whole_s
        end.append(applying_s)
    if means.shared.host is not None:
        step_s = max(step_s, hosts_s(means.shared.host, c.layout, begin, sums) + min(end))
    breakdown = dict(once.breakdown)
    breakdown["transfer"] += step_s - once.step_s
    steps = Steps(step_s=step_s, breakdown=breakdown)
    return steps, _staged_moved(profile, c, means, ranks, sums)


def _rank_work_s(
    rank: Rank, means: ChannelModel, size: SizeProfile, sums: Sequence[Cost], members: int
) -> float:
    """Seconds in which a worker's processor computes a step, and handles its messages."""
    link, moved = means.link(size), moved_by(rank.streams, means)
    passes_s = sum(sum(stream.works_s) for stream in rank.streams) / size.speed
    passages_s = link.handled_s(moved.puts, moved.gets, moved.bytes_up, moved.bytes_down)
    return passes_s + passages_s + begun_s(link, sums) + handled_s(link, sums, members)


def _piped(
    profile: Profile, c: Configuration, means: ChannelModel, batches: Sequence[int]
) -> Sequence[Rank]:
    """What the workers of one replica do, as all do; where stages have different numbers of
    replicas, what all workers do, whose messages between stages are few. Without stages' sums."""
    beside = _beside_all(profile, c)
    if not c.layout.even:
        return staged.ranks(beside, c, means, batches[0], sums=False)
    return staged.ranks(beside, _one_replica(c), means, -(-batches[0] // c.members))


def _stage_sums(profile: Profile, c: Configuration, means: ChannelModel) -> list[list[Cost]]:
    """The sums of each stage's buckets over its replicas; none of one replica among several."""
    found = []
    for stage, members in enumerate(c.layout.each):
        size = stage_size(profile, c, stage)
        buckets = flat(stage_layers(profile, c, stage), tail=0).buckets
        each = {
            n: sum_of(
                c.collective,
                c.aggregators_of(stage),
                asked_of(
                    members,
                    Summed(n),
                    means,
                    size,
                    groups=c.stages,
                    first=c.layout.rank(stage, 0),
                ),
                c.virtual_workers,
            )
            for n in (set(buckets) if members > 1 or c.layout.even else ())
        }
        found.append([each[n] for n in buckets if n in each])
    return found


def _staged_moved(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    ranks: Sequence[Rank],
    sums: Sequence[Sequence[Cost]],
) -> Sequence[StoreTraffic]:
    parts = [shared_among(*pair) for pair in zip(sums, c.layout.each, strict=True)]
    if not c.layout.even:  # their small sums are in the ranks
        every = [one for part in parts for one in part]
        pairs = zip(ranks, every, strict=True)
        return [together((moved_by(rank.streams, means), one)) for rank, one in pairs]
    moved = [
        together((moved_by(rank.streams, means), one))
        for rank, part in zip(ranks, parts, strict=True)
        for one in part
    ]
    tail = _tail(staged.TAIL, c, means, stage_size(profile, c, 0))
    return [together(pair) for pair in zip(moved, shared_among([tail], c.workers), strict=True)]


def _beside_all(profile: Profile, c: Configuration) -> Profile:
    """With functions as slow as they are beside all workers, and not beside one replica's; and as
    those of the slowest replica are."""
    sizes = {stage_memory_mib(c, stage): stage_size(profile, c, stage) for stage in range(c.stages)}
    late = [slowest(size, c.members, c.micro_batches) for size in sizes.values()]
    known = tuple(replace(one, crowd_cores=0.0, jitter=0.0) for one in late)
    return replace(profile, sizes=known)


def _one_replica(c: Configuration) -> Configuration:
    return replace(
        c,
        workers=c.stages,
        replicas=1,
        batch_size=-(-c.batch_size // c.members),
        virtual_workers=None if c.virtual_workers is None else c.micro_batches,
    )


def _of_replica(means: ChannelModel, c: Configuration) -> Shared:
    """One replica's part of what the store carries for all, and each host for those on it.

    A host has the same stage of several replicas, or else several stages of all of them.
    """
    host = means.shared.host
    if host is not None:
        stages = max(1, host.functions // c.members)
        host = HostLink(functions=stages, bytes_per_s=stages * host.share(stages * c.members))
    return Shared(store_bytes_per_s=means.shared.store_bytes_per_s / c.members, host=host)


def _tail(length: int, c: Configuration, means: ChannelModel, size: SizeProfile) -> Cost:
    """The small sum of all ranks, less that of each replica alone, which virtual time has."""
    whole, part = (
        sum_of(*SMALL_SUM, asked_of(members, Summed(length), means, size, itemsize=8))
        for members in (c.workers, c.stages)
    )
    return Cost(
        puts=whole.puts - c.members * part.puts,
        gets=whole.gets - c.members * part.gets,
        bytes_up=whole.bytes_up - c.members * part.bytes_up,
        bytes_down=whole.bytes_down - c.members * part.bytes_down,
    )


def _passes_s(size: SizeProfile, c: Configuration, batch: int) -> float:
    """Seconds of the worker with most samples."""
    return passes_s(size, c, -(-batch // c.workers))
