"""Reduce-scatter, all-gather and reduce: the halves of `overlapped`, by themselves.

n ranks cut the buffer into n splits, and each split into C chunks. Here n = 3 and C = 2; >1: to
rank 1, <2: from rank 2; numbers are chunks.

    reduce-scatter: rank r ends with the sum of split r; the others stay as they were
    rank 0   uplink     |0>1|0>2|1>1|1>2|
             downlink       |0<2|0<1|1<2|1<1|
             compute                |+0     |+1, drop all that were read|

    all-gather: everyone gets split r from rank r
    rank 0   uplink     |0 |1 |
             downlink      |0<2|0<1|1<2|1<1|

    reduce: one rank, the root, gets all sums after a reduce-scatter
    root 0   uplink     |0>1|0>2|1>1|1>2|
             downlink       |0<2|0<1|1<2|1<1|sum 0<2|sum 0<1|sum 1<2|sum 1<1|
             compute                |+0     |+1, drop what was summed         |drop the sums|
    rank 1   uplink     |0>2|0>0|1>2|1>0|sum 0|sum 1|

Summed in rank order. A message with one reader is dropped by it. A message that everyone reads
stays until its step is trimmed, as nobody knows when the last has read it. The root of a reduce
transfers (n-1)/n up and 2(n-1)/n down, where summing alone would download n-1 whole buffers; what
the buffers of other ranks hold afterwards is undefined.
"""

from __future__ import annotations

from functools import partial

from dayfly.wire.collectives.base import MakeOther
from dayfly.wire.schedule import (
    Draft,
    Kind,
    Name,
    Op,
    Schedule,
    Span,
    alone,
    check_rank,
    chunks,
    split,
)


def reduce_scatter(rank: int, world_size: int, length: int, *, chunk: int = 1) -> Schedule:
    """What `rank` does; see `MakeOther`."""
    check_rank(rank, world_size)
    if world_size == 1:
        return alone(length)
    n, draft = world_size, Draft()
    pieces = [chunks(span, chunk) for span in split(length, n)]
    read: list[Name] = []
    reduced: list[int] = []
    # The first splits may have one chunk more than the others.
    for c in range(len(pieces[0])):
        for owner in ((rank + distance) % n for distance in range(1, n)):
            if c < len(pieces[owner]):
                draft.add(Op(Kind.PUT, pieces[owner][c], Name(f"part-{c}", rank, owner)))
        if c < len(pieces[rank]):
            span = pieces[rank][c]
            backward = ((rank - distance) % n for distance in range(1, n))
            parts = {peer: Name(f"part-{c}", peer, rank) for peer in backward}
            held = tuple(draft.add(Op(Kind.FETCH, span, part)) for part in parts.values())
            terms = tuple(parts.get(peer) for peer in range(n))
            reduced.append(draft.add(Op(Kind.REDUCE, span, terms=terms, after=held)))
            read += parts.values()
    draft.add(Op(Kind.DROP, Span(0, 0), terms=tuple(read), after=tuple(reduced)))
    return draft.schedule()


def all_gather(rank: int, world_size: int, length: int, *, chunk: int = 1) -> Schedule:
    """What `rank` does; see `MakeOther`."""
    check_rank(rank, world_size)
    n, draft = world_size, Draft()
    pieces = [chunks(span, chunk) for span in split(length, n)]
    if n == 1:
        return draft.schedule()
    for c, span in enumerate(pieces[rank]):
        draft.add(Op(Kind.PUT, span, Name(f"block-{c}", rank)))
    for c in range(len(pieces[0])):
        for owner in ((rank - distance) % n for distance in range(1, n)):
            if c < len(pieces[owner]):
                draft.add(Op(Kind.GET, pieces[owner][c], Name(f"block-{c}", owner)))
    return draft.schedule()


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
