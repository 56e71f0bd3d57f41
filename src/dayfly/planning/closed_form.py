"""Steps of many workers, by the closed forms of their collectives.

Virtual time goes through every message of every worker, of which n workers have n^2 and more. So
beyond `MOST_SIMULATED` workers a step is what its parts take, each worker being like all others:

    all-reduce   the closed form of its schedule (wire.collectives), at the rate of its messages
    bsp          every bucket's all-reduce begins when it is whole and the one before is through
    local SGD    the steps of a round, then the average
    cut models   one replica's pipeline in virtual time, then the sums of the largest stage

The rate of messages of m bytes is the least of what the line carries, of one latency for as many
messages as are under way, and of the CPU time of each. What it leaves out: the CPU's periods, and
that buckets share the link. See tests/planning/test_many.py for how far both are apart where
both run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from dayfly.batches import BLOCK_NUMBERS, share
from dayfly.catalogue.metering import Moved
from dayfly.planning import data_parallel, staged
from dayfly.planning.configuration import (
    ITEM_BYTES,
    Configuration,
    flat,
    stage_layers,
    stage_memory_mib,
    stage_size,
)
from dayfly.planning.function_times import cut_backward, passed, slowest
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel, Link, travelling_bytes
from dayfly.planning.timing import Steps, moved_by, timed, together
from dayfly.wire.collectives import most_chunks, no_closed_form
from dayfly.wire.collectives.k_reduce import k_reduce_bytes, k_reduce_requests, k_reduce_s
from dayfly.wire.collectives.overlapped import (
    overlapped_bytes,
    overlapped_requests,
    overlapped_s,
)
from dayfly.wire.collectives.pipelined import pipelined_s
from dayfly.wire.collectives.push_pull import push_pull_bytes, push_pull_requests, push_pull_s
from dayfly.wire.collectives.ring import chunked_ring_s, ring_bytes, ring_requests
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import Span, chunks, split, width
from dayfly.wire.shaping import PIECE_S

#: Workers whose messages are gone through one by one.
MOST_SIMULATED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceCost:
    """An all-reduce of many. seconds: alone. carried_s: the same without latencies. puts, gets,
    bytes_up, bytes_down: of all members."""

    seconds: float
    carried_s: float
    puts: int
    gets: int
    bytes_up: int
    bytes_down: int


def sum_of(
    algorithm: str,
    aggregators: int | None,
    members: int,
    length: int,
    means: ChannelModel,
    size: SizeProfile,
    codec: str = "none",
    itemsize: int = ITEM_BYTES,
) -> AllReduceCost:
    """The all-reduce of `length` elements by many members on functions of one size."""
    n, chunk = members, max(1, means.chunk_bytes // itemsize)
    s = length * itemsize if codec == "none" else travelling_bytes(codec, length)
    count = len(chunks(split(length, n)[0], chunk, most_chunks(algorithm)))
    if n == 1:
        return AllReduceCost(seconds=0.0, carried_s=0.0, puts=0, gets=0, bytes_up=0, bytes_down=0)
    owners = {"all-reduce": 1, "k-reduce": aggregators or 1}.get(algorithm, n)
    pushed = len(chunks(Span(0, length), chunk))
    parts = {"overlapped": n * count, "ring": n * count, "push-pull": pushed}
    message = s / parts.get(algorithm, owners)
    rate = _rate(size, means, message)
    latency_s = max(size.up.latency_s.value, size.down.latency_s.value)
    match algorithm:
        case "overlapped":
            takes_s = partial(overlapped_s, s, n, count, rate)
            requests, moved = overlapped_requests(n, length, chunk), overlapped_bytes(s, n)
        case "ring":
            takes_s = partial(chunked_ring_s, s, n, message, rate)
            requests, moved = ring_requests(n, count), ring_bytes(s, n)
        case "push-pull":
            takes_s = partial(push_pull_s, s, n, _first_through(message, rate, means), rate)
            requests, moved = push_pull_requests(n, pushed), push_pull_bytes(s, n)
        case "pipelined":
            takes_s = partial(pipelined_s, s, n, rate)
            requests, moved = k_reduce_requests(n, n), k_reduce_bytes(s, n)
        case "all-reduce" | "k-reduce" | "scatter-reduce":
            takes_s = partial(k_reduce_s, s, n, owners, rate)
            requests, moved = k_reduce_requests(n, owners), k_reduce_bytes(s, n)
        case _:
            raise no_closed_form(algorithm)
    copies = (n - 1) * _to_everyone(algorithm, n, owners, count) if means.direct else 0
    puts, gets = requests
    up, down = moved
    if copies:
        up += (n - 2) * s  # each sum leaves its owner once for each reader
    return AllReduceCost(
        seconds=takes_s(latency_s) + size.sum_cpu_s / size.speed,
        carried_s=takes_s(0.0),
        puts=puts,
        gets=gets,
        bytes_up=up + HEADER_BYTES * (puts + (copies - copies // (n - 1) if copies else 0)),
        bytes_down=down + HEADER_BYTES * gets,
    )


def _to_everyone(algorithm: str, n: int, owners: int, count: int) -> int:
    """Messages of all members that everyone reads."""
    if algorithm in ("ring", "push-pull"):
        return 0
    return n * count if algorithm == "overlapped" else owners


def _first_through(message: float, rate: float, means: ChannelModel) -> float:
    """Bytes that are carried until the first message is through: large ones share the line in
    pieces with those that are under way beside them."""
    together = width(means.in_flight, means.chunk_bytes, round(message))
    return message * together if message / rate > PIECE_S else message


def _rate(size: SizeProfile, means: ChannelModel, message: float) -> float:
    """Bytes of payload a second of messages of this size, in the slower direction."""
    link = Link.of(size, means)
    slowest_s = max(link.up.occupied_s(message), link.down.occupied_s(message))
    return message / slowest_s if slowest_s else float("inf")


def many_step(
    profile: Profile, c: Configuration, means: ChannelModel, batches: Sequence[int]
) -> tuple[Steps, Sequence[Moved]]:
    """A round, which is a step of bsp, and what each worker moves: an equal part."""
    if c.cut:
        return _staged_step(profile, c, means, batches)
    local = c.protocol.averages
    passes = c.micro_batches * (len(batches) if local else 1)
    size = slowest(stage_size(profile, c, 0), c.workers, passes)
    apply_s = size.apply(sum(layer.trained for layer in profile.layers))
    if local:
        length = data_parallel.averaged_of(profile, c)
        summed = [sum_of(c.collective, c.aggregators, c.workers, length, means, size)]
        compute_s = sum(_passes_s(size, c, batch) for batch in batches)
        overhead_s = len(batches) * apply_s + size.step_s.value
        reduced_s = compute_s + summed[0].seconds
    else:
        buffer = data_parallel.flat_of(profile, c)
        last = len(buffer.buckets) - 1
        summed = [
            sum_of(
                c.collective,
                c.aggregators,
                c.workers,
                elements,
                means,
                size,
                c.compress if number < last else "none",
            )
            for number, elements in enumerate(buffer.buckets)
        ]
        compute_s = _passes_s(size, c, batches[0])
        mine = -(-batches[0] // c.workers)
        samples = -(-mine // c.micro_batches)
        pieces = cut_backward(size.backward, samples, buffer.whole_after)
        reduced_s = _reduced_s(compute_s, pieces, summed)
        overhead_s = apply_s + size.step_s.value
    return _steps(compute_s, reduced_s, overhead_s), _shared(summed, c.workers)


def many_validation(
    profile: Profile, c: Configuration, means: ChannelModel
) -> tuple[float, Sequence[Moved]]:
    """Seconds of a validation, and what each worker moves."""
    if c.cut:
        seconds, found = 0.0, [Moved()] * c.workers
        size = stage_size(profile, c, 0)
        mine = -(-profile.validation_samples // c.replicas)
        whole = replace(_beside_all(profile, c), validation_samples=mine)
        for ranks, count in staged.validation(whole, _one_replica(c), means):
            seconds += count * timed(ranks, 1, lambda number: False).step_s
            moved = [moved_by(rank, means) for rank in ranks for _ in range(c.replicas)]
            numbers = BLOCK_NUMBERS * c.replicas * c.micro_batches
            tail = _shared([_tail(numbers, c, means, size)], c.workers)
            once = [together(pair) for pair in zip(moved, tail, strict=True)]
            for _ in range(count):
                found = [together(pair) for pair in zip(found, once, strict=True)]
        return seconds, found
    size = stage_size(profile, c, 0)
    seconds = data_parallel.validating_s(size, profile.validation_samples, c.batch_size, c.workers)
    numbers = data_parallel.summed_numbers(profile, c.batch_size)
    summed = sum_of(c.collective, c.aggregators, c.workers, numbers, means, size, itemsize=8)
    return seconds + summed.seconds, _shared([summed], c.workers)


def _staged_step(
    profile: Profile, c: Configuration, means: ChannelModel, batches: Sequence[int]
) -> tuple[Steps, Sequence[Moved]]:
    """One replica's pipeline, then the sums of the stage whose take longest."""
    mine = [-(-batch // c.replicas) for batch in batches]
    ranks = staged.ranks(_beside_all(profile, c), _one_replica(c), means, mine)
    once = timed(ranks, 1, lambda number: number == len(ranks[0].streams) - 1)
    sums, moved = [], []
    for stage in range(c.stages):
        size = stage_size(profile, c, stage)
        buffer = flat(stage_layers(profile, c, stage), tail=0)
        summed = [
            sum_of(c.collective, c.aggregators, c.replicas, elements, means, size)
            for elements in buffer.buckets
        ]
        sums.append(sum(one.seconds for one in summed))
        passing = moved_by(ranks[stage], means)
        moved += [together((passing, one)) for one in _shared(summed, c.replicas)]
    tail = _tail(3, c, means, stage_size(profile, c, 0))
    moved = [together(pair) for pair in zip(moved, _shared([tail], c.workers), strict=True)]
    took = dict(once.breakdown)
    took["transfer"] += max(sums)
    return Steps(step_s=once.step_s + max(sums), breakdown=took), moved


def _reduced_s(compute_s: float, pieces: Sequence[float], sums: Sequence[AllReduceCost]) -> float:
    """When all buckets are summed: their bytes go one after another over one link, while one's
    latencies are another's transfers."""
    reduced_s = 0.0
    for number, one in enumerate(sums):
        whole_s = compute_s - sum(pieces[number + 1 :])
        carried_s = sum(later.carried_s for later in sums[number:])
        reduced_s = max(reduced_s, whole_s + one.seconds, whole_s + carried_s)
    return reduced_s


def _beside_all(profile: Profile, c: Configuration) -> Profile:
    """With functions as slow as they are beside all workers, and not beside one replica's; and as
    those of the slowest replica are."""
    sizes = {stage_memory_mib(c, stage): stage_size(profile, c, stage) for stage in range(c.stages)}
    late = [slowest(size, c.replicas, c.micro_batches) for size in sizes.values()]
    known = tuple(replace(one, crowd_cores=0.0, jitter=0.0) for one in late)
    return replace(profile, sizes=known)


def _one_replica(c: Configuration) -> Configuration:
    return replace(
        c, workers=c.stages, replicas=1, batch_size=-(-c.batch_size // c.replicas), clips=c.clips
    )


def _tail(length: int, c: Configuration, means: ChannelModel, size: SizeProfile) -> AllReduceCost:
    """The small sum of all ranks, less that of each replica alone, which virtual time has."""
    whole = sum_of("k-reduce", 1, c.workers, length, means, size, itemsize=8)
    part = sum_of("k-reduce", 1, c.stages, length, means, size, itemsize=8)
    return AllReduceCost(
        seconds=whole.seconds,
        carried_s=whole.carried_s,
        puts=whole.puts - c.replicas * part.puts,
        gets=whole.gets - c.replicas * part.gets,
        bytes_up=whole.bytes_up - c.replicas * part.bytes_up,
        bytes_down=whole.bytes_down - c.replicas * part.bytes_down,
    )


def _passes_s(size: SizeProfile, c: Configuration, batch: int) -> float:
    """Seconds of the worker with most samples."""
    mine = -(-batch // c.workers)
    micros = [len(share(mine, part, c.micro_batches)) for part in range(c.micro_batches)]
    return sum(
        size.data(n) + passed(size.forward, n) + passed(size.backward, n) for n in micros if n
    )


def _steps(compute_s: float, reduced_s: float, overhead_s: float) -> Steps:
    return Steps(
        step_s=reduced_s + overhead_s,
        breakdown={
            "compute": compute_s,
            "overhead": overhead_s,
            "transfer": reduced_s - compute_s,
            "sync": 0.0,
        },
    )


def _shared(sums: Sequence[AllReduceCost], members: int) -> list[Moved]:
    """Each member's part of what all move, as equal as can be."""
    wholes = [
        sum(getattr(one, what) for one in sums)
        for what in ("puts", "gets", "bytes_up", "bytes_down")
    ]
    found = []
    for member in range(members):
        puts, gets, up, down = (len(share(whole, member, members)) for whole in wholes)
        found.append(
            Moved(puts=puts, gets=gets, requests=puts + gets, bytes_up=up, bytes_down=down)
        )
    return found
