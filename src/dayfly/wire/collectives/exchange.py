"""Messages between ranks without sums: exchange (all-to-all), broadcast, gather.

    exchange   from each rank to each other, of any lengths; rank 0, n = 3, C = 2
               >1: to rank 1, <2: from rank 2; numbers are chunks
    uplink     |0>1|0>2|1>1|1>2|
    downlink       |0<2|0<1|1<2|1<1|
    compute                        |drop all that were read|

Whom a rank sends to first differs from rank to rank (r+1, r+2, ...), and so does whom it reads from
first (r-1, r-2, ...): what is read next was sent longest ago. A message is dropped by its only
reader; nothing stays. An empty one travels, too, so whoever gets something from everyone knows that
all have come.

    broadcast  everyone gets the whole buffer of one rank, the root, in chunks
    root       uplink     |0 |1 |2 |
    others     downlink      |0 |1 |2 |

Over a store the root uploads once, however many read. A message stays until its step is trimmed, as
nobody knows when the last has read it.

    gather     shards of unequal sizes go to the root, and stay until it drops them
    rank 1     uplink     |0 |1 |
    rank 2     uplink     |0 |1 |
    root       downlink      |1/0|1/1|2/0|2/1|          rank/chunk; then, much later:
               compute                          |drop all|

A root that starts again reads them once more, and a rank that does puts them once more, of which
the first put wins. So the root drops them only when what it made of them is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from dayfly.wire.collectives.base import MakeOther
from dayfly.wire.schedule import (
    Draft,
    Kind,
    Name,
    Op,
    Schedule,
    Span,
    check_rank,
    chunks,
)


def exchange(
    rank: int,
    world_size: int,
    sends: Mapping[int, Span],
    receives: Mapping[int, Span],
    *,
    chunk: int = 1,
) -> Schedule:
    """Returns what `rank` does to send to, and to receive from, each rank that is named.

    Args:
        rank: 0 to world_size - 1.
        world_size: number of ranks.
        sends: where in the buffer the elements for each peer are.
        receives: where in the buffer the elements from each peer belong, as long as there.
        chunk: elements that are worth a message.

    Raises:
        ValueError: ranks outside the world, or `rank` itself; or what is received would overwrite
            something else.
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


def _check_apart(sends: Mapping[int, Span], receives: Mapping[int, Span]) -> None:
    """What is sent may be sent to several; what is received has its own place."""
    spans = [(span.start, span.stop, True) for span in receives.values() if len(span)]
    spans += {(span.start, span.stop, False) for span in sends.values() if len(span)}
    furthest = {True: 0, False: 0}
    for start, stop, received in sorted(spans):
        if start < max(furthest[True], furthest[False] if received else 0):
            raise ValueError(f"what is received would be written over elements {start} to {stop}")
        furthest[received] = max(furthest[received], stop)


def broadcast(root: int) -> MakeOther:
    """The broadcast from this rank."""
    return partial(_broadcast, root=root)


def _broadcast(rank: int, world_size: int, length: int, *, chunk: int = 1, root: int) -> Schedule:
    check_rank(rank, world_size)
    check_rank(root, world_size)
    draft = Draft()
    if world_size > 1:
        kind = Kind.PUT if rank == root else Kind.GET
        for c, span in enumerate(chunks(Span(0, length), chunk)):
            draft.add(Op(kind, span, Name(f"chunk-{c}", root)))
    return draft.schedule()


def hand_in(rank: int, root: int, length: int, *, chunk: int = 1) -> Schedule:
    """Returns what a rank does to send its part to the root; nothing if it is empty.

    Args:
        rank: whose part.
        root: who collects.
        length: elements of the part, which is the rank's whole buffer.
        chunk: elements that are worth a message, the same at every rank.
    """
    draft = Draft()
    for number, span in enumerate(_chunks(Span(0, length), chunk)):
        draft.add(Op(Kind.PUT, span, _name(number, rank, root)))
    return draft.schedule()


def collect(root: int, parts: Mapping[int, Span], *, chunk: int = 1) -> Schedule:
    """Returns what the root does to get others' parts into its buffer.

    Args:
        root: who collects.
        parts: where each rank's part belongs.
        chunk: elements that are worth a message, the same at every rank.
    """
    draft = Draft()
    for rank, part in parts.items():
        for number, span in enumerate(_chunks(part, chunk)):
            draft.add(Op(Kind.GET, span, _name(number, rank, root)))
    return draft.schedule()


def handed_in(root: int, parts: Mapping[int, Span], *, chunk: int = 1) -> tuple[Name, ...]:
    """The messages of these parts, which the root drops in the end."""
    return tuple(op.name for op in collect(root, parts, chunk=chunk) if op.name is not None)


def _chunks(span: Span, chunk: int) -> tuple[Span, ...]:
    return chunks(span, chunk) if len(span) else ()


def _name(chunk: int, rank: int, root: int) -> Name:
    return Name(f"part-{chunk}", rank, root)
