"""What members hold of each other's contributions while they sum up, beside their own buffers."""

from __future__ import annotations

from functools import lru_cache

from dayfly.planning.profile import SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.collectives import collective
from dayfly.wire.collectives.cost import AllReduce
from dayfly.wire.collectives.virtual_cost import cost_of


@lru_cache(maxsize=4096)
def held_bytes(
    means: ChannelModel,
    size: SizeProfile,
    lengths: tuple[int, ...],
    name: str,
    aggregators: int | None,
    members: int,
    virtual_workers: int | None,
) -> float:
    """Returns the bytes that a member holds at most; plans of one job ask for the same ones often.

    Args:
        means: the channel.
        size: of the members' functions.
        lengths: elements of the buffers that are summed at once.
        name, aggregators, members, virtual_workers: of the collective.
    """
    how, link = collective(name, aggregators, members, virtual_workers), means.link(size)
    each = (AllReduce(members=members, length=n, link=link) for n in lengths)
    return sum(cost_of(name, how, one).memory_bytes for one in each)
