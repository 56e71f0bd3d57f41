"""Reduce: one rank, the root, ends with the sum. Reduce-scatter, then all sums go to the root.

n ranks cut the buffer into n splits, and each split into C chunks; rank r sums up split r.

    root 0, n = 3, C = 2; numbers are chunks
    uplink     |0>1|0>2|1>1|1>2|
    downlink       |0<2|0<1|1<2|1<1|sum 0<2|sum 0<1|sum 1<2|sum 1<1|
    compute                |+0     |+1, drop what was summed         |drop the sums|
    rank 1
    uplink     |0>2|0>0|1>2|1>0|sum 0|sum 1|

Summed in rank order. The root's uplink and downlink carry (n-1)/n and 2(n-1)/n of the buffer, where
one that sums up all by itself would download n-1 whole ones. What the other ranks' buffers hold at
the end is of no use. A message is dropped by its only reader; nothing stays.
"""

from __future__ import annotations

from functools import partial

from dayfly.wire.collectives.others import MakeOther
from dayfly.wire.collectives.reduce_scatter import reduce_scatter
from dayfly.wire.schedule import Draft, Kind, Name, Op, Schedule, Span, check_rank, chunks, split


def reduce(root: int) -> MakeOther:
    """What each does so that this rank gets the sum."""
    return partial(_reduce, root=root)


def _reduce(rank: int, world_size: int, length: int, *, chunk: int = 1, root: int) -> Schedule:
    check_rank(rank, world_size)
    check_rank(root, world_size)
    scattered, n = reduce_scatter(rank, world_size, length, chunk=chunk), world_size
    if n == 1:
        return scattered
    draft = Draft()
    ready: dict[Span, int] = {}  # of a chunk of one's own, when it is summed up
    sent: dict[Span, int] = {}  # of the others' chunks, when the own contribution is sent
    for op in scattered:
        at = draft.add(op)
        if op.kind is Kind.REDUCE:
            ready[op.span] = at
        elif op.kind is Kind.PUT:
            sent[op.span] = at
    pieces = [chunks(span, chunk) for span in split(length, n)]
    if rank != root:
        for c, span in enumerate(pieces[rank]):
            name = Name(f"sum-{c}", rank, root)
            draft.add(Op(Kind.PUT, span, name, after=(ready[span],)))
        return draft.schedule()
    names: list[Name] = []
    read: list[int] = []
    for c in range(len(pieces[0])):
        for owner in ((root - distance) % n for distance in range(1, n)):
            if c < len(pieces[owner]):
                span = pieces[owner][c]
                names.append(Name(f"sum-{c}", owner, root))
                read.append(draft.add(Op(Kind.GET, span, names[-1], after=(sent[span],))))
    draft.add(Op(Kind.DROP, Span(0, 0), terms=tuple(names), after=tuple(read)))
    return draft.schedule()


def reduce_s(
    size_bytes: float, world_size: int, count: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds: d + max(d, n q + 2 t_lat) + q + 2 t_lat, d = (n-1)/n s/w.

    s = size_bytes, n = world_size, w = bytes_per_s each way, t_lat = latency_s, q = s/(n count w)
    the time of one of `count` chunks. Exact in virtual time if the chunks are equal: the root's
    downlink carries contributions and then sums, d each; the first sum is there once its owner has
    sent its contributions, d, and has got all n-1 to its first chunk.
    """
    n = world_size
    if n == 1:
        return 0.0
    q = size_bytes / (n * count) / bytes_per_s
    d = (n - 1) / n * size_bytes / bytes_per_s
    return d + max(d, n * q + 2 * latency_s) + q + 2 * latency_s
