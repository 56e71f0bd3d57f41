"""Servers as stores: machines with a parameter server, or nodes of a cache, rented by time.

    b     bytes a second of one server, each way
    m     memory of one server
    p     dollars of one server's time (CE-scaling, equation 5)
    c     servers of one type, which share the keys: c b, c m and c p together

FuncPipe (section 5.1) takes the cheapest server that is no bottleneck. Here types and numbers are
choices like any other: a slower server may be worth its price, and several small ones may be
cheaper than a large one. `choices` has them all, but for those that another one dominates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dayfly.catalogue.store import MOST_SERVERS, StoreFacts
from dayfly.errors import RequestError
from dayfly.planning.configuration import ITEM_BYTES, flat
from dayfly.planning.data_parallel import TAIL
from dayfly.planning.profile import Profile

_MIB = 2**20


def held_bytes(profile: Profile, members: int) -> float:
    """Returns the most bytes that servers hold of a step: each member's contribution, and the sum.

    Args:
        profile: of the job.
        members: workers that sum; a lone one sends nothing.
    """
    summed = flat(profile.layers, tail=TAIL, listed=profile.listed).length
    return float((members + 1) * ITEM_BYTES * summed) if members > 1 else 0.0


def holds(store: StoreFacts | None, nbytes: float) -> bool:
    """Whether the servers of a store hold so many bytes together; other stores always do."""
    if store is None or store.server_memory_mib is None:
        return True
    return nbytes <= store.servers * store.server_memory_mib * _MIB


def check_server_memory(profile: Profile, members: int, store: StoreFacts | None) -> None:
    """Raises RequestError if the servers of a store have too little memory for a step's sum.

    Args:
        profile: of the job.
        members: that sum: workers, or replicas of a stage.
        store: None: there are no servers.
    """
    needed = held_bytes(profile, members)
    if store is None or holds(store, needed):
        return
    raise RequestError(
        f"a sum of {members} members needs {needed / _MIB:.0f} MiB at the servers, and "
        f"{store.name} has {store.servers * (store.server_memory_mib or 0)} MiB: take more or "
        "larger servers"
    )


def choices(
    types: Iterable[StoreFacts], most_bytes_per_s: float, most_bytes: float
) -> tuple[StoreFacts, ...]:
    """Returns the types and numbers of servers that may be worth their price.

    Of each type there may be 1 up to as many as carry and hold what all functions can send. One
    choice is left out if another has as much bandwidth and memory, no longer latency, and never
    costs more; of equal ones the first is kept.

    Args:
        types: a single server each.
        most_bytes_per_s: what all functions together can send or receive.
        most_bytes: what a step of all functions leaves at the servers.
    """
    every = [
        one.of_servers(n) for one in types for n in _numbers(one, most_bytes_per_s, most_bytes)
    ]
    kept: list[StoreFacts] = []
    for one in every:
        if not any(_dominates(other, one, most_bytes) for other in kept):
            kept = [other for other in kept if not _dominates(one, other, most_bytes)]
            kept.append(one)
    return tuple(kept)


def _numbers(one: StoreFacts, most_bytes_per_s: float, most_bytes: float) -> range:
    """All numbers of servers of a type to look at."""
    carrying = most_bytes_per_s / (one.bytes_per_s or math.inf)
    holding = most_bytes / ((one.server_memory_mib or math.inf) * _MIB)
    return range(1, min(MOST_SERVERS, max(1, math.ceil(carrying), math.ceil(holding))) + 1)


def _dominates(one: StoreFacts, other: StoreFacts, most_bytes: float) -> bool:
    """Whether a choice is as good as another one in all that counts."""

    def room(store: StoreFacts) -> float:
        held = store.servers * (store.server_memory_mib or math.inf) * _MIB
        return min(most_bytes, held)

    def latency_s(store: StoreFacts) -> float:
        return math.inf if store.latency_s is None else store.latency_s

    def steps(store: StoreFacts) -> tuple[float, float]:
        return store.server_step_s or 1.0, store.server_min_s or 0.0

    def hour_usd(store: StoreFacts) -> float:
        return store.servers * (store.usd_per_server_hour or 0.0)

    return (
        (one.bytes_per_s or math.inf) >= (other.bytes_per_s or math.inf)
        and room(one) >= room(other)
        and latency_s(one) <= latency_s(other)
        and steps(one) == steps(other)
        and hour_usd(one) <= hour_usd(other)
    )
