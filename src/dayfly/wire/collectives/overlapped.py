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

from dayfly.elementwise import least, most
from dayfly.wire.collectives.base import Collective
from dayfly.wire.collectives.cost import AllReduce, Cost, Phase
from dayfly.wire.collectives.k_reduce import traffic
from dayfly.wire.collectives.pieces import first_s
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
    """How many chunks later sums come, of so many chunks; elementwise."""
    found: int = least(count, most(_LEAST_LAG, -(-count // 2)))
    return found


class _Overlapped:
    """The schedule of one rank, being written down.

    Args:
        rank: whose.
        pieces: the chunks of every split; the first splits may have one more than the others.
        stored: sums that are in the channel already.
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

    Over equal links that is  2(n-1)/n s/w + q + 2 t_lat,  q the time of a chunk: a contribution has
    to be up before the first download, and the last download takes its latency. In between the
    downlink is busy throughout if the lag hides the way of a sum: (lag - 1)(n - 1) q is at least
    q + 2 t_lat; what is missing there comes on top. Where the uplink has more to do, it decides:
    all of it, and the last chunks of the others. Sums cannot leave before the contributions to the
    first chunk were read.
    """
    n = one.members
    count, whole = one.chunks_of_splits(MOST_CHUNKS)
    chunk, total = one.nbytes / (n * count), one.summed / (n * count)
    # Where sums have another size than contributions, a message is taken to have the mean of all.
    sent = chunk if one.sum_bytes is None else ((n - 1) * chunk + total) / n
    read = chunk if one.sum_bytes is None else (chunk + total) / 2
    up, down = one.up(sent, n, n * count), one.down(read, n, 2 * (n - 1) * count)
    parts, sums_up = one.up(chunk, n, n - 1), one.up(total, n, count)
    up_q, down_q = up.up_s / (n * count), down.down_s / (2 * (n - 1) * count)
    # Those of the first contributions that are under way together end together.
    begun_s = first_s(one.link.up, sent, (n - 1) * count, up_q)
    copies_s = (one.copies - 1) * count * up_q
    add_s = (n - 1) * chunk * one.link.reduce_s_per_byte
    hidden_s = (lag(count) - 1) * down.down_s / (2 * count)
    up_late_s, down_late_s = one.link.up.latency_s, one.link.down.latency_s
    missing_s = most(0.0, up_q + one.link.late_s + add_s - hidden_s)
    by_down_s = begun_s + up_late_s + most(down.length_s, down.down_s + missing_s + down_late_s)
    ready_s = parts.length_s + down_q + down_late_s + add_s
    last_s = most((n - 1) * down_q, copies_s + down_q)
    by_up_s = most(up.length_s, ready_s + sums_up.length_s) + last_s + down_late_s
    whole_s = most(by_down_s, by_up_s)
    carried_s = most(
        begun_s + down.down_s + most(0.0, up_q + add_s - hidden_s),
        most(up.up_s, parts.up_s + down_q + add_s + sums_up.up_s) + last_s,
    )
    phase = Phase(whole_s, up_s=up.up_s + copies_s, down_s=down.down_s, late_s=whole_s - carried_s)
    return one.costs((phase,), traffic(one, whole, whole), one.held_bytes(chunk, waiting=n))


OVERLAPPED = Collective(schedule=overlapped, sums=sums, cost=cost, whole=True)


def bound_s(size_bytes: float, world_size: int, bytes_per_s: float) -> float:
    """Least seconds over a store that only keeps: 2(n-1)/n s/w, downlink-bound (papers' errata)."""
    return 2 * (world_size - 1) / world_size * size_bytes / bytes_per_s
