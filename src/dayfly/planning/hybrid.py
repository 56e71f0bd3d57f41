"""Steps of hybrid asynchronous workers, as schedules for virtual time (FasDL section IV-B).

    aggregator   compute   |data, forward|backward|               |apply, rest|   the next step
                 sums                         |parts, sum t, take it|
    another      compute   |data, forward|backward|        |apply, rest|   the next step
                 sums                         |parts of t  |take sum t - 1|

See `runs.protocols.hap`. In an epoch's first step others take no sum, and in its last one two. An
epoch of n steps is taken to last n steps at their pace, and longer by how much a few steps with
such an end do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dayfly.catalogue.metering import StoreTraffic
from dayfly.planning.configuration import Configuration
from dayfly.planning.data_parallel import buckets_of, computing, flat_of, sizes_of
from dayfly.planning.function_times import straggling
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel, all_reduce, chain, limited
from dayfly.planning.timing import Steps, moved_by, over_periods, steps_of
from dayfly.wire.collectives.k_reduce import CONTRIBUTE, READ
from dayfly.wire.simulation import run
from dayfly.wire.streams import Rank, Stream

#: Steps that are gone through, at least; and those of them that are not at the pace of the others:
#: a worker that lags takes no sum in the first one, so the second one's parts are early.
_STEPS, _EARLY = 5, 2


def step(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    batch: int,
    steps_gone_through: Callable[[int], int],
) -> tuple[Steps, Sequence[StoreTraffic]]:
    """Returns a step of so many samples, and what each worker moves in it.

    Args:
        profile: of the job.
        c: of the run, with its aggregators.
        means: what workers talk through.
        batch: samples of all workers.
        steps_gone_through: how many steps virtual time goes through, by operations of one.
    """
    each = sizes_of(profile, c)
    workers = [
        _Worker(profile, c, means, straggling(size, rank, c.workers, c.pieces), rank, batch)
        for rank, size in enumerate(each)
    ]
    once = [
        limited(size, means, one.rank, one.streams(0, reads=(0,)))
        for size, one in zip(each, workers, strict=True)
    ]
    operations = sum(len(stream.plan.numbers) for rank in once for stream in rank.streams)

    def steps(count: int, first: int) -> Steps:
        several = [
            limited(size, means, one.rank, one.epoch(count))
            for size, one in zip(each, workers, strict=True)
        ]
        return _timed(several, count, first, means)

    count = max(_STEPS, steps_gone_through(operations))
    return over_periods(steps, once, count, _EARLY), [moved_by(one.streams, means) for one in once]


def _timed(ranks: Sequence[Rank], count: int, first: int, means: ChannelModel) -> Steps:
    """Returns the steps of rank 0, an aggregator, in virtual time."""
    moments = run(ranks, means.shared)
    streams = ranks[0].streams
    last = len(streams) // count - 1
    steps = steps_of(streams, moments[0], count, lambda at: at == last, first=first)
    ends_s = max(s for took in moments for one in took for s in one.done_s)
    return replace(steps, ending_s=ends_s - count * steps.step_s)


class _Worker:
    """What one worker does.

    Args:
        profile: of the job.
        c: of the run.
        means: what workers talk through.
        size: of its function, as slow as this one is.
        rank: of the worker.
        batch: samples of all workers.
    """

    def __init__(
        self,
        profile: Profile,
        c: Configuration,
        means: ChannelModel,
        size: SizeProfile,
        rank: int,
        batch: int,
    ) -> None:
        self.rank = rank
        self._c, self._means, self._size = c, means, size
        self._buffer, self._sums = flat_of(profile, c), buckets_of(profile, c)
        self._seconds = computing(c, size, self._buffer, rank, batch)
        trained_bytes = sum(layer.trained for layer in profile.layers)
        self._apply_s = size.speed * size.apply(trained_bytes)
        self._rest_s = size.speed * size.step_s.value
        self._lags = c.lags(rank)

    def epoch(self, count: int) -> list[Stream]:
        """Returns the streams of an epoch of so many steps."""
        made: list[Stream] = []
        for at in range(count):
            reads = [at - 1] if self._lags and at else []
            if self._lags and at == count - 1:
                reads.append(at)
            first = len(made)
            before = ((first - 1, None),) if first else ()
            for one in self.streams(at, reads=reads):
                after = tuple((first + other, position) for other, position in one.after)
                made.append(replace(one, after=after or before))
        return made

    def streams(self, step: int, *, reads: Sequence[int]) -> list[Stream]:
        """Returns the streams of a step, which wait for each other by their numbers within it.

        Args:
            step: its number, by which messages are named.
            reads: steps whose sums it takes at its end, if it lags.
        """
        seconds, buffer = self._seconds, self._buffer
        made = [Stream(plan=chain(len(seconds)), works_s=seconds)]
        early = len(buffer.whole_after)
        for number in range(len(buffer.buckets)):
            gate = len(seconds) - 1 - early + number
            whole = ((0, gate if number < early else None),)
            part = CONTRIBUTE if self._lags else ""
            made.append(self._sum(step, number, whole, "buckets", part))
        computed: tuple[tuple[int, int | None], ...]
        computed = tuple((number, None) for number in range(len(made)))
        if not self._lags:
            ending_s = self._apply_s + self._rest_s
            return [*made, Stream(plan=chain(1), after=computed, works_s=[ending_s])]
        for taken in reads:
            for number in range(len(buffer.buckets)):
                after = ((len(made) - 1, None), *(() if number else computed))
                made.append(self._sum(taken, number, after, "caller", READ))
            computed = ((len(made) - 1, None),)
            made.append(Stream(plan=chain(1), after=computed, works_s=[self._apply_s]))
            computed = ((len(made) - 1, None),)
        return [*made, Stream(plan=chain(1), after=computed, works_s=[self._rest_s])]

    def _sum(
        self,
        step: int,
        number: int,
        after: tuple[tuple[int, int | None], ...],
        pool: str,
        part: str,
    ) -> Stream:
        """One bucket's all-reduce, or a part of it."""
        c = self._c
        return all_reduce(
            c.collective,
            c.aggregators,
            self.rank,
            c.workers,
            self._sums[number],
            self._means,
            name=(step, ("grad", number)),
            after=tuple(dict.fromkeys(after)),
            pool=pool,
            begin_s=self._size.sum_cpu_s,
            part=part,
        )
