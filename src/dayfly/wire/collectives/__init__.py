"""Collectives: one file an algorithm, each a pure function from (rank, world size, length).

A new algorithm is a line in `COLLECTIVES`; the conformance suite runs over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

from dayfly.wire.collectives.scatter_reduce import scatter_reduce, sums
from dayfly.wire.schedule import Name, Schedule


class MakeSchedule(Protocol):
    """A collective: what `rank` does to sum `length` elements over `world_size` ranks."""

    def __call__(
        self, rank: int, world_size: int, length: int, stored: Set[Name] = ...
    ) -> Schedule: ...


@dataclass(frozen=True, slots=True)
class Collective:
    """An all-reduce algorithm.

    schedule: the pure function. sums: the names of the messages that, once all are stored, hold
    the whole result, by world size; they are what the message log keeps.
    """

    schedule: MakeSchedule
    sums: Callable[[int], tuple[Name, ...]]


#: All-reduce algorithms by the name that `--collective` takes.
COLLECTIVES: dict[str, Collective] = {
    "scatter-reduce": Collective(scatter_reduce, sums),
}
