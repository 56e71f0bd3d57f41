"""Schedules played with names for numbers: any order that `after` and messages allow is tried.

An element of rank 2's buffer is the term (2,), or whatever it is given; sums append their terms in
order. So what ends where, what was summed in which order, and what is left are seen exactly,
without an engine or a channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from dayfly.wire.schedule import Kind, Name, Op, Schedule

Terms = tuple[Any, ...]
Buffer = list[Terms]


class Stuck(Exception):
    """Nothing can be done, and not all is. waiting: the first operation of each rank with any."""

    def __init__(self, waiting: Sequence[Op]) -> None:
        super().__init__(*waiting)
        self.waiting = waiting


def play(
    schedules: Sequence[Schedule],
    buffers: Sequence[Buffer],
    random: Random | None = None,
    stored: Mapping[Name, Buffer] | None = None,
) -> dict[Name, Buffer]:
    """Run all schedules on the buffers, in place; returns the messages that are left.

    random: what is done next is drawn from all that may be; None: each rank does an operation at
    a time in the order of its list, as over a channel in memory. stored: messages there before.
    """
    there = {name: list(held) for name, held in (stored or {}).items()}
    held: list[dict[Name, Buffer]] = [{} for _ in schedules]
    left = [list(range(len(schedule))) for schedule in schedules]
    done: list[set[int]] = [set() for _ in schedules]
    while any(left):
        possible = [
            (rank, position)
            for rank, positions in enumerate(left)
            for position in (positions if random else positions[:1])
            if _may(schedules[rank].ops[position], done[rank], there)
        ]
        if not possible:
            waiting = [schedules[rank].ops[one[0]] for rank, one in enumerate(left) if one]
            raise Stuck(waiting)
        rank, position = random.choice(possible) if random else possible[0]
        _perform(schedules[rank].ops[position], buffers[rank], held[rank], there)
        left[rank].remove(position)
        done[rank].add(position)
    assert not any(held), "what was held was summed up"
    return there


def _may(op: Op, done: set[int], there: Mapping[Name, Buffer]) -> bool:
    reads = op.kind is Kind.GET or op.kind is Kind.FETCH
    return set(op.after) <= done and (not reads or op.name in there)


def _perform(op: Op, buffer: Buffer, held: dict[Name, Buffer], there: dict[Name, Buffer]) -> None:
    where = slice(op.span.start, op.span.stop)
    if op.kind is Kind.DROP:
        for name in op.terms:
            there.pop(name, None)
        return
    if op.kind is Kind.REDUCE:
        columns = [buffer[where] if name is None else held.pop(name) for name in op.terms]
        buffer[where] = [sum(terms, ()) for terms in zip(*columns, strict=True)]
        return
    assert op.name is not None
    if op.kind is Kind.PUT:
        there.setdefault(op.name, buffer[where])
        return
    assert len(there[op.name]) == len(op.span)
    if op.kind is Kind.FETCH:
        held[op.name] = there[op.name]
    else:
        buffer[where] = there[op.name]
