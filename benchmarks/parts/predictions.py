"""What a collective should take: the bound, virtual time, and the papers' closed forms.

n: world_size; s: size_bytes; w: bytes_per_s of a worker, each way; latency_s: of each request.
"""

from __future__ import annotations

from collections.abc import Callable

from dayfly.wire.channels.base import Abilities
from dayfly.wire.collectives import Collective
from dayfly.wire.collectives.scatter_reduce import scatter_reduce_s
from dayfly.wire.schedule import Kind, Schedule
from dayfly.wire.virtual import Link, finish_s, simulate

#: Element size of the buffers that are summed: float32.
ITEM_BYTES = 4

#: Seconds by a paper's formula, of (s, n, w, latency_s), by the collective's name.
CLOSED_FORMS: dict[str, Callable[[float, int, float, float], float]] = {
    "scatter-reduce": scatter_reduce_s,
}


def bound_s(size_bytes: float, world_size: int, bytes_per_s: float) -> float:
    """The least seconds of any all-reduce: 2(n-1)/n * s/w.

    Of each split, every worker but one sends a contribution, and every worker but one receives the
    sum; so n workers send 2(n-1)s in all, and none has a faster link than the others.
    """
    return 2 * (world_size - 1) / world_size * size_bytes / bytes_per_s


def schedules(
    collective: Collective, world_size: int, size_bytes: int, abilities: Abilities
) -> list[Schedule]:
    """Every rank's, as an engine makes them over a channel of these abilities."""
    length, chunk = size_bytes // ITEM_BYTES, max(1, abilities.chunk_bytes // ITEM_BYTES)
    return [
        collective.schedule(rank, world_size, length, chunk=chunk) for rank in range(world_size)
    ]


def link_of(bytes_per_s: float, latency_s: float, abilities: Abilities) -> Link:
    """A worker's way to a channel of these abilities."""
    return Link(up_bytes_per_s=bytes_per_s, down_bytes_per_s=bytes_per_s, latency_s=latency_s)


def virtual_s(
    collective: Collective, world_size: int, size_bytes: int, abilities: Abilities, link: Link
) -> float:
    """Seconds of one all-reduce by the same schedules in virtual time."""
    made = schedules(collective, world_size, size_bytes, abilities)
    return finish_s(simulate(made, link, itemsize=ITEM_BYTES))


def misfit(
    collective: Collective, world_size: int, size_bytes: int, abilities: Abilities
) -> str | None:
    """Why a collective cannot go over a channel of these abilities; None if it can."""
    if collective.server and not abilities.sums:
        return "it needs a channel that sums"
    if abilities.sums and not collective.server:
        return "the channel sums, and carries nothing else"
    if abilities.largest_bytes is not None:
        made = schedules(collective, world_size, size_bytes, abilities)
        puts = [op for one in made for op in one if op.kind is Kind.PUT]
        largest = max((len(op.span) * ITEM_BYTES for op in puts), default=0)
        if largest > abilities.largest_bytes:
            return (
                f"messages of {largest} bytes, of which the channel takes {abilities.largest_bytes}"
            )
    return None
