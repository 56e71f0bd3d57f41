"""Interfaces of collectives: pure functions, and what the message log keeps of an all-reduce."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

from dayfly.wire.collectives.cost import AllReduce, Cost
from dayfly.wire.schedule import Name, Schedule


class MakeSchedule(Protocol):
    """Returns what `rank` does to sum `length` elements over `world_size` ranks.

    Args:
        rank: 0 to world_size - 1.
        world_size: number of ranks.
        length: elements of the flat buffer that every rank holds.
        stored: sums that are in the channel already. A worker that starts again passes them: it
            gets these as they are, and contributes to the others only. With all of them it only
            downloads.
        chunk: elements that are worth a message.
    """

    def __call__(
        self,
        rank: int,
        world_size: int,
        length: int,
        stored: Set[Name] = ...,
        *,
        chunk: int = ...,
    ) -> Schedule: ...


class Sums(Protocol):
    """Returns the names of the messages that together hold the result; see `Collective`."""

    def __call__(self, world_size: int, length: int, chunk: int) -> tuple[Name, ...]: ...


class MakeCost(Protocol):
    """Returns what the all-reduce takes, of two members at least; see `cost`."""

    def __call__(self, one: AllReduce) -> Cost: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """An all-reduce algorithm.

    Args:
        schedule: the pure function.
        sums: the messages that the message log keeps, from which a worker that starts again takes
            the result; none if it keeps none, and then all workers go back to the run checkpoint
            when one dies.
        cost: what it takes, in closed form. None: it is found in virtual time, for few members;
            see `virtual_cost.cost_of`.
        server: whether it needs a channel that sums.
        rank_order: whether terms are added from rank 0 to the last, so that it gives the same bits
            as the others.
        whole: whether each contribution goes as it is to the rank that sums it up, and what goes
            to everyone are sums alone; then ranks may bring nodes of a tree (see `leaves`).
    """

    schedule: MakeSchedule
    sums: Sums
    cost: MakeCost | None = None
    server: bool = False
    rank_order: bool = True
    whole: bool = False


def no_sums(world_size: int, length: int, chunk: int) -> tuple[Name, ...]:
    """As `Sums`, of an algorithm that keeps none."""
    return ()


class MakeOther(Protocol):
    """Makes the schedule of a rank for steps that are never replayed: none reads stored sums.

    Args:
        rank: of the worker.
        world_size: number of workers.
        length: elements of the flat buffer, the same on all ranks.
        chunk: elements that are worth a message.

    Raises:
        ValueError: the rank is outside the world.
    """

    def __call__(
        self, rank: int, world_size: int, length: int, *, chunk: int = ...
    ) -> Schedule: ...
