"""What virtual time and a schedule say of steps: how long they take, and what they move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from dayfly.catalogue.metering import StoreTraffic
from dayfly.planning.plan import Volume
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.channels.kind import MessageCost
from dayfly.wire.schedule import CompiledSchedule, Kind
from dayfly.wire.simulation import run
from dayfly.wire.streams import ALONE, Moments, Rank, Shared, Stream


def moved_by(streams: Iterable[Stream], means: ChannelModel) -> StoreTraffic:
    """Of all streams of a rank, headers included."""
    puts = gets = up = down = 0
    costs: dict[int, MessageCost] = {}  # by size: most messages have one of few
    for stream in streams:
        if stream.name is None:
            continue
        for (is_put, nbytes, to_all), count in _messages(stream):
            cost = costs.get(nbytes)
            if cost is None:
                cost = costs[nbytes] = means.kind.cost(nbytes)
            if is_put:
                copies, alone = _copies(stream, means, to_all=to_all)
                puts += count * cost.puts * (1 if alone else copies)
                up += count * cost.bytes_up * copies
            else:
                gets += count * cost.gets
                down += count * cost.bytes_down
    return StoreTraffic(puts=puts, gets=gets, requests=puts + gets, bytes_up=up, bytes_down=down)


#: Kinds of messages, and how many there are of each. A kind is: whether they are put (or read),
#: their size, and whether they are for all ranks.
_Counts = Iterable[tuple[tuple[bool, int, bool], int]]


def _messages(stream: Stream) -> _Counts:
    """Returns a stream's messages; their size is in bytes, without headers."""
    if (travelling := stream.travelling) is None:
        size = stream.itemsize
        return [((put, size * n, to_all), count) for (put, n, to_all), count in _of(stream.plan)]
    plan, put = stream.plan, Kind.PUT
    rows = zip(plan.kinds, plan.spans, plan.names, plan.totals, strict=True)
    found = [
        (kind is put, travelling(span, to_all), to_all)
        for kind, span, name, to_all in rows
        if name is not None
    ]
    return Counter(found).items()


@lru_cache(maxsize=4096)
def _of(plan: CompiledSchedule) -> _Counts:
    """Returns a plan's messages; their size is in elements."""
    put = Kind.PUT
    rows = zip(plan.kinds, plan.lengths, plan.names, plan.totals, strict=True)
    found = [
        (kind is put, length, to_all) for kind, length, name, to_all in rows if name is not None
    ]
    return tuple(Counter(found).items())


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


def _copies(stream: Stream, means: ChannelModel, *, to_all: bool) -> tuple[int, bool]:
    """How often a message leaves its sender, and whether that is one put.

    Directly to all ranks it is one; to those of a smaller group, one each.
    """
    if not (means.direct and to_all):
        return 1, True
    return stream.members - 1, not stream.group


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


def repeated(ranks: Sequence[Rank], count: int) -> Sequence[Rank]:
    """Returns ranks that take a step so many times, one after another.

    A stream that waits for nothing in its step waits for the last one of the step before. A store
    serves what comes, so its streams wait for nothing.

    Args:
        ranks: whose streams are one step, of which the last ends it.
        count: steps.
    """
    if count == 1:
        return ranks
    return [replace(rank, streams=_steps(rank, count)) for rank in ranks]


def _steps(rank: Rank, count: int) -> list[Stream]:
    each, found = len(rank.streams), []
    for step in range(count):
        first = step * each
        before = ((first - 1, None),) if step and not rank.is_store else ()
        for one in rank.streams:
            name = None if one.name is None else (step, one.name)
            after = tuple((first + other, position) for other, position in one.after)
            found.append(replace(one, name=name, after=after or before))
    return found


def timed(
    ranks: Sequence[Rank],
    count: int,
    is_overhead: Callable[[int], bool],
    shared: Shared = ALONE,
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
    """
    moments = run(ranks, shared)
    until_s = 0.0
    if count == 1:
        workers = [took for rank, took in zip(ranks, moments, strict=True) if not rank.is_store]
        until_s = max(map(_ended_s, workers), default=0.0)
    return steps_of(ranks[0].streams, moments[0], count, is_overhead, until_s)


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
    ends = [0.0]
    for step in range(count):
        ends.append(_ended_s(moments[step * each : (step + 1) * each]))
    first = first if count > 1 else 0
    began, ended, steps = ends[first], max(ends[count], until_s), count - first
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
    took = {"compute": 0.0, "overhead": 0.0, "transfer": 0.0, "sync": 0.0}
    names = ("compute", "overhead", "transfer")
    for start, stop, under_way in _sweep(intervals, began, ended):
        what = next((names[n] for n in range(3) if under_way[n]), "sync")
        took[what] += stop - start
    return took


def _sweep(
    intervals: Iterable[tuple[float, float, int]], began: float, ended: float
) -> Iterator[tuple[float, float, list[int]]]:
    edges = [(began, 0, 0), (ended, 0, 0)]
    for start, stop, what in intervals:
        start, stop = max(start, began), min(stop, ended)
        if stop > start:
            edges += [(start, what, 1), (stop, what, -1)]
    under_way = [0, 0, 0]
    for (at, what, change), (after, _, _) in pairwise(sorted(edges)):
        under_way[what] += change
        if after > at:
            yield at, after, list(under_way)
