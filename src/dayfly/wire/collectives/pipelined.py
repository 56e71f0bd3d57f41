"""FuncPipe's pipelined scatter-reduce (section 3.3, figure 4b, equation 2).

n workers cut the buffer into n splits; rank i is in charge of split i. Modulo n:

    step 1          rank i uploads split i+1
    step k          rank i uploads split i+k, and downloads of split i what rank i-(k-1) uploaded
    step n          rank i downloads of split i what rank i+1 uploaded
    then            rank i sums up in rank order, uploads its sum, and downloads those of the others

    rank 0, n = 4:   uplink    |part>1|part>2|part>3|      |sum 0|
                     downlink         |part<3|part<2|part<1|     |sum 1|sum 2|sum 3|
                     compute                               |reduce, drop parts|

A step waits for both transfers of the step before, latencies included, and so costs
s/(nw) + t_lat; after it, a latency for the upload of the sum and one for the downloads. What is
downloaded in a step was uploaded in the step before. Contributions are dropped once their sum is
stored: the sums alone are the message log.

The authors' code is no reference: both of its all-reduces lose the gradient of the worker in charge
of a split (papers' errata). Here its own term stands in the sum like all others.
"""

from __future__ import annotations

from collections.abc import Set

from dayfly.elementwise import most
from dayfly.wire.collectives.base import Collective
from dayfly.wire.collectives.cost import AllReduce, Cost, Phase
from dayfly.wire.collectives.k_reduce import PART, SUM, sums_at, traffic
from dayfly.wire.schedule import Draft, Kind, Name, Op, Schedule, Span, alone, check_rank, split


def pipelined(
    rank: int,
    world_size: int,
    length: int,
    stored: Set[Name] = frozenset(),
    *,
    chunk: int = 1,
) -> Schedule:
    """What `rank` does; see `MakeSchedule`. No chunks: a message is a split."""
    check_rank(rank, world_size)
    if world_size == 1:
        return alone(length)
    n, splits, draft = world_size, split(length, world_size), Draft()
    mine, own_stored = splits[rank], Name(SUM, rank) in stored
    parts = tuple(Name(PART, peer, rank) for peer in range(n) if peer != rank)
    before: tuple[int, ...] = ()
    held: list[int] = []
    for k in range(1, n + 1):
        step: list[int] = []
        owner, peer = (rank + k) % n, (rank - (k - 1)) % n
        if k < n and Name(SUM, owner) not in stored:
            part, feeds = Name(PART, rank, owner), Name(SUM, owner)
            step.append(draft.add(Op(Kind.PUT, splits[owner], part, after=before, feeds=feeds)))
        if k > 1 and not own_stored:
            held.append(draft.add(Op(Kind.FETCH, mine, Name(PART, peer, rank), after=before)))
            step.append(held[-1])
        before = tuple(step) or before
    if own_stored:
        result = draft.add(Op(Kind.GET, mine, Name(SUM, rank), after=before))
    else:
        in_rank_order = (*parts[:rank], None, *parts[rank:])
        reduced = draft.add(Op(Kind.REDUCE, mine, terms=in_rank_order, after=tuple(held)))
        result = draft.add(Op(Kind.PUT, mine, Name(SUM, rank), after=(reduced,)))
    draft.add(Op(Kind.DROP, Span(0, 0), terms=parts, after=(result,)))
    for owner in range(n):
        if owner != rank:
            draft.add(Op(Kind.GET, splits[owner], Name(SUM, owner), after=(result,)))
    return draft.schedule()


def cost(one: AllReduce) -> Cost:
    """Returns the cost: n-1 steps of an upload and a download each, the sum up, and the sums down.

    A step ends when both transfers are done; the first has no download, the last no upload. The
    contributions come from the highest rank down and are added from the lowest up, so rank 0 holds
    all of them.
    """
    n, part, total = one.members, one.nbytes / one.members, one.summed / one.members
    up, down = one.up(part, n), one.down(part, n)
    steps_s = up.length_s + (n - 2) * most(up.length_s, down.length_s) + down.length_s
    carried_s = up.up_s + (n - 2) * most(up.up_s, down.down_s) + down.down_s
    return one.costs(
        (
            Phase(
                steps_s,
                up_s=(n - 1) * up.up_s,
                down_s=(n - 1) * down.down_s,
                late_s=steps_s - carried_s,
            ),
            Phase((n - 1) * part * one.link.reduce_s_per_byte),
            one.up(total, n, everyone=True),
            one.down(total, n, n - 1),
        ),
        traffic(one, n, n),
        one.held_bytes(part, waiting=n),
    )


PIPELINED = Collective(schedule=pipelined, sums=sums_at, cost=cost, whole=True)
