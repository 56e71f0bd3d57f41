"""Reduce-scatter: rank r ends with the sum of split r; the first half of `overlapped`.

n ranks cut the buffer into n splits, and each split into C chunks.

    rank 0, n = 3, C = 2; >1: to rank 1, <2: from rank 2; numbers are chunks
    uplink     |0>1|0>2|1>1|1>2|
    downlink       |0<2|0<1|1<2|1<1|
    compute                |+0     |+1, drop all that were read|

Summed in rank order. What the other splits hold stays as it was. A contribution is dropped by the
owner of its split, who is its only reader, once it is summed; nothing stays.
"""

from __future__ import annotations

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
            held = tuple(draft.add(Op(Kind.HOLD, span, part)) for part in parts.values())
            terms = tuple(parts.get(peer) for peer in range(n))
            reduced.append(draft.add(Op(Kind.REDUCE, span, terms=terms, after=held)))
            read += parts.values()
    draft.add(Op(Kind.DROP, Span(0, 0), terms=tuple(read), after=tuple(reduced)))
    return draft.schedule()


def reduce_scatter_s(
    size_bytes: float, world_size: int, count: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds: (n-1)/n s/w + q + 2 t_lat, q = s/(n count w) the time of one of `count` chunks.

    s = size_bytes, n = world_size, w = bytes_per_s each way, t_lat = latency_s. Exact in virtual
    time if the chunks are equal: the downlink is busy from the first contribution on.
    """
    n = world_size
    q = size_bytes / (n * count) / bytes_per_s
    return (n - 1) / n * size_bytes / bytes_per_s + q + 2 * latency_s if n > 1 else 0.0
