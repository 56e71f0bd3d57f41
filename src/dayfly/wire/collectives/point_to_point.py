"""Send and receive: one rank's buffer goes to another, in chunks.

    sender     uplink     |0 |1 |2 |
    receiver   downlink      |0 |1 |2 |
               compute                |drop all|

The receiver drops the messages, which nobody else reads; nothing stays. For the others the
schedule is empty.
"""

from __future__ import annotations

from functools import partial

from dayfly.wire.collectives.others import MakeOther
from dayfly.wire.schedule import Draft, Kind, Name, Op, Schedule, Span, check_rank, chunks


def send(to: int) -> MakeOther:
    """What the sender does to send its buffer to this rank."""
    return partial(_send, to=to)


def recv(source: int) -> MakeOther:
    """What the receiver does to receive into its buffer what this rank sends."""
    return partial(_recv, source=source)


def _send(rank: int, world_size: int, length: int, *, chunk: int = 1, to: int) -> Schedule:
    _check_parties(rank, to, world_size)
    draft = Draft()
    for c, span in enumerate(chunks(Span(0, length), chunk)):
        draft.add(Op(Kind.PUT, span, Name(f"chunk-{c}", rank, to)))
    return draft.schedule()


def _recv(rank: int, world_size: int, length: int, *, chunk: int = 1, source: int) -> Schedule:
    _check_parties(rank, source, world_size)
    draft, names = Draft(), []
    read: list[int] = []
    for c, span in enumerate(chunks(Span(0, length), chunk)):
        names.append(Name(f"chunk-{c}", source, rank))
        read.append(draft.add(Op(Kind.GET, span, names[-1])))
    draft.add(Op(Kind.DROP, Span(0, 0), terms=tuple(names), after=tuple(read)))
    return draft.schedule()


def _check_parties(rank: int, peer: int, world_size: int) -> None:
    check_rank(rank, world_size)
    check_rank(peer, world_size)
    if rank == peer:
        raise ValueError(f"rank {rank} to itself")


def send_s(size_bytes: float, chunk_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    """Seconds until it is received: s/w + q + 2 t_lat, as `broadcast_s`."""
    return (size_bytes + chunk_bytes) / bytes_per_s + 2 * latency_s
