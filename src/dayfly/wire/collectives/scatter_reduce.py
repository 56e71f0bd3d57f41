"""Scatter-reduce over a store, LambdaML's form (FuncPipe section 3.3, figure 4a, equation 1).

n workers cut the buffer into n splits; rank r is in charge of split r.

    phase 1  rank r uploads the n-1 splits that others are in charge of         `part`
    phase 2  rank r downloads the n-1 contributions to split r and sums them up
    phase 3  rank r uploads its sum, then downloads the n-1 sums of the others  `sum`

    rank 0, n = 3:   uplink    |part>1|part>2|             |sum 0|
                     downlink                |part<1|part<2|     |sum 1|sum 2|
                     compute                               |reduce, drop parts|

Phases run one after another, so uplink and downlink are never busy at once. The contributions are
summed in rank order, 0 to n-1, whoever is in charge; every rank then holds the same bits.

A contribution is dropped once its sum is stored: the sums alone are the message log.
"""

from __future__ import annotations

from collections.abc import Set

from dayfly.wire.schedule import Kind, Name, Op, Schedule, Span, split

PART, SUM = "part", "sum"


def sums(world_size: int, length: int, chunk: int) -> tuple[Name, ...]:
    """The messages that hold the result: when all are stored, nobody's input is needed."""
    return tuple(Name(SUM, owner) for owner in range(world_size)) if world_size > 1 else ()


def scatter_reduce(
    rank: int,
    world_size: int,
    length: int,
    stored: Set[Name] = frozenset(),
    *,
    chunk: int = 1,
) -> Schedule:
    """What `rank` does to sum `length` elements over `world_size` ranks.

    stored: sums that are in the store already. A worker that starts again passes them: it gets
    these as they are, and contributes to the others only. With all of them it only downloads.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size}")
    if world_size == 1:
        return Schedule((Op(Kind.REDUCE, Span(0, length), terms=(None,)),))
    splits = split(length, world_size)
    others = [peer for peer in range(world_size) if peer != rank]
    mine = splits[rank]
    parts = tuple(Name(PART, peer, rank) for peer in others)
    finished = {owner for owner in range(world_size) if Name(SUM, owner) in stored}

    ops = [
        Op(Kind.PUT, splits[owner], Name(PART, rank, owner), feeds=Name(SUM, owner))
        for owner in others
        if owner not in finished
    ]
    # A lane works in order, so to wait for its last operation is to wait for all of them.
    uploaded = (len(ops) - 1,) if ops else ()
    if rank in finished:
        ops.append(Op(Kind.GET, mine, Name(SUM, rank), after=uploaded))
    else:
        ops += [Op(Kind.HOLD, mine, part, after=uploaded) for part in parts]
        held = (len(ops) - 1,)
        in_rank_order = (*parts[:rank], None, *parts[rank:])
        ops.append(Op(Kind.REDUCE, mine, terms=in_rank_order, after=held))
        ops.append(Op(Kind.PUT, mine, Name(SUM, rank), after=(len(ops) - 1,)))
    result = (len(ops) - 1,)
    ops.append(Op(Kind.DROP, Span(0, 0), terms=parts, after=result))
    ops += [Op(Kind.GET, splits[owner], Name(SUM, owner), after=result) for owner in others]
    return Schedule(tuple(ops))


def scatter_reduce_s(
    size_bytes: float, world_size: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds by FuncPipe equation 1: 3s/w - 2s/(nw) + 4 t_lat.

    s = size_bytes, n = world_size, w = bytes_per_s of a worker, each way; t_lat = latency_s.
    """
    s, n, w = size_bytes, world_size, bytes_per_s
    return 3 * s / w - 2 * s / (n * w) + 4 * latency_s
