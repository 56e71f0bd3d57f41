"""How long a collective keeps a worker's lines busy, phase by phase, for any number of workers.

Closed forms of n, bytes and rates, as `wire.collectives` has them beside each algorithm, for
uplinks and downlinks that differ, and with what summing takes. In virtual time
(`wire.virtual.simulate`) the same schedules take as long if the splits are equal.

    scatter-reduce    |up (n-1)/n s|down (n-1)/n s|sum|up s/n|down (n-1)/n s|
    overlapped        |lead|up s, down 2(n-1)/n s beside each other|
    others            see their functions below

s = bytes of the buffer, n = ranks, w = bytes a second, t_lat = latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from dayfly.planning.ranks import Link
from dayfly.wire.collectives import most_chunks, no_closed_form
from dayfly.wire.collectives.overlapped import lag
from dayfly.wire.collectives.push_pull import push_pull_s
from dayfly.wire.collectives.ring import chunked_ring_s
from dayfly.wire.schedule import MOST_CHUNKS


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a collective. up_s, down_s: how much of it the lines are busy.

    late_s: of its length that is latency, in which the lines may carry others' messages.
    """

    length_s: float
    up_s: float = 0.0
    down_s: float = 0.0
    late_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summing:
    """An all-reduce that is to be done: over n ranks of a group, of so many bytes.

    groups: that sum at once, over one store. chunk_bytes: what is worth a message.
    reduce_s_per_byte: to add a contribution. aggregators: of k-reduce.
    """

    collective: str
    ranks: int
    nbytes: float
    link: Link
    chunk_bytes: float = 1.0
    reduce_s_per_byte: float = 0.0
    aggregators: int | None = None
    groups: int = 1

    def phases(self) -> tuple[Phase, ...]:
        """From the moment at which every rank has its contribution; none for one rank."""
        if self.ranks == 1 or not self.nbytes:
            return ()
        if self.collective not in _FORMS:
            raise no_closed_form(self.collective)
        return _FORMS[self.collective](self)

    def up_s(self, nbytes: float, senders: float) -> float:
        """How long a message occupies an uplink while so many ranks of each group send."""
        return self.link.up.occupied_s(nbytes, senders * self.groups)

    def down_s(self, nbytes: float, readers: float) -> float:
        """How long a message occupies a downlink while so many ranks of each group read."""
        return self.link.down.occupied_s(nbytes, readers * self.groups)

    def chunks(self) -> int:
        """Of a split of the buffer in as many as there are ranks."""
        worth = self.nbytes / self.ranks // max(1, self.chunk_bytes)
        return int(max(1, min(most_chunks(self.collective), worth)))


def length_s(phases: tuple[Phase, ...]) -> float:
    """One after another."""
    return sum(phase.length_s for phase in phases)


def _k_reduce(s: Summing, aggregators: int | None = None) -> tuple[Phase, ...]:
    """FasDL eq. 1 (a to c), corrected as in `wire.collectives.k_reduce.k_reduce_s`.

    With K = n it is scatter-reduce (FuncPipe eq. 1), with K = 1 LambdaML's AllReduce.
    """
    n, k = s.ranks, aggregators or s.aggregators or s.ranks
    part = s.nbytes / k
    up_late, down_late = s.link.up.latency_s, s.link.down.latency_s
    first_s = (k - (k > 1)) * s.up_s(part, n)
    read_s = (n - 1) * s.down_s(part, k)
    add_s = (n - 1) * part * s.reduce_s_per_byte
    sum_s = s.up_s(part, k)
    last_s = (k - (k == n)) * s.down_s(part, n)
    return (
        Phase(first_s + up_late, up_s=first_s, late_s=up_late),
        Phase(read_s + down_late, down_s=read_s, late_s=down_late),
        Phase(add_s),
        Phase(sum_s + up_late, up_s=sum_s, late_s=up_late),
        Phase(last_s + down_late, down_s=last_s, late_s=down_late),
    )


def _pipelined(s: Summing) -> tuple[Phase, ...]:
    """FuncPipe eq. 2, 2 s/w + (2 + n) t_lat: n - 1 steps of an upload and a download each.

    A step ends when both are done; the first has no download, the last no upload.
    """
    n, part = s.ranks, s.nbytes / s.ranks
    up_s, down_s = s.up_s(part, n), s.down_s(part, n)
    up_late, down_late = s.link.up.latency_s, s.link.down.latency_s
    both_s = max(up_s + up_late, down_s + down_late)
    steps_s = up_s + up_late + (n - 2) * both_s + down_s + down_late
    late_s = steps_s - (up_s + (n - 2) * max(up_s, down_s) + down_s)
    add_s = (n - 1) * part * s.reduce_s_per_byte
    last_s = (n - 1) * down_s
    return (
        Phase(steps_s, up_s=(n - 1) * up_s, down_s=(n - 1) * down_s, late_s=late_s),
        Phase(add_s),
        Phase(up_s + up_late, up_s=up_s, late_s=up_late),
        Phase(last_s + down_late, down_s=last_s, late_s=down_late),
    )


def _overlapped(s: Summing) -> tuple[Phase, ...]:
    """As `wire.collectives.overlapped.overlapped_s`: the bound, a chunk, and two latencies.

    Where the uplink has more to do than the downlink, it decides: all of it, two latencies, and the
    last chunks of the others.
    """
    n, count = s.ranks, s.chunks()
    chunk = s.nbytes / (n * count)
    up_q, down_q = s.up_s(chunk, n), s.down_s(chunk, n)
    late_s = s.link.up.latency_s + s.link.down.latency_s
    up_s, down_s = n * count * up_q, 2 * (n - 1) * count * down_q
    add_s = (n - 1) * chunk * s.reduce_s_per_byte
    missing_s = max(0.0, up_q + late_s + add_s - (lag(count) - 1) * (n - 1) * down_q)
    by_downlink_s = up_q + down_s + late_s + missing_s
    by_uplink_s = up_s + late_s + (n - 1) * down_q
    whole_s = max(by_downlink_s, by_uplink_s)
    return (Phase(whole_s, up_s=up_s, down_s=down_s, late_s=late_s),)


def _ring(s: Summing) -> tuple[Phase, ...]:
    """As `wire.collectives.ring.chunked_ring_s`, over the slower of both directions."""
    n, chunk = s.ranks, s.nbytes / s.ranks / s.chunks()
    rate = chunk / max(s.up_s(chunk, n), s.down_s(chunk, n))
    late_s = (s.link.up.latency_s + s.link.down.latency_s) / 2
    add_s = (n - 1) / n * s.nbytes * s.reduce_s_per_byte
    whole_s = chunked_ring_s(s.nbytes, n, chunk, rate, late_s) + add_s
    waits_s = whole_s - add_s - chunked_ring_s(s.nbytes, n, chunk, rate, 0.0)
    busy_s = 2 * (n - 1) / n * s.nbytes / rate
    return (Phase(whole_s, up_s=busy_s, down_s=busy_s, late_s=waits_s),)


def _push_pull(s: Summing) -> tuple[Phase, ...]:
    """As `wire.collectives.push_pull.push_pull_s`; the server's link is the store's, if limited."""
    n = s.ranks
    chunk = s.nbytes / max(1, min(MOST_CHUNKS, s.nbytes // max(1.0, s.chunk_bytes)))
    up, down = s.link.up, s.link.down
    # A worker's own way is not that of all: that is the server's.
    own_s = max(replace(line, store_bytes_per_s=math.inf).occupied_s(chunk) for line in (up, down))
    own = chunk / own_s if own_s else math.inf
    late_s = (up.latency_s + down.latency_s) / 2
    server = up.store_bytes_per_s / s.groups
    whole_s = push_pull_s(s.nbytes, n, chunk, own, late_s, server)
    busy_s = s.nbytes / own
    return (Phase(whole_s, up_s=busy_s, down_s=busy_s, late_s=2 * late_s),)


def _all_reduce(s: Summing) -> tuple[Phase, ...]:
    return _k_reduce(s, 1)


def _scatter_reduce(s: Summing) -> tuple[Phase, ...]:
    return _k_reduce(s, s.ranks)


_FORMS: dict[str, Callable[[Summing], tuple[Phase, ...]]] = {
    "all-reduce": _all_reduce,
    "k-reduce": _k_reduce,
    "overlapped": _overlapped,
    "pipelined": _pipelined,
    "push-pull": _push_pull,
    "ring": _ring,
    "scatter-reduce": _scatter_reduce,
}
