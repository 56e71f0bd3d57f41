"""Broadcast: everyone gets the whole buffer of one rank, the root, in chunks.

    root       uplink     |0 |1 |2 |
    others     downlink      |0 |1 |2 |

Over a store the root uploads once, however many read. A message is read by everyone, and nobody
knows when the last has read it: it stays until its step is trimmed.
"""

from __future__ import annotations

from functools import partial

from dayfly.wire.collectives.others import MakeOther
from dayfly.wire.schedule import Draft, Kind, Name, Op, Schedule, Span, check_rank, chunks


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


def broadcast_s(
    size_bytes: float, chunk_bytes: float, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds: s/w + q + 2 t_lat, for any number of ranks above one.

    s = size_bytes, w = bytes_per_s each way, q = chunk_bytes / w, t_lat = latency_s. Exact in
    virtual time if the chunks are equal.
    """
    return (size_bytes + chunk_bytes) / bytes_per_s + 2 * latency_s
