"""Reduce-scatter, then all-gather, around the ring (Hydrozoa section 3.4; for direct channels).

n ranks cut the buffer into n splits, modulo n. Messages go from a rank to the next one only.

    round t of 0 to n-2    rank r sends `part` of split r-1-t to r+1; what comes from r-1 is split
                           r-2-t, to which it adds its own
    then rank r has the sum of split r
    round t of 0 to n-2    rank r sends `sum` of split r-t to r+1; what comes from r-1 is r-1-t

    rank 0, n = 3:   uplink    |part 2|part 1|       |sum 0|sum 2|
                     downlink         |part 1|part 0|      |sum 2|sum 1|
                     compute                 |+ own 1|+ own 0|

Splits go in chunks: a chunk is sent on as soon as it is summed up, while the ones after it are
still coming, so that a round costs its bytes alone and the latencies are hidden behind them.

Order of summation: split j starts at rank j+1 and goes around to rank j, which adds its own last:
((j+1) + (j+2)) + ... + j. So every rank holds the same bits, but not those of rank order. No sums
are kept: a message is dropped by its one reader, and after a death all workers go back to the run
checkpoint.
"""

from __future__ import annotations

from collections.abc import Set

from dayfly.elementwise import choice, most
from dayfly.wire.collectives.base import Collective, no_sums
from dayfly.wire.collectives.cost import AllReduce, Cost, MessageCount, Phase
from dayfly.wire.collectives.pieces import first_of_late_s, first_s, pieces_of
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


def ring(
    rank: int,
    world_size: int,
    length: int,
    stored: Set[Name] = frozenset(),
    *,
    chunk: int = 1,
) -> Schedule:
    """What `rank` does; see `MakeSchedule`. It keeps no sums, so `stored` is of no use to it."""
    check_rank(rank, world_size)
    if world_size == 1:
        return alone(length)
    n, draft = world_size, Draft()
    pieces = [chunks(span, chunk) for span in split(length, n)]
    onward, backward = (rank + 1) % n, (rank - 1) % n
    # By (split, chunk): when it may be sent on, and when its partial sum was.
    ready: dict[tuple[int, int], int] = {}
    sent: dict[tuple[int, int], int] = {}
    for gather in (False, True):
        phase = "sum" if gather else "part"
        for t in range(n - 1):
            leaving = (rank - t - (not gather)) % n
            coming = (leaving - 1) % n
            for c, span in enumerate(pieces[leaving]):
                name = Name(f"{phase}-{leaving}-{c}", rank, onward)
                after = (ready[leaving, c],) if (leaving, c) in ready else ()
                sent[leaving, c] = draft.add(Op(Kind.PUT, span, name, after=after))
            names, read = [], []
            for c, span in enumerate(pieces[coming]):
                name = Name(f"{phase}-{coming}-{c}", backward, rank)
                names.append(name)
                if gather:
                    after = (sent[coming, c],)
                    ready[coming, c] = draft.add(Op(Kind.GET, span, name, after=after))
                else:
                    held = draft.add(Op(Kind.FETCH, span, name))
                    ready[coming, c] = draft.add(
                        Op(Kind.REDUCE, span, terms=(name, None), after=(held,))
                    )
                read.append(ready[coming, c])
            draft.add(Op(Kind.DROP, Span(0, 0), terms=tuple(names), after=tuple(read)))
    return draft.schedule()


def cost(one: AllReduce) -> Cost:
    """Returns the cost: 2(n-1) rounds, of which each takes its bytes, or a chunk's way if longer.

    A round carries s/n over the slower direction. A chunk takes q up, q down and two latencies to
    the next rank; a round that is shorter than that lasts so long instead, but for the last. So it
    is `ring_s` with alpha = beta = 0 where chunks hide the latencies, and with alpha = 1/D and
    beta = 2 latencies without chunks. Exact if the chunks are equal.
    """
    n = one.members
    count, whole = one.chunks_of_splits()
    chunk = one.nbytes / (n * count)
    up, down = one.up(chunk, n, count), one.down(chunk, n, count)

    def length_s(split_s: float, hop_s: float, first_s: float) -> float:
        rounds_s: float = (2 * (n - 1) - 1) * most(split_s, hop_s)
        return rounds_s + split_s - first_s + hop_s

    round_s = most(up.up_s, down.down_s)
    late_s, hop_s = one.link.late_s, (up.up_s + down.down_s) / count
    hop_s = _apart_s(one, chunk, hop_s, round_s / count)
    row_s = most(up.length_s - one.link.up.latency_s, down.length_s - one.link.down.latency_s)
    apart_s = _together_s(one, chunk, count, most(row_s, round_s), hop_s + late_s)
    long_s = length_s(row_s, hop_s + late_s, round_s / count) + apart_s
    short_s = length_s(round_s, hop_s, round_s / count) + apart_s
    busy_s = 2 * (n - 1) * round_s
    add_s = (n - 1) / n * one.nbytes * one.link.reduce_s_per_byte
    moved = 2 * (n - 1) * one.nbytes
    requests = 2 * (n - 1) * whole
    return one.costs(
        (Phase(long_s + add_s, up_s=busy_s, down_s=busy_s, late_s=long_s - short_s),),
        (MessageCount(requests, requests, moved, moved),),
        one.held_bytes(chunk),
    )


def _together_s(
    one: AllReduce, chunk_bytes: float, count: int, row_s: float, hop_s: float
) -> float:
    """Returns what a ring takes longer because chunks that are under way together end together.

    The first chunk's way to the next rank takes nearly as long as all chunks', in the first round,
    and in the last one the last chunks are read together (see `pieces`). In between the link is
    busy throughout.

    Args:
        one: the all-reduce.
        chunk_bytes: of a chunk.
        count: chunks of a split.
        row_s: time of all chunks of a split.
        hop_s: a chunk's way, one after another.
    """
    up, down = one.link.up, one.link.down
    up_s, down_s = (line.occupied_s(chunk_bytes) for line in (up, down))
    later_s = first_s(up, chunk_bytes, count, up_s) - up_s
    later_s = later_s + first_of_late_s(down, chunk_bytes, count, down_s) - down_s
    last = down.under_way(chunk_bytes, count) - 1
    last_s = (pieces_of(down, chunk_bytes) > 1) * last / 2 * down_s
    found: float = most(row_s, hop_s + later_s) - most(row_s, hop_s) + last_s
    return found


def _apart_s(one: AllReduce, chunk_bytes: float, hop_s: float, least_s: float) -> float:
    """Returns the time of a chunk's way where members share links of hosts.

    If all hosts have as many members, all send at one moment and read at another. If not, members
    with fewer beside them run ahead, and others send while some read: between that and both
    directions busy throughout the middle is taken.

    Args:
        one: the all-reduce.
        chunk_bytes: of a chunk.
        hop_s: its way, all sending, then all reading.
        least_s: the slower direction alone.
    """
    n, on_host = one.members, one.on_host(one.members)
    if on_host is None:
        return hop_s
    ways, at_once = (one.link.up, one.link.down), n * one.groups
    alone_s = sum(way.occupied_s(chunk_bytes, at_once, 1) for way in ways)
    apart_s = (hop_s + most(least_s, alone_s)) / 2
    found: float = choice(n % on_host, apart_s, hop_s)
    return found


RING = Collective(schedule=ring, sums=no_sums, cost=cost, rank_order=False)


def ring_s(
    size_bytes: float,
    world_size: int,
    bytes_per_s: float,
    alpha_s_per_byte: float,
    beta_s: float,
) -> float:
    """Seconds by Hydrozoa section 3.4, corrected: 2(A-1)(|p|/(A D) + alpha |p|/A + beta).

    |p| = size_bytes, A = world_size (replicas of the shard; the paper prints B, its number of
    shards, and B-1 rounds: see the papers' errata), D = bytes_per_s; alpha = alpha_s_per_byte and
    beta = beta_s are fitted to what else a round takes. In virtual time a message goes up, and then
    down: without chunks alpha = 1/D and beta = 2 latencies are exact.
    """
    p, a, d = size_bytes, world_size, bytes_per_s
    return 2 * (a - 1) * (p / (a * d) + alpha_s_per_byte * p / a + beta_s)
