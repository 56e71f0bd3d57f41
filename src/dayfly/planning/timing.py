"""What virtual time and a schedule say of steps: how long they take, and what they move."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from dayfly.catalogue.metering import StoreTraffic
from dayfly.planning.plan import Volume
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.channels.kind import MessageCost
from dayfly.wire.schedule import CompiledSchedule, Kind
from dayfly.wire.simulation import ends
from dayfly.wire.streams import ALONE, Moments, Rank, Shared, Stream


def moved_by(streams: Iterable[Stream], means: ChannelModel) -> StoreTraffic:
    """Of all streams of a rank, headers included."""
    named = [stream for stream in streams if stream.name is not None]
    return together([_moved_by(stream, means) for stream in named])


def _moved_by(stream: Stream, means: ChannelModel) -> StoreTraffic:
    cost, plan = means.kind.cost, stream.plan
    copies = _copies(stream, means)
    if (travelling := stream.travelling) is None:
        return _of_plan(plan, stream.itemsize, cost, *copies)
    rows = zip(plan.kinds, plan.spans, plan.names, plan.totals, strict=True)
    found = [
        (kind is Kind.PUT, travelling(span, to_all), to_all)
        for kind, span, name, to_all in rows
        if name is not None
    ]
    return _traffic(Counter(found), cost, *copies)


@lru_cache(maxsize=4096)
def _of_plan(
    plan: CompiledSchedule,
    itemsize: int,
    cost: Callable[[int], MessageCost],
    copies: int,
    puts: int,
) -> StoreTraffic:
    """Of a plan whose elements travel as they are."""
    rows = zip(plan.kinds, plan.lengths, plan.names, plan.totals, strict=True)
    found = [
        (kind is Kind.PUT, itemsize * length, to_all)
        for kind, length, name, to_all in rows
        if name is not None
    ]
    return _traffic(Counter(found), cost, copies, puts)


def _traffic(
    messages: Mapping[tuple[bool, int, bool], int],
    cost: Callable[[int], MessageCost],
    copies: int,
    puts: int,
) -> StoreTraffic:
    """Of messages by kind: whether they are put (or read), their bytes, and whether for all.

    Args:
        messages: how many there are of each kind.
        cost: of one of so many bytes.
        copies: how often one for all ranks leaves its sender, in so many `puts`.
    """
    found = []
    for (is_put, nbytes, to_all), count in messages.items():
        one = cost(nbytes)
        if is_put:
            put = count * one.puts * (puts if to_all else 1)
            up = count * one.bytes_up * (copies if to_all else 1)
            found.append(StoreTraffic(puts=put, requests=put, bytes_up=up))
        else:
            get = count * one.gets
            down = count * one.bytes_down
            found.append(StoreTraffic(gets=get, requests=get, bytes_down=down))
    return together(found)


def times(moved: StoreTraffic, count: int) -> StoreTraffic:
    """The same, so many times."""
    return StoreTraffic(
        puts=moved.puts * count,
        gets=moved.gets * count,
        requests=moved.requests * count,
        bytes_up=moved.bytes_up * count,
        bytes_down=moved.bytes_down * count,
    )


def together(several: Iterable[StoreTraffic]) -> StoreTraffic:
    """The sum."""
    puts = gets = requests = up = down = 0
    for one in several:
        puts += one.puts
        gets += one.gets
        requests += one.requests
        up += one.bytes_up
        down += one.bytes_down
    return StoreTraffic(puts=puts, gets=gets, requests=requests, bytes_up=up, bytes_down=down)


def volume(several: Iterable[StoreTraffic], parts: int = 1) -> Volume:
    """Of all workers; of one of so many equal parts."""
    whole = together(several)
    return Volume(
        puts=round(whole.puts / parts),
        gets=round(whole.gets / parts),
        bytes_up=round(whole.bytes_up / parts),
        bytes_down=round(whole.bytes_down / parts),
    )


def _copies(stream: Stream, means: ChannelModel) -> tuple[int, int]:
    """How often a message for all leaves its sender, and in how many puts.

    Directly to all ranks it is one; to those of a smaller group, one each.
    """
    if not means.direct:
        return 1, 1
    others = stream.members - 1
    return others, others if stream.group else 1


_TRANSFERS = (Kind.PUT, Kind.GET, Kind.FETCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Of rank 0.

    Attributes:
        step_s: of one.
        breakdown: as `Prediction`'s, of one.
        ending_s: by how much an epoch takes longer than its steps say, as workers that lag take the
            last sum, too.
    """

    step_s: float
    breakdown: Mapping[str, float]
    ending_s: float = 0.0


#: Periods of the CPU's shares that short steps are gone through for, and steps at most.
_PERIODS, _MOST_STEPS = 6, 60
#: Operations of them all, about, at most.
_MOST_OPERATIONS = 10_000


def over_periods(
    steps: Callable[[int, int], Steps], ranks: Sequence[Rank], count: int, first: int = 1
) -> Steps:
    """Returns steps that are gone through for several periods of the CPU's shares.

    A function begins with all CPU time of a period, which short steps do not use up before they
    end. So those of the first period do not count, either.

    Args:
        steps: of so many of which so many do not count.
        ranks: one step of all.
        count: that are gone through, at least.
        first: of them that do not count, at least.
    """
    found = steps(count, first)
    period_s = max(rank.processor.period_s for rank in ranks)
    if not found.step_s or count * found.step_s >= _PERIODS * period_s:
        return found
    operations = sum(len(stream.plan.numbers) for rank in ranks for stream in rank.streams)
    most = min(_MOST_STEPS, _MOST_OPERATIONS // max(1, operations))
    more = min(most, math.ceil(_PERIODS * period_s / found.step_s))
    first = max(first, min(more // 2, math.ceil(period_s / found.step_s)))
    return steps(more, first) if more > count else found


def timed(
    ranks: Sequence[Rank],
    count: int,
    is_overhead: Callable[[int], bool],
    shared: Shared = ALONE,
    *,
    repeat: bool = False,
    first: int = 1,
) -> Steps:
    """Returns the steps of rank 0 in virtual time.

    Ranks are not through with a step at one moment: a lone aggregator is before those that read its
    sum, and a stage before another. Rank 0 meets the latest in the next step only, so a single step
    lasts until that is through.

    Args:
        ranks: whose streams are `count` steps, each the same number of streams. With several steps
            the first, which all ranks begin at one moment, does not count.
        count: steps.
        is_overhead: whether a stream, by its number within a step, computes what is no pass.
        shared: what all ranks have together.
        repeat: their streams are one step instead, which they take so many times.
        first: of several steps, how many do not count.
    """
    again = count if repeat else 1
    moments, ends_s = ends(ranks, shared, again)
    until_s = 0.0
    if count == 1:
        workers = zip(ranks, ends_s, strict=True)
        until_s = max([end_s for rank, end_s in workers if not rank.is_store])
    streams = [*ranks[0].streams] * again
    return steps_of(streams, moments, count, is_overhead, until_s, first)


def steps_of(
    streams: Sequence[Stream],
    moments: Sequence[Moments],
    count: int,
    is_overhead: Callable[[int], bool],
    until_s: float = 0.0,
    first: int = 1,
) -> Steps:
    """Returns the steps of a rank whose streams have these moments; see `timed`.

    Args:
        until_s: when the last step ends, at least.
        first: steps that do not count, unless there is one alone.
    """
    each = len(streams) // count
    ended_s = [0.0]
    for step in range(count):
        ended_s.append(_ended_s(moments[step * each : (step + 1) * each]))
    first = first if count > 1 else 0
    began, ended, steps = ended_s[first], max(ended_s[count], until_s), count - first
    kinds = _intervals(streams[first * each :], moments[first * each :], each, is_overhead)
    took = _split(kinds, began, ended)
    return Steps(
        step_s=(ended - began) / steps,
        breakdown={what: seconds / steps for what, seconds in took.items()},
    )


def _ended_s(moments: Sequence[Moments]) -> float:
    return max((max(one.done_s, default=0.0) for one in moments), default=0.0)


def _intervals(
    streams: Sequence[Stream],
    moments: Sequence[Moments],
    each: int,
    is_overhead: Callable[[int], bool],
) -> list[tuple[float, float, int]]:
    """(from, to, what): 0 compute, 1 overhead, 2 transfer."""
    found, drop = [], Kind.DROP
    for number, (stream, times) in enumerate(zip(streams, moments, strict=True)):
        computing = 1 if is_overhead(number % each) else 0
        each_kind = zip(stream.plan.kinds, times.start_s, times.done_s, strict=True)
        for kind, start_s, done_s in each_kind:
            if done_s > start_s and kind is not drop:
                found.append((start_s, done_s, 2 if kind in _TRANSFERS else computing))
    return found


def _split(
    intervals: Iterable[tuple[float, float, int]], began: float, ended: float
) -> dict[str, float]:
    """Each moment counts once: to computing first, then to what ends the step, then to transfers;
    what is left is waiting for others."""
    edges = [(began, 0, 0), (ended, 0, 0)]
    for start, stop, what in intervals:
        start, stop = max(start, began), min(stop, ended)
        if stop > start:
            edges += [(start, what, 1), (stop, what, -1)]
    took, under_way = [0.0, 0.0, 0.0, 0.0], [0, 0, 0, 1]
    for (at, what, change), (after, _, _) in pairwise(sorted(edges)):
        under_way[what] += change
        if after > at:
            first = 0
            while not under_way[first]:
                first += 1
            took[first] += after - at
    return dict(zip(("compute", "overhead", "transfer", "sync"), took, strict=True))
