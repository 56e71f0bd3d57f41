"""A round of local SGD in virtual time: its sum at its end, or streamed in fragments.

    F = 2, T = 1, k = 4      |step 1|step 2|take|step 3|apply|step 4|take|step 1|apply| ...
    fragment 0                                  |all-reduce|
    fragment 1, rest                                                     |all-reduce|

Rounds of fragments are linked: the last ones' sums come beside the next round's steps. What counts
is a round in the middle of an epoch, or the one that ends it, which waits for all sums.
See `runs.protocols`: local_sgd.py, streaming.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.catalogue.metering import StoreTraffic
from dayfly.elementwise import most
from dayfly.planning import data_parallel
from dayfly.planning.configuration import ITEM_BYTES, Configuration, stage_size
from dayfly.planning.function_times import straggling
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.planning.ranks import ChannelModel, all_reduce, chain, limited
from dayfly.planning.server_ranks import server
from dayfly.planning.timing import Steps, moved_by, over_periods, timed
from dayfly.specs.streaming import Streaming
from dayfly.wire.streams import Rank, Stream

#: Rounds of fragments that are gone through; the first does not count, as no sum is under way at
#: its beginning.
_ROUNDS = 3


def local_round(
    profile: Profile, c: Configuration, means: ChannelModel, batches: Sequence[int], *, closes: bool
) -> tuple[Steps, Sequence[StoreTraffic]]:
    """Returns a round, and what each worker moves in it.

    Args:
        profile: of the job.
        c: what runs.
        means: the channel.
        batches: of the round's steps.
        closes: whether it ends an epoch, and so waits for all sums.
    """
    streamed, shared = c.streaming is not None, means.shared
    if streamed:
        once, _ = _streamed(profile, c, means, batches, 1, closes)
    else:
        once = data_parallel.ranks(profile, c, means, batches)

    def rounds(count: int, first: int) -> Steps:
        if not streamed:
            return timed(once, count, lambda at: at > 0, shared, repeat=True, first=first)
        several, beside = _streamed(profile, c, means, batches, count, closes)
        return timed(several, count, lambda at: at in beside, shared, first=first)

    moved = [moved_by(rank.streams, means) for rank in once[: c.workers]]
    return over_periods(rounds, once, _ROUNDS if streamed else 1), moved


@dataclass(frozen=True, slots=True)
class SumTimes:
    """What a sum takes by itself, as `wire.collectives.cost.Cost` has it; elementwise.

    Attributes:
        seconds: from its beginning to its end.
        carried_s: of that, without latencies.
        busiest_s: of that, in which the busier direction of a link carries it.
    """

    seconds: float
    carried_s: float
    busiest_s: float


def reduced_at_s(
    c: Configuration,
    compute_s: float,
    apply_s: float,
    steps: int,
    sums: Sequence[SumTimes],
    *,
    closes: bool,
) -> float:
    """Returns when a round's passes are done and its sums are applied, in seconds, by closed forms;
    elementwise in seconds.

    Without fragments sums come one after another, after all steps. Those of fragments begin when
    they are taken; their bytes go one after another over one link, while one's latencies are
    another's transfers. They are waited for where they are applied.

    Args:
        c: what runs.
        compute_s: of all inner steps.
        apply_s: of the optimizer in one of them.
        steps: how many there are.
        sums: in the order in which they are taken.
        closes: whether the round ends an epoch, and so waits for all of them.
    """
    if c.streaming is None:
        return compute_s + sum(one.seconds for one in sums)
    step_s = compute_s / steps + apply_s
    line = course(c.streaming, steps, closes=closes)
    now_s = link_s = began_s = 0.0
    done_s: dict[tuple[int, int], float] = {}
    for number in range(_ROUNDS):
        if number == 1:
            began_s = now_s
        for event in line:
            if isinstance(event, Inner):
                now_s = now_s + len(event.steps) * step_s
            elif isinstance(event, Take):
                one, begin_s = sums[event.exchange], most(now_s, link_s)
                done = most(now_s + one.seconds, begin_s + one.carried_s)
                done_s[number, event.exchange] = done
                link_s = begin_s + one.busiest_s
            else:
                came_s = done_s.get((number - event.rounds_ago, event.exchange), now_s)
                now_s = most(now_s, came_s)
    return (now_s - began_s) / (_ROUNDS - 1) - steps * apply_s


def _streamed(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    batches: Sequence[int],
    rounds: int,
    closes: bool,
) -> tuple[list[Rank], set[int]]:
    """All workers taking rounds, and which streams of a round take or apply an exchange."""
    size, beside = stage_size(profile, c, 0), set[int]()
    ranks: list[Rank] = []
    for rank in range(c.workers):
        own = straggling(size, rank, c.workers, c.pieces * len(batches))
        streams, beside = _worker(profile, c, means, own, rank, batches, rounds, closes)
        ranks.append(limited(own, means, rank, streams))
    if data_parallel.served(c):
        ranks.append(server(size, means, c.workers, ranks[0].streams))
    return ranks, beside


def _worker(
    profile: Profile,
    c: Configuration,
    means: ChannelModel,
    size: SizeProfile,
    rank: int,
    batches: Sequence[int],
    rounds: int,
    closes: bool,
) -> tuple[list[Stream], set[int]]:
    """The streams of one worker: its training thread's, each after the one before, and sums."""
    streaming = c.streaming or Streaming()
    sums = data_parallel.averaged_of(profile, c)
    steps_s = data_parallel.inner_steps_s(profile, c, size, rank, batches)
    steps_s[-1] += size.speed * size.step_s.value
    line = course(streaming, len(batches), closes=closes)
    copy_s = size.speed * size.reduce_s_per_byte * ITEM_BYTES
    streams: list[Stream] = []
    sum_at: dict[tuple[int, int], int] = {}
    beside: set[int] = set()
    last: int | None = None  # of the training thread

    def work(seconds: list[float], *others: int) -> None:
        nonlocal last
        after = (*(() if last is None else (last,)), *others)
        last = len(streams)
        deps = tuple((stream, None) for stream in after)
        streams.append(Stream(plan=chain(len(seconds)), after=deps, works_s=seconds))

    for number in range(rounds):
        first = len(streams)
        for event in line:
            if isinstance(event, Inner):
                work(steps_s[event.steps.start : event.steps.stop])
                continue
            beside.add(len(streams) - first)
            summed = sums[event.exchange]
            if isinstance(event, Apply):
                came = sum_at.get((number - event.rounds_ago, event.exchange))
                cost_s = data_parallel.PASSES_OUTER * copy_s * summed.elements
                work([cost_s], *(() if came is None else (came,)))
                continue
            work([data_parallel.PASSES_BEFORE * copy_s * summed.elements])
            sum_at[number, event.exchange] = len(streams)
            streams.append(
                all_reduce(
                    c.collective,
                    c.aggregators,
                    rank,
                    c.workers,
                    summed,
                    means,
                    name=("frag", number, event.exchange),
                    after=((len(streams) - 1, None),),
                    pool="fragments",
                    begin_s=size.sum_cpu_s,
                )
            )
    return streams, beside


@dataclass(frozen=True, slots=True)
class Inner:
    """Inner steps of a round, counted from 0, with nothing between them."""

    steps: range


@dataclass(frozen=True, slots=True)
class Take:
    """An exchange is taken."""

    exchange: int


@dataclass(frozen=True, slots=True)
class Apply:
    """An exchange is applied that was taken in this round, or in an earlier one."""

    exchange: int
    rounds_ago: int


def course(streaming: Streaming, steps: int, *, closes: bool) -> list[Inner | Take | Apply]:
    """Returns what the training thread does in a round, in its order.

    Args:
        streaming: by which fragments are taken, and applied.
        steps: of the round, and of the rounds before it.
        closes: whether all is applied at its end, as at an epoch's.
    """
    taken = {at: streaming.taken(at, steps) for at in range(1, steps + 1)}
    due: dict[int, list[Apply]] = {at: [] for at in taken}
    at_once: dict[int, list[Apply]] = {at: [] for at in taken}
    for at, some in taken.items():
        for exchange in some:
            ends = at + streaming.overlap
            if ends == at or (closes and ends > steps):
                at_once[min(ends, steps)].append(Apply(exchange, 0))
            else:
                ago = int(ends > steps)
                due[ends - ago * steps].append(Apply(exchange, ago))
    line: list[Inner | Take | Apply] = []
    first = 0
    for at, some in taken.items():
        if some or due[at] or at_once[at]:  # as after the last one
            line.append(Inner(range(first, at)))
            line += due[at]
            line += [Take(exchange) for exchange in some]
            line += at_once[at]
            first = at
    return line
