"""Ranks as arrays for the compiled loop, and the moments that it finds.

What a plan says is found once a plan (`_Plan`); the rest is made for all operations together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dayfly.wire.keys import EVERYONE
from dayfly.wire.loop.records import DOWN, MESSAGE, NONE, OP, POOL, RECORDS, UP, State
from dayfly.wire.schedule import CompiledSchedule, Kind
from dayfly.wire.streams import Moments, Rank, Shared, Stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Of a message's name as one number: a source, and a phase. Parties are from -3 to 2^20.
_SOURCE, _PHASE = 2**21, 2**42
_PHASES: dict[str, int] = {}
#: In place of a message's name.
_NO_NAME = ("", NONE, NONE + 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Of a schedule.

    Attributes:
        table: (rows, operations), with the rows of `_Table`.
        sizes: how many operations each lane has.
        later: the operations that wait for each of them, one after another.
    """

    table: Ints
    sizes: Ints
    later: Ints

    @classmethod
    def of(cls, plan: CompiledSchedule) -> Self:
        table = np.zeros((len(_Table._fields), len(plan.numbers)), dtype=np.int64)
        one = _Table(*table)
        one.lane[:], one.length[:], one.unmet[:] = plan.numbers, plan.lengths, plan.waits_for
        one.adds[:] = plan.adds
        names = [_NO_NAME if name is None else name for name in plan.names]
        if names:
            phases, one.source[:], one.destination[:] = zip(*names, strict=True)
            one.phase[:] = [_PHASES.setdefault(phase, len(_PHASES)) for phase in phases]
        fetch = Kind.FETCH
        one.fetches[:] = [kind is fetch for kind in plan.kinds]
        one.order[:] = np.argsort(one.lane, kind="stable")
        awaited = np.fromiter(chain.from_iterable(plan.after), np.int64)
        one.later[:] = np.bincount(awaited, minlength=len(names))
        waiting = np.repeat(np.arange(len(names)), one.unmet)
        later = waiting[np.argsort(awaited, kind="stable")]
        return cls(table, np.bincount(one.lane, minlength=3), later)


_plan = lru_cache(maxsize=4096)(_Plan.of)


class _Table(NamedTuple):
    """Of operations.

    Attributes:
        fetches: 1 or 0.
        adds: contributions that a REDUCE adds up, less one.
        phase: of its message's name, a number.
        order: operations by lane.
        later: how many wait for it.
    """

    lane: Ints
    length: Ints
    unmet: Ints
    fetches: Ints
    adds: Ints
    phase: Ints
    source: Ints
    destination: Ints
    order: Ints
    later: Ints

    @classmethod
    def of(cls, plans: Sequence[_Plan]) -> Self:
        empty = np.empty((len(cls._fields), 0), dtype=np.int64)
        return cls(*np.concatenate([empty, *[one.table for one in plans]], axis=1))


def flattened(ranks: Sequence[Rank], shared: Shared) -> State:
    """Returns the state at the beginning of a run.

    Args:
        ranks: their processors have no jobs yet.
        shared: what all ranks have together; no cores.
    """
    streams = [stream for rank in ranks for stream in rank.streams]
    plans = [_plan(stream.plan) for stream in streams]
    sizes = np.array([plan.table.shape[1] for plan in plans], dtype=np.int64)
    table = _Table.of(plans)
    first = _starts(sizes)
    rank_of = np.repeat(np.arange(len(ranks)), [len(rank.streams) for rank in ranks])
    ops = np.zeros(int(sizes.sum()), dtype=OP)
    of = np.repeat(np.arange(len(streams)), sizes)
    ops["stream"] = of
    alone = np.array([stream.alone for stream in streams], dtype=bool)
    lane = table.lane
    ops["lane"], ops["unmet"] = lane, table.unmet
    ops["row"] = 3 * of + np.where(alone[of], 0, lane)
    ops["later"] = _starts(table.later)
    ops["later_end"] = ops["later"] + table.later
    later = np.concatenate([np.empty(0, dtype=np.int64), *[plan.later for plan in plans]])
    later += np.repeat(first, [len(plan.later) for plan in plans])
    _sizes(ops, table, ranks, streams, rank_of, first, shared)
    made = _streams(ranks, streams, sizes, rank_of, alone)
    opens = _opens(ops, made, ranks, streams, first)
    messages, readers = _messages(ops, table, ranks, streams)
    ops["next"] = NONE
    for name in ("start_s", "free_s", "done_s"):
        ops[name] = math.nan
    rows = _rows(streams, plans, first, alone)
    lines, asked = _lines(ops, ranks, rank_of)
    processors, jobs = _processors(ops, ranks, rank_of, shared)
    # Of an operation two effects may be to come, and a copy each reader.
    to_come = len(lines) + len(processors) + len(streams) + 2 * len(ops)
    to_come += int((ops["copies"] * (made["members"][of] - 1)).sum())
    run = np.zeros(1, dtype=RECORDS["run"])
    run["store"], run["has_thread"] = len(ranks), shared.store is not None
    run["has_rate"], run["readers"] = shared.store_bytes_per_s < math.inf, readers
    run["on_host"] = 0 if shared.host is None else shared.host.functions
    return State(
        ops=ops,
        streams=made,
        rows=rows,
        pools=_pools(made, streams, rank_of),
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
        todo=np.zeros(len(opens) + 2 * len(streams), dtype=np.int64),
        stirred=np.zeros(len(rows) + len(lines), dtype=np.int64),
        looked_at=np.zeros(len(rows) + len(lines), dtype=np.int64),
        run=run,
    )


def moments(state: State, ranks: Sequence[Rank]) -> tuple[tuple[Moments, ...], ...]:
    """Returns the moments of each rank's streams, at the end of a run."""
    each = [state.ops[name].tolist() for name in ("start_s", "free_s", "done_s")]
    begin, found = 0, []
    for rank in ranks:
        mine = []
        for stream in rank.streams:
            end = begin + len(stream.plan.numbers)
            mine.append(Moments(*(one[begin:end] for one in each)))
            begin = end
        found.append(tuple(mine))
    return tuple(found)


def _starts(sizes: Ints) -> Ints:
    """Where each of them begins, if they lie one behind another."""
    found: Ints = np.cumsum(sizes) - sizes
    return found


def _of_each(values: Iterable[Any]) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _sizes(
    ops: Any,
    table: _Table,
    ranks: Sequence[Rank],
    streams: Sequence[Stream],
    rank_of: Ints,
    first: Ints,
    shared: Shared,
) -> None:
    """What depends on bytes: of lines, of processors and of the store."""
    of, lane, length = ops["stream"], table.lane, table.length
    mine = rank_of[of]
    nbytes = length * np.array([stream.itemsize for stream in streams], dtype=np.int64)[of]
    adds = table.adds
    early = np.array([rank.early for rank in ranks], dtype=bool)[mine]
    reduce_s = _of_each(rank.reduce_s_per_byte for rank in ranks)[mine]
    # Of a REDUCE; without travelling bytes, which messages have.
    work_s = nbytes * np.where(early, np.minimum(adds, 1), adds) * reduce_s
    for number, stream in enumerate(streams):
        if stream.travelling is not None:
            part = slice(first[number], first[number] + len(stream.plan.lengths))
            plan = stream.plan
            nbytes[part] = list(map(stream.travelling, plan.spans, plan.totals))
        if stream.works_s:
            work_s[first[number] + np.array(stream.plan.works)] = stream.works_s
    ways = [way for rank in ranks for way in (rank.up, rank.down)]
    way = np.minimum(2 * mine + lane, len(ways) - 1)
    carries = lane <= DOWN
    message_s = (
        _of_each(stream.message_s for stream in streams)[of]
        + _of_each(one.cpu_s for one in ways)[way]
    )
    message_s = message_s + _of_each(one.cpu_s_per_byte for one in ways)[way] * nbytes
    added = early & table.fetches.astype(bool)
    message_s = np.where(added, message_s + nbytes * reduce_s, message_s)
    ops["work_s"] = np.where(carries, message_s, work_s)
    still = np.array([rank.processor.stands_still for rank in ranks], dtype=bool)[mine]
    ops["works"] = carries & ((message_s != 0) | still)
    header = np.array([rank.header_bytes for rank in ranks], dtype=np.int64)[mine]
    whole_s = _occupied(ranks, way, header + nbytes, carries)
    copies = (table.destination == EVERYONE) & (lane == UP)
    copies &= np.array([rank.direct for rank in ranks], dtype=bool)[mine]
    members = np.array([stream.members for stream in streams], dtype=np.int64)[of]
    ops["copies"] = copies
    member = np.array([stream.member for stream in streams], dtype=np.int64)[of]
    ops["source"] = np.where(table.source == member, member + 1, 0)
    whole_s = np.where(copies, whole_s * (members - 1), whole_s)
    piece_s = _of_each(one.piece_s for one in ways)[way]
    pieces = np.where(piece_s == math.inf, 1, np.ceil(whole_s / piece_s)).astype(np.int64)
    ops["pieces"] = np.maximum(pieces, 1)
    ops["piece_s"] = whole_s / ops["pieces"]
    if shared.store is not None:
        ops["served_s"] = shared.store.cpu_s + shared.store.cpu_s_per_byte * nbytes
    if shared.store_bytes_per_s < math.inf:
        ops["stored_s"] = (header + nbytes) / shared.store_bytes_per_s
    if shared.host is not None:
        leaves = np.where(copies, members - 1, 1)
        ops["hosted_s"] = leaves * (header + nbytes) / shared.host.bytes_per_s


def _occupied(ranks: Sequence[Rank], way: Ints, whole: Ints, carries: NDArray[np.bool_]) -> Floats:
    """How long messages of so many bytes occupy their lines: each size is asked once a kind."""
    kinds: dict[Callable[[float], float], int] = {}
    of_way = [
        kinds.setdefault(one.occupied_s, len(kinds))
        for rank in ranks
        for one in (rank.up, rank.down)
    ]
    kind = np.where(carries, np.array(of_way, dtype=np.int64)[way], NONE)
    found = np.zeros(len(whole))
    for occupied_s, number in kinds.items():
        at = np.flatnonzero(kind == number)
        sizes, which = np.unique(whole[at], return_inverse=True)
        found[at] = _of_each(map(occupied_s, sizes.tolist()))[which]
    return found


def _streams(
    ranks: Sequence[Rank],
    streams: Sequence[Stream],
    sizes: Ints,
    rank_of: Ints,
    alone: NDArray[np.bool_],
) -> Any:
    made = np.zeros(len(streams), dtype=RECORDS["streams"])
    made["rank"], made["left"], made["behind"] = rank_of, sizes, NONE
    made["empty"] = sizes == 0
    made["gates"] = [len(stream.after) for stream in streams]
    for name in ("at_once", "member", "members", "begin_s"):
        made[name] = [getattr(stream, name) for stream in streams]
    made["keeps"] = alone | np.array([rank.held for rank in ranks], dtype=bool)[rank_of]
    return made


def _opens(
    ops: Any, made: Any, ranks: Sequence[Rank], streams: Sequence[Stream], first: Ints
) -> Ints:
    """Who waits for each operation, and for each stream, which come behind all operations."""
    awaited: list[int] = []
    waiting: list[int] = []
    every, begin = iter(streams), 0
    starts = first.tolist()
    for rank in ranks:
        for number, stream in enumerate(islice(every, len(rank.streams)), begin):
            for other, position in stream.after:
                of = begin + other
                awaited.append(len(ops) + of if position is None else starts[of] + position)
                waiting.append(number)
        begin += len(rank.streams)
    order = np.argsort(np.array(awaited, dtype=np.int64), kind="stable")
    rows = np.array(awaited, dtype=np.int64)[order]
    every_row = np.arange(len(ops) + len(streams))
    begins = np.searchsorted(rows, every_row, side="left")
    ends = np.searchsorted(rows, every_row, side="right")
    for records, part in ((ops, slice(0, len(ops))), (made, slice(len(ops), None))):
        records["opens"], records["opens_end"] = begins[part], ends[part]
    return np.array([*np.array(waiting, dtype=np.int64)[order], NONE], dtype=np.int64)


def _messages(
    ops: Any,
    table: _Table,
    ranks: Sequence[Rank],
    streams: Sequence[Stream],
) -> tuple[Any, int]:
    """All messages, and how many readers one for each reader alone has, at most."""
    names: dict[Hashable, int] = {}
    of = np.array([names.setdefault(one.name, len(names)) for one in streams], dtype=np.int64)
    stream = ops["stream"]
    ends = table.source, table.destination
    if any(one.labels for one in streams):
        sizes = np.array([len(one.labels) for one in streams], dtype=np.int64)
        labels = np.array([at for one in streams for at in one.labels], dtype=np.int64)
        at = np.flatnonzero((sizes[stream] > 0) & (table.source >= 0))
        ends = table.source.copy(), table.destination.copy()
        for one in ends:
            one[at] = labels[_starts(sizes)[stream[at]] + one[at]]
    name = _PHASE * table.phase + _SOURCE * ends[0] + ends[1]
    called, number = np.unique(name, return_inverse=True)
    both, message = np.unique(of[stream] * len(called) + number, return_inverse=True)
    ops["message"] = message
    made = np.zeros(len(both), dtype=MESSAGE)
    made["waits"] = made["waits_last"] = NONE
    copied = any(rank.direct for rank in ranks)
    return made, max((one.members for one in streams), default=0) if copied else 0


def _rows(
    streams: Sequence[Stream], plans: Sequence[_Plan], first: Ints, alone: NDArray[np.bool_]
) -> Any:
    """Three a stream; one alone has the first only."""
    rows = np.zeros(3 * len(streams), dtype=RECORDS["rows"])
    sizes = np.array([plan.sizes for plan in plans], dtype=np.int64).reshape(-1, 3)
    whole = sizes.sum(axis=1)
    sizes[alone] = np.stack([whole, 0 * whole, 0 * whole], axis=1)[alone]
    begins = np.cumsum(sizes, axis=1) - sizes + first[:, None]
    width = np.array([(one.in_flight, one.in_flight, 1) for one in streams], dtype=np.int64)
    width = width.reshape(-1, 3)
    width[alone] = 1
    rows["first"] = rows["started"] = begins.ravel()
    rows["end"], rows["width"] = (begins + sizes).ravel(), width.ravel()
    rows["stream"] = np.repeat(np.arange(len(streams)), 3)
    return rows


def _pools(made: Any, streams: Sequence[Stream], rank_of: Ints) -> Any:
    pools: dict[tuple[int, str], int] = {}
    made["pool"] = [
        NONE if one.pool is None else pools.setdefault((rank, one.pool), len(pools))
        for rank, one in zip(rank_of.tolist(), streams, strict=True)
    ]
    found = np.zeros(max(1, len(pools)), dtype=POOL)
    found["head"] = found["tail"] = NONE
    return found


def _lines(ops: Any, ranks: Sequence[Rank], rank_of: Ints) -> tuple[Any, int]:
    """Two a rank, and how many may ask for them at once, all together."""
    ways = [way for rank in ranks for way in (rank.up, rank.down)]
    lines = np.zeros(len(ways), dtype=RECORDS["lines"])
    lines["latency_s"] = [way.latency_s for way in ways]
    lines["whole"] = [way.piece_s == math.inf for way in ways]
    lines["is_store"] = np.repeat([rank.is_store for rank in ranks], 2)
    lines["last_s"] = -math.inf
    asking = ops[ops["lane"] <= DOWN]
    count = np.bincount(2 * rank_of[asking["stream"]] + asking["lane"], minlength=len(ways))
    lines["room"] = _starts(count)
    return lines, int(count.sum()) + 1


def _processors(ops: Any, ranks: Sequence[Rank], rank_of: Ints, shared: Shared) -> tuple[Any, int]:
    """One a rank, three of the store, and two a host; and how many jobs they may have at once,
    together."""
    hosts = 0 if shared.host is None else -(-len(ranks) // shared.host.functions)
    made = np.zeros(len(ranks) + 3 + 2 * hosts, dtype=RECORDS["processors"])
    made["share"] = 1.0
    for rank, one in zip(ranks, made, strict=False):
        for name, value in rank.processor.state().items():
            one[name] = value
    count = np.full(len(made), len(ops), dtype=np.int64)
    # Of a rank each operation has one job at a time, and each stream one before its first.
    count[: len(ranks)] = np.bincount(rank_of[ops["stream"]], minlength=len(ranks))
    count[: len(ranks)] += np.bincount(rank_of, minlength=len(ranks))
    made["room"] = _starts(count)
    return made, int(count.sum()) + 1
