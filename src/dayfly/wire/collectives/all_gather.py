"""All-gather: everyone gets split r from rank r; the second half of `overlapped`.

n ranks cut the buffer into n splits, and each split into C chunks.

    rank 0, n = 3, C = 2; numbers are chunks
    uplink     |0 |1 |
    downlink      |0<2|0<1|1<2|1<1|

A message is read by everyone, and nobody knows when the last has read it: it stays until its step
is trimmed.
"""

from __future__ import annotations

from dayfly.wire.collectives.reduce_scatter import reduce_scatter_s
from dayfly.wire.schedule import Draft, Kind, Name, Op, Schedule, check_rank, chunks, split


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


def all_gather_s(
    size_bytes: float, world_size: int, count: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds: those of `reduce_scatter_s`; the downlink is busy from the first message on."""
    return reduce_scatter_s(size_bytes, world_size, count, bytes_per_s, latency_s)
