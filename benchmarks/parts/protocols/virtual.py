"""Seconds of a step in virtual time: the schedules of real runs, at a given rate and latency.

an aggregator  |compute t  |put parts|get parts|sum|put sum|get sums|compute t+1 ...
one that lags  |compute t     |put parts|get sums of t-1|compute t+1 ...
streaming      |compute t|compute t+1|compute t+2 ...
                         |put parts|get parts|sum|put sum|get sums|
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from dayfly.specs.streaming import Streaming
from dayfly.wire.collectives.k_reduce import contributing, k_reduce, reading
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import CompiledSchedule, Kind, Op, Schedule, Span, Work
from dayfly.wire.simulation import run
from dayfly.wire.streams import Direction, Moments, Rank, Stream

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
    exchanges: Sequence[Exchange],
    compute_s: Sequence[float],
    *,
    bytes_per_s: float,
    latency_s: float,
    aggregators: int | None = None,
    lag: bool = False,
) -> float:
    """Returns the seconds of a step, or of a round.

    Args:
        exchanges: what is summed at its end, one after another.
        compute_s: of each worker, what it computes before.
        bytes_per_s: of each worker's link, each way.
        latency_s: of each request.
        aggregators: K of k-reduce; None: as many as workers, which is scatter-reduce.
        lag: the other workers do not wait for sums (`--sync hap`).
    """
    workers = len(compute_s)
    summing = workers if aggregators is None else aggregators
    ranks, last = [], {}
    for rank, takes_s in enumerate(compute_s):
        lags = lag and rank >= summing
        puts = (contributing if lags else k_reduce)(summing).schedule
        streams: list[Stream] = []
        for step in range(_STEPS):
            streams.append(_computing(takes_s, [len(streams) - 1] if streams else []))
            sums = [(puts, step)]
            if lags and step:
                sums.append((reading(summing).schedule, step - 1))
            for how, of_step in sums:
                for number, one in enumerate(exchanges):
                    name, after = (of_step, number), [len(streams) - 1]
                    streams.append(_summing(one, how, name, rank, workers, after))
            last[rank, step] = len(streams) - 1
        ranks.append(streams)
    moments = _run(ranks, bytes_per_s, latency_s)

    def end_s(step: int) -> float:
        return max(max(moments[rank][last[rank, step]].done_s) for rank in range(workers))

    return (end_s(_STEPS - 1) - end_s(_FIRST)) / (_STEPS - 1 - _FIRST)


def streamed_s(
    exchanges: Sequence[Exchange],
    streaming: Streaming,
    compute_s: Sequence[float],
    *,
    k: int,
    rounds: int,
    bytes_per_s: float,
    latency_s: float,
) -> float:
    """Returns the seconds of an epoch whose rounds' sums are beside the steps that follow.

    A sum begins after the step that takes it, and the first step that needs it waits for it; at the
    epoch's end all workers have all sums. That is `runs.protocols.streaming`, over a link.

    Args:
        exchanges: of a round: its fragments.
        streaming: when they are taken and applied.
        compute_s: of each worker, what it computes in a step.
        k: steps of a round.
        rounds: of the epoch, all of k steps.
        bytes_per_s: of each worker's link, each way.
        latency_s: of each request.
    """
    workers, how = len(compute_s), k_reduce(len(compute_s)).schedule
    ranks = []
    for rank, takes_s in enumerate(compute_s):
        streams: list[Stream] = []
        before: list[int] = []  # what the training thread has waited for
        due: dict[int, list[int]] = {}  # sums that are under way, by the step that applies them
        for step in range(k * rounds):
            streams.append(_computing(takes_s, before))
            before = [len(streams) - 1, *due.pop(step, [])]
            done = step % k + 1
            taken = streaming.taken(done, k)
            for number in taken:
                due.setdefault(step + streaming.overlap, []).append(len(streams))
                name = step // k, number
                streams.append(_summing(exchanges[number], how, name, rank, workers, before))
            before += due.pop(step, [])
        ranks.append(streams)
    moments = _run(ranks, bytes_per_s, latency_s)
    return max(max(one.done_s) for streams in moments for one in streams)


def _computing(takes_s: float, after: Sequence[int]) -> Stream:
    """A step's, or a round's, after other streams of the worker."""
    return Stream(plan=_COMPUTE, works_s=[takes_s], after=tuple((one, None) for one in after))


def _summing(
    exchange: Exchange,
    how: Callable[..., Schedule],
    name: Hashable,
    rank: int,
    workers: int,
    after: Sequence[int],
) -> Stream:
    """A worker's part of an exchange, after other streams of it."""

    def travelling(span: Span, of_sum: bool) -> int:
        return round(len(span) * (exchange.total if of_sum else exchange.contribution))

    return Stream(
        plan=CompiledSchedule(how(rank, workers, exchange.length)),
        name=name,
        member=rank,
        members=workers,
        travelling=travelling,
        after=tuple((one, None) for one in after),
        in_flight=_IN_FLIGHT,
    )


def _run(
    ranks: Sequence[Sequence[Stream]], bytes_per_s: float, latency_s: float
) -> tuple[tuple[Moments, ...], ...]:
    """The moments of workers' streams, over links of so many bytes a second."""
    way = Direction(occupied_s=lambda nbytes: nbytes / bytes_per_s, latency_s=latency_s)
    return run([Rank(streams=one, up=way, down=way, header_bytes=HEADER_BYTES) for one in ranks])
