"""All-to-all, in place: the buffer is n equal blocks; block j goes to rank j, which sends its own.

    rank 0, n = 3, C = 2; numbers are chunks
    uplink     |0>1|0>2|1>1|1>2|
    downlink       |0<1|0<2|1<1|1<2|
    compute                        |drop all that were read|

Block r stays where it is. What comes from rank j is written to block j, once the chunk that was
there is sent, so two ranks exchange at the same time: in round k of 0 to n-1, r with k-r modulo n.
A message is dropped by its only reader; nothing stays.
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
    partners = [(k - rank) % n for k in range(n) if (k - rank) % n != rank]
    sent: dict[tuple[int, int], int] = {}
    read: list[int] = []
    names: list[Name] = []
    for c in range(len(blocks[0])):
        for peer in partners:
            name = Name(f"block-{c}", rank, peer)
            sent[peer, c] = draft.add(Op(Kind.PUT, blocks[peer][c], name))
        for peer in partners:
            names.append(Name(f"block-{c}", peer, rank))
            get = Op(Kind.GET, blocks[peer][c], names[-1], after=(sent[peer, c],))
            read.append(draft.add(get))
    draft.add(Op(Kind.DROP, Span(0, 0), terms=tuple(names), after=tuple(read)))
    return draft.schedule()


def all_to_all_s(
    size_bytes: float, world_size: int, count: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds: (n-1)/n s/w + q + 2 t_lat, q = s/(n count w) the time of one of `count` chunks.

    s = size_bytes, n = world_size, w = bytes_per_s each way, t_lat = latency_s. In virtual time
    with equal chunks up to q more: a rank has nothing to send in the round that it has with itself,
    which comes at different times, so that ranks are up to a round apart.
    """
    n = world_size
    q = size_bytes / (n * count) / bytes_per_s
    return (n - 1) / n * size_bytes / bytes_per_s + q + 2 * latency_s if n > 1 else 0.0
