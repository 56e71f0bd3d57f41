"""Reduce and all-gather in chunks, running into each other: uplink and downlink busy at once.

n ranks cut the buffer into n splits; rank r is in charge of split r. Each split is cut into C
chunks. Of every chunk its owner downloads the n-1 contributions (`part-c`), sums them up in rank
order and uploads the sum (`sum-c`), which all others download.

    rank 0, n = 3, C = 4, lag = 2; >1: to rank 1, <2: from rank 2; numbers are chunks
    uplink   |0>1|0>2|1>1|1>2|sum0|2>1|2>2|sum1|3>1|3>2|    |sum2|    |sum3|
    downlink     |0<2|0<1|1<2|1<1|sum0 of 2,1|2<2|2<1|sum1 of 2,1|3<2|3<1|sum2 of 2,1|sum3 of 2,1|
    compute              |+0    |+1                     |+2                 |+3

Downlink: 2(n-1)/n s in all, which is why no algorithm over a store that only keeps is faster than
2(n-1)/n s/w. It never stands still here, because

    it has contributions to read while the first sums are made: sums come `lag` chunks later;
    whom a rank sends to first differs from rank to rank (r+1, r+2, ...), and so does whom it reads
    from first (r-1, r-2, ...): what is read next was sent longest ago;
    the uplink sends as many contributions ahead, then a sum whenever its time has come: s in all,
    so it can wait.

Contributions are dropped, some chunks in one go, once their sums are stored: the sums alone are the
message log. In memory, beside the buffer, are the contributions to a chunk and those in flight.
"""

from __future__ import annotations

from collections.abc import Set

from dayfly.wire.collectives.base import Collective
from dayfly.wire.collectives.cost import AllReduce, Cost, Phase
from dayfly.wire.collectives.k_reduce import traffic
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

#: Most chunks of a split. Twice as many would save a hundredth of the bound on 4 ranks, and take a
#: third more CPU time where the link is fast: each chunk is 3n - 2 messages.
MOST_CHUNKS = 16
#: Sums come half of all chunks later than contributions, but so many at least if there are as
#: many. More hides longer latencies; less lets sums leave earlier, which counts where the uplink is
#: the slower one.
_LEAST_LAG = 8
#: Contributions are dropped in so many goes: each is a request, and a wait for it in the lane that
#: sums up.
_DROPS = 4


def overlapped(
    rank: int,
    world_size: int,
    length: int,
    stored: Set[Name] = frozenset(),
    *,
    chunk: int = 1,
) -> Schedule:
    """What `rank` does; see `MakeSchedule`. A split is at least one chunk, at most MOST_CHUNKS."""
    check_rank(rank, world_size)
    if world_size == 1:
        return alone(length)
    pieces = _pieces(world_size, length, chunk)
    return _Overlapped(rank, pieces, stored).schedule()


def sums(world_size: int, length: int, chunk: int) -> tuple[Name, ...]:
    """The messages that hold the result: a sum for every chunk of every split."""
    if world_size == 1:
        return ()
    pieces = _pieces(world_size, length, chunk)
    return tuple(_sum(owner, c) for owner, spans in enumerate(pieces) for c in range(len(spans)))


def lag(count: int) -> int:
    """How many chunks later sums come, of so many chunks."""
    return min(count, max(_LEAST_LAG, -(-count // 2)))


class _Overlapped:
    """The schedule of one rank, being written down.

    pieces: the chunks of every split; those of the first splits may be one more.
    """

    def __init__(self, rank: int, pieces: list[tuple[Span, ...]], stored: Set[Name]) -> None:
        n = len(pieces)
        self._rank = rank
        self._pieces = pieces
        self._stored = stored
        self._onward = [(rank + distance) % n for distance in range(1, n)]
        self._backward = [(rank - distance) % n for distance in range(1, n)]
        self._draft = Draft()
        self._sent: dict[Name, int] = {}  # by the sum that it goes into, and the PUT of that
        self._reduced: dict[int, int] = {}  # by chunk, as the next
        self._finished: dict[int, int] = {}
        self._dropped = 0

    def schedule(self) -> Schedule:
        count = len(self._pieces[0])
        behind = lag(count)
        every = -(-len(self._pieces[self._rank]) // _DROPS)
        for c in range(count + behind):
            self._put_sum(c - behind)
            self._put_parts(c)
            self._get_sums(c - behind)
            self._reduce(c)
            self._drop(c - behind, every)
        return self._draft.schedule()

    def _mine(self, c: int) -> Span | None:
        return self._chunk(self._rank, c)

    def _chunk(self, owner: int, c: int) -> Span | None:
        spans = self._pieces[owner]
        return spans[c] if 0 <= c < len(spans) else None

    def _put_sum(self, c: int) -> None:
        span = self._mine(c)
        if span is not None and c in self._reduced:
            name, after = _sum(self._rank, c), (self._reduced[c],)
            self._finished[c] = self._draft.add(Op(Kind.PUT, span, name, after=after))

    def _put_parts(self, c: int) -> None:
        for owner in self._onward:
            span, total = self._chunk(owner, c), _sum(owner, c)
            if span is not None and total not in self._stored:
                name = Name(f"part-{c}", self._rank, owner)
                self._sent[total] = self._draft.add(Op(Kind.PUT, span, name, feeds=total))

    def _get_sums(self, c: int) -> None:
        for owner in self._backward:
            span, total = self._chunk(owner, c), _sum(owner, c)
            if span is not None:
                # The contribution is read from the same place.
                after = (self._sent[total],) if total in self._sent else ()
                self._draft.add(Op(Kind.GET, span, total, after=after))

    def _reduce(self, c: int) -> None:
        span, total = self._mine(c), _sum(self._rank, c)
        if span is None:
            return
        if total in self._stored:
            self._finished[c] = self._draft.add(Op(Kind.GET, span, total))
            return
        parts = {peer: self._part(c, peer) for peer in self._backward}
        held = tuple(self._draft.add(Op(Kind.FETCH, span, part)) for part in parts.values())
        in_rank_order = tuple(parts.get(peer) for peer in range(len(self._pieces)))
        self._reduced[c] = self._draft.add(
            Op(Kind.REDUCE, span, terms=in_rank_order, after=held),
        )

    def _drop(self, c: int, every: int) -> None:
        """Once the sums of chunks up to c are stored; `every` so many, and the rest at the end."""
        due = range(self._dropped, c + 1)
        if self._mine(c) is None or (len(due) < every and c + 1 < len(self._pieces[self._rank])):
            return
        self._dropped = c + 1
        terms = tuple(self._part(one, peer) for one in due for peer in self._backward)
        after = tuple(self._finished[one] for one in due)
        self._draft.add(Op(Kind.DROP, Span(0, 0), terms=terms, after=after))

    def _part(self, c: int, peer: int) -> Name:
        return Name(f"part-{c}", peer, self._rank)


def _pieces(world_size: int, length: int, chunk: int) -> list[tuple[Span, ...]]:
    return [chunks(span, chunk, MOST_CHUNKS) for span in split(length, world_size)]


def _sum(owner: int, c: int) -> Name:
    return Name(f"sum-{c}", owner)


def cost(one: AllReduce) -> Cost:
    """Returns the cost: the link that is busy longer, a chunk, and two latencies.

    See `overlapped_s`, which it is where uplink and downlink are alike. Where the uplink has more
    to do than the downlink, it decides: all of it, and the last chunks of the others.
    """
    n = one.members
    count, whole = one.chunks_of_splits(MOST_CHUNKS)
    chunk = one.nbytes / (n * count)
    up, down = one.up(chunk, n, n * count), one.down(chunk, n, 2 * (n - 1) * count)
    up_q, down_q = up.up_s / (n * count), down.down_s / (2 * (n - 1) * count)
    copies_s = (one.copies - 1) * count * up_q
    add_s = (n - 1) * chunk * one.link.reduce_s_per_byte

    def length_s(up_s: float, down_s: float, late_s: float) -> float:
        hidden_s = (lag(count) - 1) * down_s / (2 * count)
        by_down_s = up_q + down_s + max(0.0, up_q + late_s + add_s - hidden_s)
        return late_s + max(by_down_s, up_s + copies_s + (n - 1) * down_q)

    late_s = one.link.late_s
    whole_s = length_s(
        up.length_s - one.link.up.latency_s, down.length_s - one.link.down.latency_s, late_s
    )
    carried_s = length_s(up.up_s, down.down_s, 0.0)
    phase = Phase(whole_s, up_s=up.up_s + copies_s, down_s=down.down_s, late_s=whole_s - carried_s)
    return one.costs((phase,), traffic(one, whole, whole), one.held_bytes(chunk, waiting=n))


OVERLAPPED = Collective(schedule=overlapped, sums=sums, cost=cost, most_chunks=MOST_CHUNKS)


def bound_s(size_bytes: float, world_size: int, bytes_per_s: float) -> float:
    """Least seconds over a store that only keeps: 2(n-1)/n s/w, downlink-bound (papers' errata)."""
    return 2 * (world_size - 1) / world_size * size_bytes / bytes_per_s


def overlapped_s(
    size_bytes: float, world_size: int, count: int, bytes_per_s: float, latency_s: float
) -> float:
    """Seconds of this schedule: the bound, a chunk, and two latencies: 2(n-1)/n s/w + q + 2 t_lat.

    s = size_bytes, n = world_size, w = bytes_per_s each way, t_lat = latency_s, q = s/(nCw) the
    time of a chunk, C = count. A contribution has to be up before the first download, and the last
    download takes its latency; in between the downlink is busy throughout if the lag hides the way
    of a sum: (lag - 1)(n - 1) q >= q + 2 t_lat. If lag = C, what is missing there comes on top.
    Exact if the chunks are equal, and one of both conditions holds.
    """
    n = world_size
    if n == 1:
        return 0.0
    q = size_bytes / (n * count) / bytes_per_s
    missing_s = q + 2 * latency_s - (lag(count) - 1) * (n - 1) * q
    return bound_s(size_bytes, n, bytes_per_s) + q + 2 * latency_s + max(0.0, missing_s)


def overlapped_requests(world_size: int, length: int, chunk: int) -> tuple[int, int]:
    """Puts and gets of all ranks: n and 2(n-1) for every chunk of every split."""
    if world_size == 1:
        return 0, 0
    # The first splits may have an element more than the others, so two kinds are enough to look at.
    least, larger = divmod(length, world_size)
    sizes = (Span(0, least + 1), Span(0, least))
    of_larger, of_least = (len(chunks(span, chunk, MOST_CHUNKS)) for span in sizes)
    count = larger * of_larger + (world_size - larger) * of_least
    return world_size * count, 2 * (world_size - 1) * count


def overlapped_bytes(size_bytes: int, world_size: int) -> tuple[int, int]:
    """Payload bytes of all ranks, up and down: n s and 2(n-1) s, as scatter-reduce's."""
    s, n = size_bytes, world_size
    return (s * n, 2 * s * (n - 1)) if n > 1 else (0, 0)
