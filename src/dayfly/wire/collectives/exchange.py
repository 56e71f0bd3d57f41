"""Exchange: messages from each rank to each other, of any lengths; such as all-to-all.

    rank 0, n = 3, C = 2; >1: to rank 1, <2: from rank 2; numbers are chunks
    uplink     |0>1|0>2|1>1|1>2|
    downlink       |0<2|0<1|1<2|1<1|
    compute                        |drop all that were read|

Whom a rank sends to first differs from rank to rank (r+1, r+2, ...), and so does whom it reads from
first (r-1, r-2, ...): what is read next was sent longest ago. A message is dropped by its only
reader; nothing stays. An empty one travels, too, so whoever gets something from everyone knows that
all have come.
"""

from __future__ import annotations

from collections.abc import Mapping

from dayfly.wire.collectives.reduce_scatter import reduce_scatter_s
from dayfly.wire.schedule import (
    Draft,
    Kind,
    Name,
    Op,
    Schedule,
    Span,
    check_rank,
    chunks,
    split,
)


def exchange(
    rank: int,
    world_size: int,
    sends: Mapping[int, Span],
    receives: Mapping[int, Span],
    *,
    chunk: int = 1,
) -> Schedule:
    """What `rank` does to send to, and to receive from, each rank that is named.

    sends, receives: where in the buffer each peer's elements are; as long at either end. Raises
    ValueError for ranks outside the world, for `rank` itself, and if what is received would be
    written over something else.
    """
    check_rank(rank, world_size)
    for peer in (*sends, *receives):
        check_rank(peer, world_size)
        if peer == rank:
            raise ValueError(f"rank {rank} to itself")
    _check_apart(sends, receives)
    draft = Draft()
    leaving = {peer: chunks(span, chunk) for peer, span in sends.items()}
    coming = {peer: chunks(span, chunk) for peer, span in receives.items()}
    onward = sorted(leaving, key=lambda peer: (peer - rank) % world_size)
    backward = sorted(coming, key=lambda peer: (rank - peer) % world_size)
    read: list[int] = []
    names: list[Name] = []
    for c in range(max(map(len, (*leaving.values(), *coming.values())), default=0)):
        for peer in onward:
            if c < len(leaving[peer]):
                draft.add(Op(Kind.PUT, leaving[peer][c], Name(f"block-{c}", rank, peer)))
        for peer in backward:
            if c < len(coming[peer]):
                names.append(Name(f"block-{c}", peer, rank))
                read.append(draft.add(Op(Kind.GET, coming[peer][c], names[-1])))
    if names:
        draft.add(Op(Kind.DROP, Span(0, 0), terms=tuple(names), after=tuple(read)))
    return draft.schedule()


def all_to_all(rank: int, world_size: int, length: int, *, chunk: int = 1) -> Schedule:
    """Block j of the first half goes to rank j, and what comes from there to block j of the second.

    length: of 2n equal blocks; ValueError if it is not. Own blocks are left alone.
    """
    check_rank(rank, world_size)
    if length % (2 * world_size):
        raise ValueError(f"{length} elements are not twice {world_size} equal blocks")
    blocks = dict(enumerate(split(length, 2 * world_size)))
    peers = [peer for peer in range(world_size) if peer != rank]
    sends = {peer: blocks[peer] for peer in peers}
    receives = {peer: blocks[world_size + peer] for peer in peers}
    return exchange(rank, world_size, sends, receives, chunk=chunk)


def _check_apart(sends: Mapping[int, Span], receives: Mapping[int, Span]) -> None:
    """What is sent may be sent to several; what is received has its own place."""
    spans = [(span.start, span.stop, True) for span in receives.values() if len(span)]
    spans += {(span.start, span.stop, False) for span in sends.values() if len(span)}
    furthest = {True: 0, False: 0}
    for start, stop, received in sorted(spans):
        if start < max(furthest[True], furthest[False] if received else 0):
            raise ValueError(f"what is received would be written over elements {start} to {stop}")
        furthest[received] = max(furthest[received], stop)


def exchange_s(
    size_bytes: float, world_size: int, count: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds of `all_to_all`: those of `reduce_scatter_s`.

    size_bytes: of n equal blocks. The downlink is busy from the first message on.
    """
    return reduce_scatter_s(size_bytes, world_size, count, bytes_per_s, latency_s)
