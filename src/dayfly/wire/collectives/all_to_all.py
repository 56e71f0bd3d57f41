"""All-to-all, in place: the buffer is n equal blocks; block j goes to rank j, which sends its own.

    rank 0, n = 3, C = 2; numbers are chunks
    uplink     |0>1|0>2|1>1|1>2|
    downlink       |0<2|0<1|1<2|1<1|
    compute                        |drop all that were read|

Block r stays where it is. What comes from rank j is written to block j, once the chunk that was
there is sent. A message is dropped by its only reader; nothing stays.
"""

from __future__ import annotations

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


def all_to_all(rank: int, world_size: int, length: int, *, chunk: int = 1) -> Schedule:
    """What `rank` does; see `MakeOther`. ValueError if the blocks are not equal."""
    check_rank(rank, world_size)
    n, draft = world_size, Draft()
    if length % n:
        raise ValueError(f"{length} elements are not {n} equal blocks")
    if n == 1:
        return draft.schedule()
    blocks = [chunks(span, chunk) for span in split(length, n)]
    onward = [(rank + distance) % n for distance in range(1, n)]
    sent: dict[tuple[int, int], int] = {}
    read: list[int] = []
    names: list[Name] = []
    for c in range(len(blocks[0])):
        for peer in onward:
            name = Name(f"block-{c}", rank, peer)
            sent[peer, c] = draft.add(Op(Kind.PUT, blocks[peer][c], name))
        for peer in reversed(onward):
            names.append(Name(f"block-{c}", peer, rank))
            get = Op(Kind.GET, blocks[peer][c], names[-1], after=(sent[peer, c],))
            read.append(draft.add(get))
    draft.add(Op(Kind.DROP, Span(0, 0), terms=tuple(names), after=tuple(read)))
    return draft.schedule()
