"""The same schedules in virtual time: what a collective takes, without sending a byte.

A lane carries its operations one after another. A transfer of b bytes over a lane of w bytes a
second occupies the lane for b/w and is complete a latency later, while the next one already
transfers (requests are pipelined), so a phase of several transfers pays the latency once.

A lane starts its operations in their order, as the engine does: each when what it waits for is
done, and when it is less than `in_flight` from the first that is not carried. Of those that were
started, one is carried at a time, whichever could be first: what waits for its message lets those
pass that were started after it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from dayfly.wire.keys import EVERYONE
from dayfly.wire.schedule import Kind, Lane, Name, Op, Schedule, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A worker's way to the store; rates in bytes a second, each way. Reducing at `reduce`.

    in_flight: how far a lane may be ahead of the first operation that is not carried; latency is
    pipelined anyway. direct: messages go from worker to worker, so one for everyone leaves its
    sender once for each other rank, in the order rank+1, rank+2, ... (who is no rank begins at 0).
    """

    up_bytes_per_s: float
    down_bytes_per_s: float
    latency_s: float
    reduce_bytes_per_s: float = float("inf")
    in_flight: int = 1
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Timed:
    """When an operation occupied its lane from and to, and when its effect was there."""

    op: Op
    start_s: float
    lane_free_s: float
    done_s: float


def simulate(
    schedules: Sequence[Schedule],
    link: Link | Sequence[Link],
    *,
    itemsize: int = 4,
    work_s: Callable[[int, Work], float] | None = None,
) -> tuple[tuple[Timed, ...], ...]:
    """Run one schedule a rank; returns each rank's operations with their times.

    link: every rank's, or one a rank. A schedule beyond the ranks is the server's, as its messages
    have it. work_s: seconds that a rank takes for the work of a COMPUTE; None: nothing. Raises
    ValueError naming an operation that waits for ever, if the schedules do not fit.
    """
    links = [link] * len(schedules) if isinstance(link, Link) else list(link)
    return _Simulation(schedules, links, itemsize, work_s).run()


def finish_s(times: Sequence[Sequence[Timed]]) -> float:
    """When the last operation of the last rank was done."""
    return max((timed.done_s for rank in times for timed in rank), default=0.0)


@dataclass(slots=True)
class _Lane:
    """One lane of one rank.

    queue: positions of its operations. started: how many of them. first: how many were carried
    without a gap. carried: those beyond. possible: what could be carried, the earliest first, as
    (since when, position).
    """

    window: int
    queue: list[int] = field(default_factory=list)
    started: int = 0
    first: int = 0
    carried: set[int] = field(default_factory=set)
    possible: list[tuple[float, int]] = field(default_factory=list)
    busy: bool = False

    def finish(self, position: int) -> None:
        """An operation was carried."""
        self.busy = False
        self.carried.add(position)
        while self.first < len(self.queue) and self.queue[self.first] in self.carried:
            self.carried.remove(self.queue[self.first])
            self.first += 1


#: What happens: a rank's lane has carried a position; a position is done; a message is there for a
#: reader, or for all (None).
@dataclass(frozen=True, slots=True)
class _Carried:
    lane: Lane
    position: int


@dataclass(frozen=True, slots=True)
class _Done:
    position: int


@dataclass(frozen=True, slots=True)
class _There:
    name: Name
    reader: int | None


class _Simulation:
    """Events in the order of their time."""

    def __init__(
        self,
        schedules: Sequence[Schedule],
        links: Sequence[Link],
        itemsize: int,
        work_s: Callable[[int, Work], float] | None,
    ) -> None:
        self._schedules = schedules
        self._links = links
        self._itemsize = itemsize
        self._work_s = work_s
        self._timed: list[dict[int, Timed]] = [{} for _ in schedules]
        self._lanes = [_lanes(*each) for each in zip(schedules, links, strict=True)]
        self._unmet = [[len(op.after) for op in schedule] for schedule in schedules]
        self._followers = [_followers(schedule) for schedule in schedules]
        self._there: set[_There] = set()
        self._waiting: dict[Name, list[tuple[int, int]]] = defaultdict(list)  # (rank, position)
        self._events: list[tuple[float, int, int, _Carried | _Done | _There]] = []
        self._order = count()

    def run(self) -> tuple[tuple[Timed, ...], ...]:
        stirred = {(rank, lane): None for rank in range(len(self._schedules)) for lane in Lane}
        now = 0.0
        while True:
            for rank, lane in stirred:
                self._advance(rank, lane, now)
            if not self._events:
                break
            # All of a moment before anything is decided, so that ties are broken by the list.
            now, stirred = self._events[0][0], {}
            while self._events and self._events[0][0] == now:
                _, _, rank, event = heapq.heappop(self._events)
                for one in self._happen(rank, event, now):
                    stirred[one] = None
        self._check()
        return tuple(tuple(by[position] for position in sorted(by)) for by in self._timed)

    def _happen(
        self, rank: int, event: _Carried | _Done | _There, now: float
    ) -> list[tuple[int, Lane]]:
        """One event; returns the lanes for which it may make a difference."""
        match event:
            case _Carried(which, position):
                self._lanes[rank][which].finish(position)
                return [(rank, which)]
            case _Done(position):
                followers = self._followers[rank][position]
                for follower in followers:
                    self._unmet[rank][follower] -= 1
                return [(rank, self._schedules[rank].ops[one].lane) for one in followers]
            case _There(name, reader):
                self._there.add(event)
                waiting = self._waiting.pop(name, [])
                if reader is not None:
                    self._waiting[name] = [one for one in waiting if one[0] != reader]
                came = [one for one in waiting if reader is None or reader == one[0]]
                for other, position in came:
                    heapq.heappush(self._lanes[other][Lane.DOWNLINK].possible, (now, position))
                return [(other, Lane.DOWNLINK) for other, _ in came]

    def _advance(self, rank: int, which: Lane, now: float) -> None:
        """Start what may start now, and carry what could be first."""
        lane = self._lanes[rank][which]
        while lane.started < min(lane.first + lane.window, len(lane.queue)):
            position = lane.queue[lane.started]
            if self._unmet[rank][position]:
                break
            lane.started += 1
            self._start(rank, position, now)
        if lane.possible and not lane.busy:
            _, position = heapq.heappop(lane.possible)
            lane.busy = True
            self._carry(rank, which, position, now)

    def _start(self, rank: int, position: int, now: float) -> None:
        """What it waited for is done; its message may be still to come."""
        op = self._schedules[rank].ops[position]
        if op.lane is Lane.DOWNLINK and op.name is not None and not self._is_there(op.name, rank):
            self._waiting[op.name].append((rank, position))
        else:
            heapq.heappush(self._lanes[rank][op.lane].possible, (now, position))

    def _is_there(self, name: Name, reader: int) -> bool:
        return _There(name, None) in self._there or _There(name, reader) in self._there

    def _carry(self, rank: int, which: Lane, position: int, now: float) -> None:
        op, link = self._schedules[rank].ops[position], self._links[rank]
        if op.work is not None and self._work_s is not None:
            each_s = self._work_s(rank, op.work)
        else:
            each_s = _occupied_s(op, link, self._itemsize)
        latency_s = 0.0 if which is Lane.COMPUTE else link.latency_s
        readers: list[int | None] = [None]
        if op.kind is Kind.PUT and op.name is not None:
            if link.direct and op.name.destination == EVERYONE:
                ranks = len(self._schedules)
                first = rank + 1 if op.name.source == rank else 0
                readers = [(first + one) % ranks for one in range(ranks)]
                readers.remove(rank)
            for nth, reader in enumerate(readers, 1):
                self._push(now + nth * each_s + latency_s, rank, _There(op.name, reader))
        end = now + len(readers) * each_s
        self._timed[rank][position] = Timed(op, now, end, end + latency_s)
        self._push(end, rank, _Carried(which, position))
        self._push(end + latency_s, rank, _Done(position))

    def _push(self, at: float, rank: int, event: _Carried | _Done | _There) -> None:
        heapq.heappush(self._events, (at, next(self._order), rank, event))

    def _check(self) -> None:
        for rank, schedule in enumerate(self._schedules):
            # All before the earliest that is left are done: it is what waits for a message.
            for position, op in enumerate(schedule):
                if position not in self._timed[rank]:
                    raise ValueError(f"rank {rank} waits for ever: {op}")


def _lanes(schedule: Schedule, link: Link) -> dict[Lane, _Lane]:
    lanes = {lane: _Lane(1 if lane is Lane.COMPUTE else link.in_flight) for lane in Lane}
    for position, op in enumerate(schedule):
        lanes[op.lane].queue.append(position)
    return lanes


def _followers(schedule: Schedule) -> dict[int, list[int]]:
    followers: dict[int, list[int]] = defaultdict(list)
    for position, op in enumerate(schedule):
        for earlier in op.after:
            followers[earlier].append(position)
    return followers


def _occupied_s(op: Op, link: Link, itemsize: int) -> float:
    size = len(op.span) * itemsize
    match op.kind:
        case Kind.PUT:
            return size / link.up_bytes_per_s
        case Kind.GET | Kind.HOLD:
            return size / link.down_bytes_per_s
        case Kind.REDUCE:
            return size * (len(op.terms) - 1) / link.reduce_bytes_per_s
        case Kind.DROP | Kind.COMPUTE:
            return 0.0
