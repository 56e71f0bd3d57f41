"""Seconds of a step in virtual time: the schedules of real runs, at a given rate and latency.

an aggregator  |compute t  |put parts|get parts|sum|put sum|get sums|compute t+1 ...
one that lags  |compute t     |put parts|get sums of t-1|compute t+1 ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dayfly.wire.collectives.k_reduce import contributing, k_reduce, reading
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import CompiledSchedule, Kind, Op, Schedule, Span, Work
from dayfly.wire.simulation import run
from dayfly.wire.streams import Direction, Rank, Stream

#: Steps in virtual time; the first ones, which fill what others take, are left out.
_STEPS, _FIRST = 16, 6
#: Requests that a lane has under way, as over files, Redis and sockets.
_IN_FLIGHT = 4
_COMPUTE = CompiledSchedule(Schedule((Op(Kind.COMPUTE, Span(0, 0), work=Work("step", 0)),)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What workers sum at the end of a step, or of a round.

    Args:
        length: elements of the buffer.
        contribution: bytes of an element of a contribution, as it travels.
        total: the same of a sum.
    """

    length: int
    contribution: float = 4.0
    total: float = 4.0

    @classmethod
    def measured(
        cls, length: int, workers: int, exchanges: int, bytes_up: float, bytes_down: float
    ) -> Exchange:
        """Returns what messages of scatter-reduce were, by a run's bytes; with 3 workers or more.

        A worker puts n - 1 shards of its contribution and its own sum, and gets as many shards and
        n - 1 sums.

        Args:
            length: elements of the buffer.
            workers: n.
            exchanges: of the run.
            bytes_up: of all workers in all exchanges.
            bytes_down: likewise.
        """
        up, down = bytes_up / exchanges / workers, bytes_down / exchanges / workers
        sums = (down - up) / (workers - 2)
        shard = length / workers
        return cls(
            length=length, contribution=(up - sums) / shard / (workers - 1), total=sums / shard
        )


def step_s(
    exchange: Exchange,
    compute_s: Sequence[float],
    *,
    bytes_per_s: float,
    latency_s: float,
    aggregators: int | None = None,
    lag: bool = False,
) -> float:
    """Returns the seconds of a step, or of a round.

    Args:
        exchange: what is summed at its end.
        compute_s: of each worker, what it computes before.
        bytes_per_s: of each worker's link, each way.
        latency_s: of each request.
        aggregators: K of k-reduce; None: as many as workers, which is scatter-reduce.
        lag: the other workers do not wait for sums (`--sync hap`).
    """
    workers = len(compute_s)
    summing = workers if aggregators is None else aggregators

    def travelling(elements: int, of_sum: bool) -> int:
        return round(elements * (exchange.total if of_sum else exchange.contribution))

    def stream(plan: CompiledSchedule, name: object, rank: int, after: int) -> Stream:
        return Stream(
            plan=plan,
            name=name,
            member=rank,
            members=workers,
            travelling=travelling,
            after=((after, None),),
            in_flight=_IN_FLIGHT,
        )

    def make(how: Callable[..., Schedule], rank: int) -> CompiledSchedule:
        return CompiledSchedule(how(rank, workers, exchange.length))

    way = Direction(occupied_s=lambda nbytes: nbytes / bytes_per_s, latency_s=latency_s)
    ranks, last = [], {}
    for rank, takes_s in enumerate(compute_s):
        lags = lag and rank >= summing
        whole = make(k_reduce(summing).schedule, rank)
        puts = make(contributing(summing).schedule, rank) if lags else whole
        gets = make(reading(summing).schedule, rank) if lags else whole
        streams: list[Stream] = []
        for step in range(_STEPS):
            before = ((len(streams) - 1, None),) if streams else ()
            streams.append(Stream(plan=_COMPUTE, works_s=[takes_s], after=before))
            streams.append(stream(puts, step, rank, len(streams) - 1))
            if lags and step:
                streams.append(stream(gets, step - 1, rank, len(streams) - 1))
            last[rank, step] = len(streams) - 1
        ranks.append(Rank(streams=streams, up=way, down=way, header_bytes=HEADER_BYTES))
    moments = run(ranks)

    def end_s(step: int) -> float:
        return max(max(moments[rank][last[rank, step]].done_s) for rank in range(workers))

    return (end_s(_STEPS - 1) - end_s(_FIRST)) / (_STEPS - 1 - _FIRST)
