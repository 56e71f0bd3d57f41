"""Ranks as arrays for the compiled loop, and the moments that it finds.

What a plan says is found once a plan (`tables`); the rest is made for all operations together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dayfly.wire.keys import EVERYONE
from dayfly.wire.loop.records import DOWN, MESSAGE, NONE, OP, POOL, RECORDS, UP, State
from dayfly.wire.loop.tables import PHASES, Ints, Plan, Table, plan_of
from dayfly.wire.streams import Moments, Rank, Shared, Stream

Floats = NDArray[np.float64]

#: In numbers of a kind of line and bytes: more bytes than any message has.
_OF_KIND = 2**48


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a run is made of, before it is records.

    Attributes:
        ranks: all of them.
        streams: of one step, of all ranks.
        which: of each stream of each step, which of them it is.
        step: of the same, its step.
        rank_of: of the same, its rank.
        sizes, first: of the same, how many operations it has, and the number of its first.
        of: of each operation, its stream.
        mine: of each operation, its rank.
        table: of operations.
    """

    ranks: Sequence[Rank]
    streams: Sequence[Stream]
    which: Ints
    step: Ints
    rank_of: Ints
    sizes: Ints
    first: Ints
    of: Ints
    mine: Ints
    table: Table

    def each(self, name: str, kind: type = np.int64) -> Any:
        """Returns an attribute of each stream of each step."""
        return np.array(list(map(attrgetter(name), self.streams)), dtype=kind)[self.which]

    def has(self, name: str, kind: type = np.float64) -> Any:
        """Returns an attribute of the rank of each operation."""
        return np.array(list(map(attrgetter(name), self.ranks)), dtype=kind)[self.mine]


def flattened(ranks: Sequence[Rank], shared: Shared, steps: int = 1) -> State:
    """Returns the state at the beginning of a run.

    Args:
        ranks: their processors have no jobs yet.
        shared: what all ranks have together; no cores.
        steps: how often they go through their streams, as of `streams.repeated`.
    """
    once = [stream for rank in ranks for stream in rank.streams]
    each = [plan_of(stream.plan) for stream in once]
    counts = [len(rank.streams) for rank in ranks]
    ends = list(accumulate(counts))
    which = [
        number
        for end, count in zip(ends, counts, strict=True)
        for _ in range(steps)
        for number in range(end - count, end)
    ]
    step = [at for count in counts for at in range(steps) for _ in range(count)]
    plans = [each[number] for number in which]
    sizes = np.array([plan.table.shape[1] for plan in plans], dtype=np.int64)
    of = np.repeat(np.arange(len(plans)), sizes)
    rank_of = np.repeat(np.arange(len(ranks)), [steps * count for count in counts])
    parts = _Parts(
        ranks=ranks,
        streams=once,
        which=np.array(which, dtype=np.int64),
        step=np.array(step, dtype=np.int64),
        rank_of=rank_of,
        sizes=sizes,
        first=_starts(sizes),
        of=of,
        mine=rank_of[of],
        table=Table.of(plans),
    )
    first, table = parts.first, parts.table
    ops = np.zeros(len(of), dtype=OP)
    alone = parts.each("alone", bool)
    ops["stream"], ops["lane"], ops["unmet"] = of, table.lane, table.unmet
    ops["row"] = 3 * of + np.where(alone[of], 0, table.lane)
    ops["later"] = _starts(table.later)
    ops["later_end"] = ops["later"] + table.later
    later = np.concatenate([np.empty(0, dtype=np.int64), *[plan.later for plan in plans]])
    later += np.repeat(first, [len(plan.later) for plan in plans])
    _sizes(ops, parts, shared)
    made = _streams(parts, alone)
    opens = _opens(ops, made, parts, steps)
    messages, readers = _messages(ops, parts)
    ops["next"] = NONE
    for name in ("start_s", "free_s", "done_s"):
        ops[name] = math.nan
    rows = _rows(parts, plans, alone)
    lines, asked = _lines(parts)
    processors, jobs = _processors(parts, shared)
    # Of an operation two effects may be to come, and a copy each reader.
    to_come = len(lines) + len(processors) + len(plans) + 2 * len(ops)
    to_come += int((ops["copies"] * (made["members"][of] - 1)).sum())
    run = np.zeros(1, dtype=RECORDS["run"])
    run["store"], run["has_thread"] = len(ranks), shared.store is not None
    run["has_rate"], run["readers"] = shared.store_bytes_per_s < math.inf, readers
    run["on_host"] = 0 if shared.host is None else shared.host.functions
    return State(
        ops=ops,
        streams=made,
        rows=rows,
        pools=_pools(made, parts),
        messages=messages,
        readers=np.zeros(max(1, len(messages) * readers), dtype=np.int64),
        lines=lines,
        asked=np.zeros(asked, dtype=RECORDS["asked"]),
        before=np.zeros(asked, dtype=RECORDS["before"]),
        processors=processors,
        jobs=np.zeros(jobs, dtype=RECORDS["jobs"]),
        later=later,
        opens=opens,
        queue=np.where(alone[of], np.arange(len(ops)), table.order + first[of]),
        events=np.zeros(to_come, dtype=RECORDS["events"]),
        places=np.full(len(lines) + len(processors), NONE, dtype=np.int64),
        todo=np.zeros(len(opens) + 2 * len(plans), dtype=np.int64),
        stirred=np.zeros(len(rows) + len(lines), dtype=np.int64),
        looked_at=np.zeros(len(rows) + len(lines), dtype=np.int64),
        run=run,
    )


def moments(state: State, ranks: Sequence[Rank], steps: int = 1) -> tuple[tuple[Moments, ...], ...]:
    """Returns the moments of these ranks' streams, at the end of a run.

    Args:
        state: at the end.
        ranks: the first ones of the run's.
        steps: as of `flattened`.
    """
    count = sum(_operations(ranks, steps))
    names = "start_s", "free_s", "done_s"
    start, free, done = (state.ops[name][:count].tolist() for name in names)
    begin, found = 0, []
    for rank in ranks:
        mine = []
        for stream in list(rank.streams) * steps:
            end = begin + len(stream.plan.numbers)
            mine.append(Moments(start[begin:end], free[begin:end], done[begin:end]))
            begin = end
        found.append(tuple(mine))
    return tuple(found)


def ends_s(state: State, ranks: Sequence[Rank], steps: int = 1) -> list[float]:
    """Returns when each rank is through with all of its streams; arguments as of `moments`."""
    done, begin, found = state.ops["done_s"], 0, []
    for count in _operations(ranks, steps):
        found.append(float(done[begin : begin + count].max(initial=0.0)))
        begin += count
    return found


def _operations(ranks: Sequence[Rank], steps: int) -> list[int]:
    """Of each rank."""
    return [steps * sum([len(one.plan.numbers) for one in rank.streams]) for rank in ranks]


def _starts(sizes: Ints) -> Ints:
    """Where each of them begins, if they lie one behind another."""
    found: Ints = np.cumsum(sizes) - sizes
    return found


def _of_each(values: Iterable[Any]) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _sizes(ops: Any, parts: _Parts, shared: Shared) -> None:
    """What depends on bytes: of lines, of processors and of the store."""
    ranks, of, mine, table = parts.ranks, parts.of, parts.mine, parts.table
    lane, adds = table.lane, table.adds
    nbytes = table.length * parts.each("itemsize")[of]
    early, reduce_s = parts.has("early", bool), parts.has("reduce_s_per_byte")
    # Of a REDUCE; without travelling bytes, which messages have.
    work_s = nbytes * np.where(early, np.minimum(adds, 1), adds) * reduce_s
    each = [parts.streams[number] for number in parts.which.tolist()]
    for begin, stream in zip(parts.first.tolist(), each, strict=True):
        if stream.travelling is not None:
            plan = stream.plan
            sizes = list(map(stream.travelling, plan.spans, plan.totals))
            nbytes[begin : begin + len(sizes)] = sizes
    works = np.array([len(stream.works_s) > 0 for stream in each], dtype=bool)
    seconds = chain.from_iterable([stream.works_s for stream in each])
    work_s[works[of] & table.computes.astype(bool)] = _of_each(seconds)
    ways = [way for rank in ranks for way in (rank.up, rank.down)]
    way = np.minimum(2 * mine + lane, len(ways) - 1)
    carries = lane <= DOWN
    message_s = parts.each("message_s", np.float64)[of] + _of_each(one.cpu_s for one in ways)[way]
    message_s = message_s + _of_each(one.cpu_s_per_byte for one in ways)[way] * nbytes
    added = early & table.fetches.astype(bool)
    message_s = np.where(added, message_s + nbytes * reduce_s, message_s)
    ops["work_s"] = np.where(carries, message_s, work_s)
    ops["works"] = carries & ((message_s != 0) | parts.has("processor.stands_still", bool))
    whole = parts.has("header_bytes", np.int64) + nbytes
    whole_s = _occupied(ranks, way, whole, carries)
    copies = (table.destination == EVERYONE) & (lane == UP) & parts.has("direct", bool)
    members, member = parts.each("members")[of], parts.each("member")[of]
    ops["copies"] = copies
    ops["source"] = np.where(table.source == member, member + 1, 0)
    whole_s = np.where(copies, whole_s * (members - 1), whole_s)
    piece_s = _of_each(one.piece_s for one in ways)[way]
    pieces = np.where(piece_s == math.inf, 1, np.ceil(whole_s / piece_s)).astype(np.int64)
    pieces = np.maximum(pieces, 1)
    ops["pieces"], ops["piece_s"] = pieces, whole_s / pieces
    if shared.store is not None:
        ops["served_s"] = shared.store.cpu_s + shared.store.cpu_s_per_byte * nbytes
    if shared.store_bytes_per_s < math.inf:
        ops["stored_s"] = whole / shared.store_bytes_per_s
    if shared.host is not None:
        leaves = np.where(copies, members - 1, 1)
        ops["hosted_s"] = leaves * whole / shared.host.bytes_per_s


def _occupied(ranks: Sequence[Rank], way: Ints, whole: Ints, carries: NDArray[np.bool_]) -> Floats:
    """How long messages of so many bytes occupy their lines: each size is asked once a kind."""
    kinds: dict[Callable[[float], float], int] = {}
    of_way = [
        kinds.setdefault(one.occupied_s, len(kinds))
        for rank in ranks
        for one in (rank.up, rank.down)
    ]
    kind = np.array(of_way, dtype=np.int64)[way[carries]]
    asked, which = np.unique(_OF_KIND * kind + whole[carries], return_inverse=True)
    functions = list(kinds)
    each = [divmod(one, _OF_KIND) for one in asked.tolist()]
    found = np.zeros(len(whole))
    found[carries] = _of_each([functions[at](nbytes) for at, nbytes in each])[which]
    return found


def _streams(parts: _Parts, alone: NDArray[np.bool_]) -> Any:
    made = np.zeros(len(parts.which), dtype=RECORDS["streams"])
    made["rank"], made["left"], made["behind"] = parts.rank_of, parts.sizes, NONE
    made["empty"] = parts.sizes == 0
    for name in ("at_once", "member", "members"):
        made[name] = parts.each(name)
    made["begin_s"] = parts.each("begin_s", np.float64)
    made["keeps"] = alone | np.array([rank.held for rank in parts.ranks], dtype=bool)[parts.rank_of]
    return made


def _opens(ops: Any, made: Any, parts: _Parts, steps: int) -> Ints:
    """Who waits for each operation, and for each stream, which come behind all operations."""
    awaited: list[int] = []
    waiting: list[int] = []
    begin, starts, all_of = 0, parts.first.tolist(), len(ops)
    for rank in parts.ranks:
        for step in range(steps):
            follows = step and not rank.is_store
            for number, stream in enumerate(rank.streams, begin):
                for other, position in stream.after:
                    of = begin + other
                    awaited.append(all_of + of if position is None else starts[of] + position)
                    waiting.append(number)
                if follows and not stream.after:
                    awaited.append(all_of + begin - 1)
                    waiting.append(number)
            begin += len(rank.streams)
    rows, who = np.array(awaited, dtype=np.int64), np.array(waiting, dtype=np.int64)
    counts = np.bincount(rows, minlength=all_of + len(made))
    begins = _starts(counts)
    for records, part in ((ops, slice(0, all_of)), (made, slice(all_of, None))):
        records["opens"], records["opens_end"] = begins[part], begins[part] + counts[part]
    made["gates"] = np.bincount(who, minlength=len(made))
    return np.append(who[np.argsort(rows, kind="stable")], NONE)


def _messages(ops: Any, parts: _Parts) -> tuple[Any, int]:
    """All messages, and how many readers one for each reader alone has, at most."""
    names: dict[Hashable, int] = {}
    of_name = [names.setdefault(one.name, len(names)) for one in parts.streams]
    of = np.array(of_name, dtype=np.int64)[parts.which] + len(names) * parts.step
    stream, table, streams = parts.of, parts.table, parts.streams
    ends = table.source, table.destination
    if any(one.labels for one in streams):
        sizes = np.array([len(one.labels) for one in streams], dtype=np.int64)
        labels = np.array([at for one in streams for at in one.labels], dtype=np.int64)
        each = parts.which[stream]
        labelled, starts = sizes[each] > 0, _starts(sizes)[each]
        ends = table.source.copy(), table.destination.copy()
        for one in ends:
            at = np.flatnonzero(labelled & (one >= 0))
            one[at] = labels[starts[at] + one[at]]
    # All of it as one number: parties are from `NONE` - 2 on.
    name, parties = (
        of[stream] * len(PHASES) + table.phase,
        4 + max([int(one.max(initial=0)) for one in ends]),
    )
    for one in ends:
        name = name * parties + (one + 3)
    both, message = np.unique(name, return_inverse=True)
    ops["message"] = message
    made = np.zeros(len(both), dtype=MESSAGE)
    made["waits"] = made["waits_last"] = NONE
    copied = any(rank.direct for rank in parts.ranks)
    return made, max((one.members for one in streams), default=0) if copied else 0


def _rows(parts: _Parts, plans: Sequence[Plan], alone: NDArray[np.bool_]) -> Any:
    """Three a stream; one alone has the first only."""
    rows = np.zeros(3 * len(plans), dtype=RECORDS["rows"])
    sizes = np.array([plan.sizes for plan in plans], dtype=np.int64).reshape(-1, 3)
    sizes[alone, 0], sizes[alone, 1:] = sizes[alone].sum(axis=1), 0
    begins = np.cumsum(sizes, axis=1) - sizes + parts.first[:, None]
    width = np.ones_like(sizes)
    width[:, :2] = np.where(alone, 1, parts.each("in_flight"))[:, None]
    rows["first"] = rows["started"] = begins.ravel()
    rows["end"], rows["width"] = (begins + sizes).ravel(), width.ravel()
    rows["stream"] = np.repeat(np.arange(len(plans)), 3)
    return rows


def _pools(made: Any, parts: _Parts) -> Any:
    pools: dict[tuple[int, str], int] = {}
    each = [parts.streams[number].pool for number in parts.which.tolist()]
    made["pool"] = [
        NONE if pool is None else pools.setdefault((rank, pool), len(pools))
        for rank, pool in zip(parts.rank_of.tolist(), each, strict=True)
    ]
    found = np.zeros(max(1, len(pools)), dtype=POOL)
    found["head"] = found["tail"] = NONE
    return found


def _lines(parts: _Parts) -> tuple[Any, int]:
    """Two a rank, and how many may ask for them at once, all together."""
    ways = [way for rank in parts.ranks for way in (rank.up, rank.down)]
    lines = np.zeros(len(ways), dtype=RECORDS["lines"])
    lines["latency_s"] = [way.latency_s for way in ways]
    lines["whole"] = [way.piece_s == math.inf for way in ways]
    lines["is_store"] = np.repeat([rank.is_store for rank in parts.ranks], 2)
    lines["last_s"] = -math.inf
    lane = parts.table.lane
    count = np.bincount((2 * parts.mine + lane)[lane <= DOWN], minlength=len(ways))
    lines["room"] = _starts(count)
    return lines, int(count.sum()) + 1


def _processors(parts: _Parts, shared: Shared) -> tuple[Any, int]:
    """One a rank, three of the store, and two a host; and how many jobs they may have at once,
    together."""
    ranks = parts.ranks
    hosts = 0 if shared.host is None else -(-len(ranks) // shared.host.functions)
    made = np.zeros(len(ranks) + 3 + 2 * hosts, dtype=RECORDS["processors"])
    made["share"] = 1.0
    states = [rank.processor.state() for rank in ranks]
    for name in states[0] if states else ():
        made[name][: len(ranks)] = [state[name] for state in states]
    count = np.full(len(made), len(parts.of), dtype=np.int64)
    # Of a rank each operation has one job at a time, and each stream one before its first.
    count[: len(ranks)] = np.bincount(parts.mine, minlength=len(ranks))
    count[: len(ranks)] += np.bincount(parts.rank_of, minlength=len(ranks))
    made["room"] = _starts(count)
    return made, int(count.sum()) + 1
