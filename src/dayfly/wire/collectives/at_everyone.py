"""All-reduce of a few elements: everyone gets everyone's, and sums them up for itself.

    phase 1  every rank uploads its whole buffer                                        `term`
    phase 2  every rank downloads those of all others, and sums them up in rank order

    rank 0, n = 3:   uplink    |term 0|
                     downlink         |term 1|term 2|
                     compute                        |reduce|

Two latencies instead of four, n - 1 times the bytes: for messages that are nothing but latency. The
order of summation is that of the algorithms with aggregators, so the bits are the same, too.

A term is read by everyone, and nobody knows when the last has read it: it stays until its step is
trimmed. Nothing is kept from which a worker that starts again takes the result.
"""

from __future__ import annotations

from dayfly.wire.schedule import Draft, Kind, Name, Op, Schedule, Span, alone, check_rank


def at_everyone(rank: int, world_size: int, length: int, *, chunk: int = 1) -> Schedule:
    """What `rank` does; see `MakeOther`. Whatever `chunk` is, a term is one message."""
    check_rank(rank, world_size)
    if world_size == 1:
        return alone(length)
    draft, whole = Draft(), Span(0, length)
    names = [Name("term", source) for source in range(world_size)]
    sent = draft.add(Op(Kind.PUT, whole, names[rank]))
    held = [
        draft.add(Op(Kind.HOLD, whole, names[(rank - distance) % world_size]))
        for distance in range(1, world_size)
    ]
    terms = tuple(None if name.source == rank else name for name in names)
    # The sum takes the place of what is sent.
    draft.add(Op(Kind.REDUCE, whole, terms=terms, after=(sent, *held)))
    return draft.schedule()


def at_everyone_s(
    size_bytes: float, world_size: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds: n s/w + 2 t_lat.

    s = size_bytes, n = world_size, w = bytes_per_s each way, t_lat = latency_s. Exact in virtual
    time: all terms are there at once, and the downlink carries n - 1 of them.
    """
    n = world_size
    return n * size_bytes / bytes_per_s + 2 * latency_s if n > 1 else 0.0
