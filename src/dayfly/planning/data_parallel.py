"""Steps of workers that hold all of the model, as schedules for virtual time.

    bsp        compute   |data, forward|backward   |         |      |apply, rest|   the next step
               bucket 0                   |all-reduce|              |
               bucket 1                        |all-reduce      |   |
    local SGD  compute   |step|step| ... |contribute|               |adopt|
               average                              | all-reduce    |

See `runs.protocols`: bsp.py, local_sgd.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dayfly.batches import (
    BLOCK_NUMBERS,
    Batches,
    Rounds,
    block_samples,
    block_shares,
    micro_batches,
    share,
    validation_blocks,
)
from dayfly.elementwise import least
from dayfly.planning.configuration import (
    ITEM_BYTES,
    Configuration,
    Flat,
    flat,
    stage_size,
)
from dayfly.planning.function_times import cut_backward, passed, straggling
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel, all_reduce, chain, limited
from dayfly.planning.server_ranks import server
from dayfly.planning.summed import Summed, compress_of, of_round, of_step
from dayfly.specs.streaming import sequential
from dayfly.wire.collectives import collective
from dayfly.wire.leaves import carries, leaves_of
from dayfly.wire.streams import Rank, Stream

#: Elements of bsp's tail: the loss and two wishes.
TAIL = 3
#: How often averaging goes through its buffer beside the sum: it is cleared, filled and weighted,
#: and copied back. Each is taken to cost what adding a contribution does.
PASSES_BEFORE, _PASSES_AFTER = 2.0, 1.0
#: With an outer optimizer: parameters go back, its momentum moves, it takes a step, and where the
#: next round begins is noted.
PASSES_OUTER = 4.0


def served(c: Configuration) -> bool:
    """Returns whether a server sums for all workers."""
    return c.workers > 1 and collective(c.collective, c.aggregators, c.workers).server


def flat_of(profile: Profile, configuration: Configuration) -> Flat:
    """What a step of bsp sums."""
    apart = compress_of(configuration) != "none"
    return flat(profile.layers, tail=TAIL, apart=apart, listed=profile.listed)


def buckets_of(profile: Profile, configuration: Configuration) -> tuple[Summed, ...]:
    """Returns what a step of bsp sums, one bucket after another."""
    return of_step(flat_of(profile, configuration), compress_of(configuration))


def averaged_of(
    profile: Profile, configuration: Configuration, steps: int | None = None
) -> tuple[Summed, ...]:
    """Returns what a round sums: one buffer, or one fragment after another.

    Args:
        profile: of the job.
        configuration: of the run; of bsp, each step sums gradients, and a round nothing.
        steps: of the round; None: of the longest one.
    """
    c, exchange = configuration, configuration.protocol.of_round
    if exchange is None:
        return ()
    if steps is None:
        steps = Rounds(Batches(profile.samples, c.batch_size), c.round_steps).longest
    summed = of_round(profile, exchange, steps, compress_of(c))
    return (summed,) if c.protocol.streaming is None else _fragments(profile, c, summed)


def _fragments(profile: Profile, c: Configuration, summed: Summed) -> tuple[Summed, ...]:
    """What is summed of outer gradients that are streamed: fragments of the profile's layers, or of
    equal sizes where these are fewer; the last one has all that belongs to none."""
    assert c.streaming is not None
    trained = [layer.trained // ITEM_BYTES for layer in profile.layers if layer.trained]
    many = c.streaming.fragments
    if many <= len(trained):
        sizes = [sum(trained[run.start : run.stop]) for run in sequential(trained, many)]
    else:
        sizes = [len(share(sum(trained), number, many)) for number in range(many)]
    sizes[-1] += summed.length - sum(sizes)
    *first, last = (Summed(size, summed.compress) for size in sizes)
    return (*first, replace(last, tail=summed.tail))


def ranks(
    profile: Profile, c: Configuration, means: ChannelModel, batches: Sequence[int]
) -> list[Rank]:
    """All workers, and the server if there is one, taking a round: of bsp a step, of one batch."""
    each = sizes_of(profile, c)
    local = c.protocol.averages
    passes = c.pieces * (len(batches) if local else 1)
    make = _averaging if local else _synchronous
    workers = [
        make(profile, c, means, straggling(size, rank, c.workers, passes), rank, batches)
        for rank, size in enumerate(each)
    ]
    made = [
        limited(size, means, rank, streams)
        for rank, (size, streams) in enumerate(zip(each, workers, strict=True))
    ]
    if served(c):
        made.append(server(each[0], means, c.workers, workers[0]))
    return made


def sizes_of(profile: Profile, c: Configuration) -> list[SizeProfile]:
    """Returns the functions of each worker."""
    kinds = [stage_size(profile, c, kind) for kind in range(len(c.kinds))]
    return [kinds[c.kind_of(rank)] for rank in range(c.workers)]


def _synchronous(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    size: SizeProfile,
    rank: int,
    batches: Sequence[int],
) -> list[Stream]:
    buffer, (batch,) = flat_of(profile, c), batches
    seconds = computing(c, size, buffer, rank, batch)
    streams = [Stream(plan=chain(len(seconds)), works_s=seconds)]
    early = len(buffer.whole_after)
    for number, summed in enumerate(buckets_of(profile, c)):
        # Those that were whole before the backward pass's end; the others come after all of it.
        gate = len(seconds) - 1 - early + number
        streams.append(
            all_reduce(
                c.collective,
                c.aggregators,
                rank,
                c.workers,
                summed,
                means,
                name=("grad", number),
                after=((0, gate if number < early else None),),
                pool="buckets",
                begin_s=size.sum_cpu_s,
                virtual_workers=c.virtual_workers,
            )
        )
    trained_bytes = sum(layer.trained for layer in profile.layers)
    ending = (size.apply(trained_bytes) + size.step_s.value) * size.speed
    after = tuple((number, None) for number in range(len(streams)))
    return [*streams, Stream(plan=chain(1), after=after, works_s=[ending])]


def computing(
    c: Configuration, size: SizeProfile, buffer: Flat, rank: int, batch: int
) -> list[float]:
    """CPU seconds of a step's pieces; the last backward pass is cut where buckets are whole."""
    of, parts, shares = c.leaves, c.micro_batches, c.shares
    leaves = leaves_of(rank, c.workers, of)
    micros = [
        one for leaf in leaves for one in micro_batches(batch, leaf, of, parts, weights=shares)
    ]
    speed = size.speed
    if not micros:
        return [0.0] * (2 + len(buffer.whole_after))
    whole = [speed * (size.data(one.samples) + passed(size.forward, one.samples)) for one in micros]
    whole[:-1] = [
        seconds + speed * passed(size.backward, one.samples)
        for seconds, one in zip(whole[:-1], micros[:-1], strict=True)
    ]
    last = cut_backward(size.backward, micros[-1].samples, buffer.whole_after)
    return [sum(whole) + adding_s(size, c, leaves, buffer), *(speed * part for part in last)]


def adding_s(size: SizeProfile, c: Configuration, leaves: range, buffer: Flat) -> float:
    """Returns the CPU seconds in which a worker keeps its leaves apart and adds them.

    Each addition, and each copy of a leaf, is taken to cost what adding a contribution does.

    Args:
        size: of the worker's function.
        c: with virtual workers, or without.
        leaves: of the worker.
        buffer: that each leaf fills.
    """
    added = carries(leaves, c.leaves)
    times = sum(added) + added[:-1].count(0)
    return times * size.speed * size.reduce_s_per_byte * ITEM_BYTES * buffer.length


def inner_steps_s(
    profile: Profile, c: Configuration, size: SizeProfile, rank: int, batches: Sequence[int]
) -> list[float]:
    """Returns the CPU seconds of each step that a worker takes by itself.

    Args:
        profile: of the job.
        c: of a model that is not cut.
        size: of the worker's function.
        rank: of the worker.
        batches: of the steps.
    """
    trained_bytes = sum(layer.trained for layer in profile.layers)
    speed = size.speed
    seconds = []
    for batch in batches:
        micros = micro_batches(batch, rank, c.workers, c.micro_batches)
        steps = [
            size.data(one.samples)
            + passed(size.forward, one.samples)
            + passed(size.backward, one.samples)
            for one in micros
        ]
        ending = size.apply(trained_bytes) if micros else 0.0
        seconds.append(speed * (sum(steps) + ending))
    return seconds


def copying_s(size: SizeProfile, c: Configuration, sums: Sequence[Summed]) -> tuple[float, float]:
    """Returns the seconds in which a round goes through its buffers, before its sums and after.

    Args:
        size: of the worker's function.
        c: of the run.
        sums: as of `averaged_of`; none: nothing is copied.
    """
    copy_s = size.reduce_s_per_byte * ITEM_BYTES * sum(one.elements for one in sums)
    return PASSES_BEFORE * copy_s, (PASSES_OUTER if c.protocol.own else _PASSES_AFTER) * copy_s


def _averaging(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    size: SizeProfile,
    rank: int,
    batches: Sequence[int],
) -> list[Stream]:
    speed, seconds = size.speed, inner_steps_s(profile, c, size, rank, batches)
    sums = averaged_of(profile, c)
    before_s, after_s = copying_s(size, c, sums)
    seconds.append(speed * before_s)
    averages = [
        all_reduce(
            c.collective,
            c.aggregators,
            rank,
            c.workers,
            summed,
            means,
            name=("avg", number),
            after=((number, None),),
            pool="caller",
            begin_s=size.sum_cpu_s,
        )
        for number, summed in enumerate(sums)
    ]
    # What a step takes beside passes is the flat buffer's, of which a round has one.
    adopting = [speed * (size.step_s.value + after_s)]
    adopt = Stream(plan=chain(1), after=((len(sums), None),), works_s=adopting)
    return [Stream(plan=chain(len(seconds)), works_s=seconds), *averages, adopt]


def validation(profile: Profile, c: Configuration, means: ChannelModel) -> list[Rank]:
    """All workers validating: each its blocks, then the sums of all."""
    each = sizes_of(profile, c)
    shares = block_shares(validation_blocks(profile.validation_samples, c.batch_size), c.workers)
    made = []
    for rank, size in enumerate(each):
        seconds = size.speed * sum(_evaluated(size, len(block)) for block in shares[rank])
        sums = all_reduce(
            c.collective,
            c.aggregators,
            rank,
            c.workers,
            Summed(summed_numbers(profile, c.batch_size)),
            means,
            name="val",
            after=((0, None),),
            pool="caller",
            itemsize=8,
            begin_s=size.sum_cpu_s,
        )
        made.append([Stream(plan=chain(1), works_s=[seconds]), sums])
    ranks = [
        limited(size, means, rank, streams)
        for rank, (size, streams) in enumerate(zip(each, made, strict=True))
    ]
    if served(c):
        ranks.append(server(each[0], means, c.workers, made[0]))
    return ranks


def summed_numbers(profile: Profile, batch_size: int) -> int:
    """Numbers that all workers of a validation sum: some of each block, and each metric."""
    blocks = -(-profile.validation_samples // block_samples(batch_size))
    return BLOCK_NUMBERS * blocks + profile.measures - BLOCK_NUMBERS


def validating_s(size: SizeProfile, samples: int, batch_size: int, workers: int) -> float:
    """Seconds of the worker that has the most blocks of a validation of so many samples."""
    return blocks_s(size, samples, block_samples(batch_size), workers)


def blocks_s(size: SizeProfile, samples: int, block: int, workers: int) -> float:
    """Returns the same by the samples of a block; elementwise but for the size.

    Args:
        size: of the workers' functions.
        samples: of a validation.
        block: samples of a block.
        workers: that share the blocks.
    """
    blocks = -(-samples // block)
    return -(-blocks // workers) * _evaluated(size, least(block, samples))


def _evaluated(size: SizeProfile, samples: int) -> float:
    return size.data(samples) + passed(size.forward, samples)
