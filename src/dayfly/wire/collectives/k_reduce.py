"""Reduce at K of n ranks: FasDL's K-REDUCE (sections IV-A and V), with LambdaML's two at its ends.

Ranks 0 to K-1 are the aggregators. The buffer is cut into K shards; rank j is in charge of shard j.

    phase 1  every rank uploads the shards that others are in charge of             `part`
    phase 2  every aggregator downloads the n-1 contributions to its shard, sums them up in rank
             order, and uploads the sum                                             `sum`
    phase 3  every rank downloads the sums of the others

    K = 2, n = 3
    rank 0   uplink    |part>1|             |sum 0|               in charge of shard 0
             downlink         |part<1|part<2|     |sum 1|
             compute                        |reduce, drop parts|
    rank 2   uplink    |part>0|part>1|                            in charge of none
             downlink                             |sum 0|sum 1|

Under the hybrid asynchronous protocol only aggregators wait for sums. The others run phase 1 of a
step (`contributing`) and phase 3 of the step before (`reading`); `hybrid_costs` has the costs.

K = n is scatter-reduce, LambdaML's form (FuncPipe section 3.3, figure 4a, equation 1). K = 1 is
LambdaML's AllReduce (FasDL figure 2a): the fewest requests, n puts and 2(n-1) gets, and the most
time. A barrier is that of nothing. Fewer aggregators are fewer requests and more time. Phases run
one after another, so uplink and downlink are never busy at once. Contributions are summed in rank
order, 0 to n-1, whoever is in charge; every rank then holds the same bits.

A contribution is dropped once its sum is stored: the sums alone are the message log.
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial

from dayfly.elementwise import choice, least, most
from dayfly.wire.collectives.base import Collective
from dayfly.wire.collectives.cost import AllReduce, Cost, MessageCount, Phase
from dayfly.wire.schedule import Draft, Kind, Name, Op, Schedule, Span, alone, check_rank, split

PART, SUM = "part", "sum"


def k_reduce(aggregators: int) -> Collective:
    """The collective with so many aggregators, K."""
    return Collective(
        schedule=partial(reduce_at, aggregators=aggregators),
        sums=partial(sums_at, aggregators=aggregators),
        cost=partial(reduce_cost, aggregators=aggregators),
        whole=True,
    )


def contributing(aggregators: int) -> Collective:
    """Phase 1 alone, of a rank that is no aggregator: it puts its contributions, and reads none."""
    return Collective(
        schedule=partial(contribute_at, aggregators=aggregators),
        sums=partial(sums_at, aggregators=aggregators),
    )


def reading(aggregators: int) -> Collective:
    """Phase 3 alone, of a rank that is no aggregator: it reads the sums, which others make."""
    return Collective(
        schedule=partial(read_at, aggregators=aggregators),
        sums=partial(sums_at, aggregators=aggregators),
    )


#: What a rank that is no aggregator does of a step's all-reduce, and of the step before's.
CONTRIBUTE, READ = "contribute", "read"


def hybrid_part(part: str, aggregators: int) -> Collective:
    """Returns one of the two: `contributing` or `reading`."""
    return {CONTRIBUTE: contributing, READ: reading}[part](aggregators)


def contribute_at(
    rank: int,
    world_size: int,
    length: int,
    stored: Set[Name] = frozenset(),
    *,
    chunk: int = 1,
    aggregators: int,
) -> Schedule:
    """Returns what `rank`, which is no aggregator, puts; see `MakeSchedule`."""
    _check_other(rank, world_size, aggregators)
    draft = Draft()
    _contribute(draft, rank, split(length, aggregators), stored)
    return draft.schedule()


def read_at(
    rank: int,
    world_size: int,
    length: int,
    stored: Set[Name] = frozenset(),
    *,
    chunk: int = 1,
    aggregators: int,
) -> Schedule:
    """Returns what `rank`, which is no aggregator, reads; see `MakeSchedule`."""
    _check_other(rank, world_size, aggregators)
    shards, draft = split(length, aggregators), Draft()
    for owner, shard in enumerate(shards):
        draft.add(Op(Kind.GET, shard, Name(SUM, owner)))
    return draft.schedule()


def _check_other(rank: int, world_size: int, aggregators: int) -> None:
    check_rank(rank, world_size)
    if not 1 <= aggregators <= rank:
        raise ValueError(f"rank {rank} is one of {aggregators} aggregators")


def _contribute(
    draft: Draft, rank: int, shards: tuple[Span, ...], stored: Set[Name]
) -> dict[int, int]:
    """Adds the uploads of phase 1, but for sums that are stored; returns positions by owner."""
    return {
        owner: draft.add(Op(Kind.PUT, shard, Name(PART, rank, owner), feeds=Name(SUM, owner)))
        for owner, shard in enumerate(shards)
        if owner != rank and Name(SUM, owner) not in stored
    }


def sums_at(
    world_size: int, length: int, chunk: int, *, aggregators: int | None = None
) -> tuple[Name, ...]:
    """Returns the messages that hold the result, with so many `aggregators` (see `reduce_at`)."""
    owners = world_size if aggregators is None else aggregators
    return tuple(Name(SUM, owner) for owner in range(owners)) if world_size > 1 else ()


def reduce_at(
    rank: int,
    world_size: int,
    length: int,
    stored: Set[Name] = frozenset(),
    *,
    chunk: int = 1,
    aggregators: int | None = None,
) -> Schedule:
    """Returns what `rank` does; see `MakeSchedule`. It makes no chunks.

    Args:
        aggregators: K, from 1 to n; None: n.
    """
    check_rank(rank, world_size)
    owners = world_size if aggregators is None else aggregators
    if not 1 <= owners <= world_size:
        raise ValueError(f"{owners} aggregators of {world_size} ranks")
    if world_size == 1:
        return alone(length)
    shards, draft = split(length, owners), Draft()
    sent = _contribute(draft, rank, shards, stored)
    # A phase begins when the last of the phase before is through.
    result = tuple(sent.values())[-1:]
    if rank < owners:
        mine = shards[rank]
        parts = tuple(Name(PART, peer, rank) for peer in range(world_size) if peer != rank)
        if Name(SUM, rank) in stored:
            result = (draft.add(Op(Kind.GET, mine, Name(SUM, rank), after=result)),)
        else:
            held = tuple(draft.add(Op(Kind.FETCH, mine, part, after=result)) for part in parts)
            in_rank_order = (*parts[:rank], None, *parts[rank:])
            reduced = draft.add(Op(Kind.REDUCE, mine, terms=in_rank_order, after=held))
            result = (draft.add(Op(Kind.PUT, mine, Name(SUM, rank), after=(reduced,))),)
        draft.add(Op(Kind.DROP, Span(0, 0), terms=parts, after=result))
    for owner in range(owners):
        if owner != rank:
            # The contribution is read from where the sum is written to.
            after = {*result, sent[owner]} if owner in sent else result
            get = Op(Kind.GET, shards[owner], Name(SUM, owner), after=tuple(sorted(after)))
            draft.add(get)
    return draft.schedule()


def reduce_cost(one: AllReduce, *, aggregators: int | None = None) -> Cost:
    """Returns the cost with K aggregators: FasDL equation 1, with links of two directions.

    With u and v the time of a shard up and down: who is no aggregator has uploaded after K u, an
    aggregator after (K-1) u. It has summed up (n-1) v later, uploads the sum in u, and reads K-1
    others; who aggregates nothing reads K. The last aggregator may have to wait for the uploads of
    the n-K others, u - K v. Where messages go from member to member, a sum leaves its owner n-1
    times before the owner reads other sums. A link that members share is asked for what they all
    read, k (n - 1) sums, and a lone aggregator uploads nothing at first.
    """
    n, k = one.members, one.members if aggregators is None else aggregators
    shard, total = one.nbytes / k, one.summed / k
    largest = -(-one.length // k) * one.itemsize
    alike = choice(k == n, 1, (k > 1) * one.link.direct)
    others, own = one.up(shard, n, k), one.up(shard, n, k - 1)
    read_s = k * one.down(shard, k).down_s
    later_s = most(0.0, others.length_s - own.length_s - read_s) * ((k > 1) * (k < n))
    late_s = least(later_s, others.late_s - own.late_s)
    return one.costs(
        (
            one.up(shard, n - (k == 1), k - (k > 1), after=(k == 1) * 1),
            one.down(shard, k, n - 1),
            Phase(later_s, late_s=late_s),
            Phase((n - 1) * shard * one.link.reduce_s_per_byte),
            one.up(total, k, everyone=True),
            one.down(
                total, k * (n - 1) / most(1, k - alike), k - alike, after=(1 - alike) * (k < n)
            ),
        ),
        traffic(one, k, k),
        least(one.held_bytes(largest), (n - 1) * largest),
    )


def hybrid_costs(one: AllReduce, *, aggregators: int) -> tuple[Cost, Cost, Cost]:
    """Returns the costs of a step under FasDL's hybrid asynchronous protocol (section IV-B).

    Aggregators wait for the sums of their step; another member puts its parts, takes the sums of
    the step before, which are there, and goes on. So each role has a round of its own:

        aggregator   | K-1 parts up | n-1 parts down | sum | sum up | K-1 sums down |
        other        | K parts up   | K sums down |

    Returns:
        Of a round of an aggregator, and of another member what it contributes and what it reads,
        each with the requests and bytes of all members in that role. K = n is `reduce_cost`: there
        is no other, and its parts are empty.
    """
    n, k, s = one.members, aggregators, one.nbytes
    shard, total, largest = s / k, one.summed / k, -(-one.length // k) * one.itemsize
    several, others = (n > 1) * 1, n - k
    aggregator = one.costs(
        (
            one.up(shard, n, k - 1),
            one.down(shard, k, n - 1),
            Phase((n - 1) * shard * one.link.reduce_s_per_byte),
            one.up(total, k, several, everyone=True),
            one.down(total, k, k - 1),
        ),
        (
            MessageCount(k * (k - 1), k * (n - 1), (k - 1) * s, (n - 1) * s),
            MessageCount(
                k * several,
                k * (k - 1),
                one.summed * several,
                (k - 1) * one.summed,
                everyone=True,
            ),
        ),
        least(one.held_bytes(largest), (n - 1) * largest),
    )
    each = k * (others > 0)
    contributed = one.costs(
        (one.up(shard, n, each),), (MessageCount(k * others, 0, others * s, 0),)
    )
    read = one.costs(
        (one.down(total, most(1, others), each),),
        (MessageCount(0, k * others, 0, others * one.summed),),
    )
    return aggregator, contributed, read


def traffic(one: AllReduce, parts: int, sums: int) -> tuple[MessageCount, MessageCount]:
    """Returns the messages of a reduction: a contribution to each part, and the sums.

    Args:
        one: the all-reduce.
        parts: parts of the buffer, of each of which all members but one put a contribution.
        sums: messages with sums, each for everyone.
    """
    n, s, total = one.members, one.nbytes, one.summed
    read = sums * (n - 1)
    return (
        MessageCount(parts * (n - 1), parts * (n - 1), (n - 1) * s, (n - 1) * s),
        MessageCount(sums, read, total, (n - 1) * total, everyone=True),
    )


def k_reduce_requests(world_size: int, aggregators: int) -> tuple[int, int]:
    """Puts and gets of all ranks: K W and 2K(W-1), FasDL section V-B. Exact."""
    n, k = world_size, aggregators
    return (k * n, 2 * k * (n - 1)) if n > 1 else (0, 0)


def k_reduce_bytes(size_bytes: int, world_size: int) -> tuple[int, int]:
    """Payload bytes of all ranks, up and down: S W and 2S(W-1).

    Together S(3W-2), FasDL section V-B, whatever K is. Exact.
    """
    s, n = size_bytes, world_size
    return (s * n, 2 * s * (n - 1)) if n > 1 else (0, 0)


ALL_REDUCE = k_reduce(1)


#: n aggregators of n.
scatter_reduce = reduce_at
sums = sums_at
SCATTER_REDUCE = Collective(schedule=scatter_reduce, sums=sums, cost=reduce_cost, whole=True)


def at_everyone(rank: int, world_size: int, length: int, *, chunk: int = 1) -> Schedule:
    """What `rank` does; see `MakeOther`. Whatever `chunk` is, a term is one message."""
    check_rank(rank, world_size)
    if world_size == 1:
        return alone(length)
    draft, whole = Draft(), Span(0, length)
    names = [Name("term", source) for source in range(world_size)]
    sent = draft.add(Op(Kind.PUT, whole, names[rank]))
    held = [
        draft.add(Op(Kind.FETCH, whole, names[(rank - distance) % world_size]))
        for distance in range(1, world_size)
    ]
    terms = tuple(None if name.source == rank else name for name in names)
    # The sum takes the place of what is sent.
    draft.add(Op(Kind.REDUCE, whole, terms=terms, after=(sent, *held)))
    return draft.schedule()


def barrier(rank: int, world_size: int, length: int = 0, *, chunk: int = 1) -> Schedule:
    """What `rank` does; see `MakeOther`. The buffer is left alone."""
    return reduce_at(rank, world_size, 0, aggregators=1)
