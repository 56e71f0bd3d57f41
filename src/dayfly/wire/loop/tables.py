"""Schedules as tables of numbers, made once for each schedule and used by `flattened`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dayfly.wire.loop.records import NONE
from dayfly.wire.schedule import CompiledSchedule, Kind

Ints = NDArray[np.int64]

#: The number that stands for each phase of messages' names.
PHASES: dict[str, int] = {}
#: Phase, source and destination of an operation without a message.
_NO_NAME = ("", NONE, NONE + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A schedule as numbers.

    Attributes:
        table: (rows, operations), with the rows of `Table`.
        sizes: how many operations each lane has.
        later: the operations that wait for each of them, one after another.
    """

    table: Ints
    sizes: Ints
    later: Ints

    @classmethod
    def of(cls, plan: CompiledSchedule) -> Self:
        """Returns that of a schedule."""
        table = np.zeros((len(Table._fields), len(plan.numbers)), dtype=np.int64)
        one = Table(*table)
        one.lane[:], one.length[:], one.unmet[:] = plan.numbers, plan.lengths, plan.waits_for
        one.adds[:] = plan.adds
        one.computes[list(plan.works)] = 1
        names = [_NO_NAME if name is None else name for name in plan.names]
        if names:
            phases, one.source[:], one.destination[:] = zip(*names, strict=True)
            one.phase[:] = [PHASES.setdefault(phase, len(PHASES)) for phase in phases]
        fetch = Kind.FETCH
        one.fetches[:] = [kind is fetch for kind in plan.kinds]
        one.order[:] = np.argsort(one.lane, kind="stable")
        awaited = np.fromiter(chain.from_iterable(plan.after), np.int64)
        one.later[:] = np.bincount(awaited, minlength=len(names))
        waiting = np.repeat(np.arange(len(names)), one.unmet)
        later = waiting[np.argsort(awaited, kind="stable")]
        return cls(table, np.bincount(one.lane, minlength=3), later)


#: The same, kept: many ranks have the same schedule.
plan_of = lru_cache(maxsize=4096)(Plan.of)


class Table(NamedTuple):
    """One number for each operation, by field.

    Attributes:
        fetches, computes: 1 or 0.
        adds: contributions that a REDUCE adds up, less one.
        phase: of its message's name, a number.
        order: operations by lane.
        later: how many wait for it.
    """

    lane: Ints
    length: Ints
    unmet: Ints
    fetches: Ints
    computes: Ints
    adds: Ints
    phase: Ints
    source: Ints
    destination: Ints
    order: Ints
    later: Ints

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> Self:
        """Returns the tables of several schedules joined into one, in their order."""
        empty = np.empty((len(cls._fields), 0), dtype=np.int64)
        return cls(*np.concatenate([empty, *[one.table for one in plans]], axis=1))
