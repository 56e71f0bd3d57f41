"""What a collective costs by its schedule, in virtual time: for those that state no cost.

The same serves the conformance suite, which holds a stated cost to the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from dayfly.errors import RequestError
from dayfly.wire.collectives.base import Collective
from dayfly.wire.collectives.cost import AllReduce, Cost, MessageCount, Phase
from dayfly.wire.collectives.link import DirectionModel
from dayfly.wire.collectives.push_pull import serve
from dayfly.wire.keys import EVERYONE, SERVER
from dayfly.wire.leaves import Node, joins
from dayfly.wire.schedule import CompiledSchedule, Kind, Name, Op, Schedule, width
from dayfly.wire.simulation import run
from dayfly.wire.streams import Direction, Moments, Rank, Stream

#: Members whose messages are gone through one by one: n members have n^2 messages and more.
MOST_MEMBERS = 64


@lru_cache(maxsize=4096)
def cost_of(name: str, how: Collective, one: AllReduce) -> Cost:
    """Returns what an all-reduce takes: as it is stated, or else by the schedule.

    Planners ask the same of many plans, so what was found is kept.

    Args:
        name: of the collective, for the error.
        how: the collective.
        one: the all-reduce; one of a single member takes nothing.

    Raises:
        RequestError: the collective states no cost, and has too many members for virtual time.
    """
    if one.members == 1:
        return Cost()
    if how.cost is not None:
        return how.cost(one)
    if one.members > MOST_MEMBERS:
        raise RequestError(
            f"--collective {name}: it states no cost, and {one.members} workers are too many to go "
            f"through its messages one by one: give {MOST_MEMBERS} at most, or add `cost` to it "
            "(see CONTRIBUTING.md)"
        )
    return cost_by_schedule(how, one)


def cost_by_schedule(how: Collective, one: AllReduce) -> Cost:
    """Returns what an all-reduce takes by its schedule, in virtual time."""
    n = one.members
    schedules = [how.schedule(rank, n, one.length, chunk=one.chunk) for rank in range(n)]
    moments = _moments(how, one, schedules)
    seconds, carried_s = (
        max(s for times in by for s in times.done_s)
        for by in (moments, _moments(how, one, schedules, latency=False))
    )
    memory = max(map(_held_bytes, [one] * n, schedules, moments))
    phase = Phase(seconds, late_s=max(0.0, seconds - carried_s))
    return one.costs((phase,), _messages(one, schedules), memory)


def _moments(
    how: Collective, one: AllReduce, schedules: Sequence[Schedule], *, latency: bool = True
) -> list[Moments]:
    """When each member does what. A server, if the collective has one, takes no time."""
    n, link = one.members, one.link
    ranks = []
    for member, schedule in enumerate(schedules):
        largest = max((len(op.span) for op in schedule if op.name is not None), default=0)
        stream = Stream(
            plan=CompiledSchedule(schedule),
            name="sum",
            member=member,
            members=n + how.server,
            itemsize=one.itemsize,
            travelling=lambda span, total: one.travelling(len(span), total),
            in_flight=width(link.up.in_flight, link.up.chunk_bytes, one.itemsize * largest),
        )
        ranks.append(
            Rank(
                streams=[stream],
                up=_direction(link.up, one, latency),
                down=_direction(link.down, one, latency),
                direct=link.direct,
                held=True,
                reduce_s_per_byte=link.reduce_s_per_byte,
            )
        )
    if how.server:
        plan = CompiledSchedule(serve(n, one.length, chunk=one.chunk))
        served = Stream(
            plan=plan, name="sum", member=n, members=n + 1, in_flight=len(plan.schedule)
        )
        at_once = Direction(occupied_s=lambda nbytes: 0.0)
        ranks.append(Rank(streams=[served], up=at_once, down=at_once, early=True))
    return [times for (times,) in run(ranks)[:n]]


def _direction(line: DirectionModel, one: AllReduce, latency: bool) -> Direction:
    at_once, on_host = float(one.members * one.groups), one.on_host(one.members)
    return Direction(
        occupied_s=lambda nbytes: line.occupied_s(nbytes, at_once, on_host),
        latency_s=line.latency_s if latency else 0.0,
        piece_s=line.direction.piece_s,
    )


def _messages(one: AllReduce, schedules: Sequence[Schedule]) -> list[MessageCount]:
    """All that members put and get, by number of readers."""
    found = []
    for everyone in (False, True):
        ops = [
            op
            for schedule in schedules
            for op in schedule
            if op.name is not None and (op.name.destination == EVERYONE) == everyone
        ]
        if one.members and ops:
            sizes = [one.travelling(len(op.span), everyone) for op in ops]
            puts = [size for size, op in zip(sizes, ops, strict=True) if op.kind is Kind.PUT]
            gets = [size for size, op in zip(sizes, ops, strict=True) if op.kind is not Kind.PUT]
            theirs = any(op.name is not None and op.name.source == SERVER for op in ops)
            found.append(
                MessageCount(len(puts), len(gets), sum(puts), sum(gets), everyone and not theirs)
            )
    return found


def _held_bytes(one: AllReduce, schedule: Schedule, times: Moments) -> float:
    """Most contributions that a member holds at once, and a window of those in flight.

    A contribution is held from when it is asked for until it is added: when all terms before it are
    there, into the memory of the first of them, which is held until the sum is made. Along a tree
    it is added when the other half of its node is there.
    """
    if one.link.zero_copy:
        return 0.0
    fetched = {op.name: at for at, op in enumerate(schedule) if op.kind is Kind.FETCH}
    changes: list[tuple[float, float]] = []
    largest = 0.0
    for number, op in enumerate(schedule):
        if op.kind is not Kind.REDUCE:
            continue
        nbytes = float(len(op.span) * one.itemsize)
        if op.nodes:
            asked_s = {name: times.start_s[at] for name, at in fetched.items()}
            came_s = {name: times.done_s[at] for name, at in fetched.items()}
            changes += [(asked_s[name], nbytes) for name in op.terms if name is not None]
            let_go_s = _let_go_s(op, came_s, times.done_s[number])
            changes += [(at_s, -nbytes) for at_s in let_go_s]
            largest = max(largest, nbytes)
            continue
        there_s, first = 0.0, True
        for name in op.terms:
            if name is None:
                continue
            at = fetched[name]
            there_s = max(there_s, times.done_s[at])
            changes.append((times.start_s[at], nbytes))
            changes.append((times.done_s[number] if first else there_s, -nbytes))
            first, largest = False, max(largest, nbytes)
    most = held = 0.0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


def _let_go_s(op: Op, came_s: Mapping[Name | None, float], ended_s: float) -> list[float]:
    """When the memory of each contribution to a sum along a tree is given back.

    Two halves need that of one, from when both are there; the last two until the sum is made.
    """
    ready: dict[Node, tuple[float, int]] = {  # of each node: when it is there, blocks that it has
        node: (came_s[name], 1) if name is not None else (0.0, 0)
        for name, node in zip(op.terms, op.nodes, strict=True)
    }
    root, found = range(op.nodes[0].start, op.nodes[-1].stop), []
    for left, right in joins(op.nodes):
        (one_s, ones), (other_s, others) = ready.pop(left), ready.pop(right)
        node, both_s = range(left.start, right.stop), max(one_s, other_s)
        if node == root:
            found += [ended_s] * (ones + others)
        else:
            found += [both_s] * max(0, ones + others - 1)
        ready[node] = both_s, min(1, ones + others)
    return found
