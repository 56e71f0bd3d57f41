"""Push and pull: a parameter server sums (CE-scaling's VM-PS, Cirrus, HybridPS; channel `ps://`).

The buffer is cut into C chunks. Every worker pushes its chunks to the server (`part-c`), which adds
the n contributions to a chunk in rank order and serves the sum (`sum-c`) to everyone.

    worker, C = 3   uplink    |part 0|part 1|part 2|
                    downlink                |sum 0|sum 1|sum 2|
    server          downlink       |0<0..0<n-1|1<0..1<n-1|2<0..2<n-1|
                    compute                   |+0        |+1        |+2
                    uplink                    |sum 0     |sum 1     |sum 2     |  n times each

Every rank holds the same bits: the server's. No sums are kept beyond the step: the server drops the
contributions that it has summed and, when a step is trimmed, its sums; after a death all workers go
back to the run checkpoint. A worker needs s up and s down, the least of all collectives; the server
carries n s each way.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace

from dayfly.elementwise import choice, least, most, rounded
from dayfly.wire.collectives.base import Collective, no_sums
from dayfly.wire.collectives.cost import AllReduce, Cost, MessageCount, Phase
from dayfly.wire.collectives.link import DirectionModel
from dayfly.wire.keys import SERVER
from dayfly.wire.schedule import (
    Draft,
    Kind,
    Name,
    Op,
    Schedule,
    Span,
    alone,
    check_rank,
    chunk_count,
    chunks,
    width,
)


def push_pull(
    rank: int,
    world_size: int,
    length: int,
    stored: Set[Name] = frozenset(),
    *,
    chunk: int = 1,
) -> Schedule:
    """What `rank` does; see `MakeSchedule`. It keeps no sums, so `stored` is of no use to it."""
    check_rank(rank, world_size)
    if world_size == 1:
        return alone(length)
    spans, draft = chunks(Span(0, length), chunk), Draft()
    pushed = [
        draft.add(Op(Kind.PUT, span, Name(f"part-{c}", rank, SERVER)))
        for c, span in enumerate(spans)
    ]
    for c, span in enumerate(spans):
        draft.add(Op(Kind.GET, span, Name(f"sum-{c}", SERVER), after=(pushed[c],)))
    return draft.schedule()


def serve(world_size: int, length: int, *, chunk: int = 1) -> Schedule:
    """What the server does meanwhile: for virtual time, and for a server that runs schedules."""
    draft = Draft()
    for c, span in enumerate(chunks(Span(0, length), chunk)):
        parts = tuple(Name(f"part-{c}", rank, SERVER) for rank in range(world_size))
        held = tuple(draft.add(Op(Kind.FETCH, span, part)) for part in parts)
        reduced = draft.add(Op(Kind.REDUCE, span, terms=parts, after=held))
        served = draft.add(Op(Kind.PUT, span, Name(f"sum-{c}", SERVER), after=(reduced,)))
        draft.add(Op(Kind.DROP, Span(0, 0), terms=parts, after=(served,)))
    return draft.schedule()


def cost(one: AllReduce) -> Cost:
    """Returns the cost, over an uplink and a downlink of their own.

    The server's link is the store's, if that is limited, and a member's own link does not share it.
    Large messages share a link in pieces with those that are in flight beside them, so the first is
    through when all of these are.
    """
    n, link = one.members, one.link
    count = chunk_count(one.length, one.chunk)
    chunk = one.nbytes / count
    up, down = (replace(line, store_bytes_per_s=math.inf) for line in (link.up, link.down))
    at_server_s = n * chunk * one.groups / link.up.store_bytes_per_s
    everybody = n * one.groups  # who may share a host
    first_up_s, first_down_s = (_first_s(line, chunk, count, everybody) for line in (up, down))

    def length_s(up_s: float, down_s: float) -> float:
        served_s = first_up_s + (count - 1) * at_server_s + first_down_s
        slowest_s: float = most(most(up_s + first_down_s, first_up_s + down_s), served_s)
        return slowest_s + 2 * at_server_s

    each_s = [(line, line.occupied_s(chunk, everybody)) for line in (up, down)]
    busy_up_s, busy_down_s = (count * alone_s for _, alone_s in each_s)
    carried_s = length_s(busy_up_s, busy_down_s)
    rows_s = (line.row_s(alone_s, chunk, count) for line, alone_s in each_s)
    whole_s = length_s(*rows_s) + link.late_s
    up_s, down_s = (most(busy_s, count * at_server_s) for busy_s in (busy_up_s, busy_down_s))
    return one.costs(
        (Phase(whole_s, up_s=up_s, down_s=down_s, late_s=whole_s - carried_s),),
        (MessageCount(n * count, n * count, n * one.nbytes, n * one.nbytes),),
    )


def _first_s(line: DirectionModel, chunk_bytes: float, count: int, at_once: float) -> float:
    each_s = line.occupied_s(chunk_bytes, at_once)
    beside = least(count, width(line.in_flight, line.chunk_bytes, rounded(chunk_bytes)))
    found: float = each_s * choice(each_s <= line.direction.piece_s, 1, beside)
    return found


PUSH_PULL = Collective(schedule=push_pull, sums=no_sums, cost=cost, server=True)
