"""A parameter server in virtual time, beside the workers of `ranks`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from dayfly.planning.profile import SizeProfile
from dayfly.planning.ranks import ChannelModel
from dayfly.wire.collectives.push_pull import serve
from dayfly.wire.schedule import CompiledSchedule
from dayfly.wire.streams import Direction, Rank, Stream


def server(size: SizeProfile, means: ChannelModel, members: int, worker: Sequence[Stream]) -> Rank:
    """Returns a parameter server as virtual time sees it: a process with no limit of CPU or memory
    that receives gradients, adds them up and sends the sum back.

    Args:
        worker: streams of one of them.
    """
    streams = []
    for one in worker:
        if one.name is None:
            continue
        length = max((op.span.stop for op in one.plan.schedule), default=0)
        plan = _served(members, length, max(1, means.chunk_bytes // one.itemsize))
        streams.append(
            Stream(
                plan=plan,
                name=one.name,
                member=members,
                members=members + 1,
                itemsize=one.itemsize,
                in_flight=len(plan.schedule),
            )
        )
    at_once = Direction(occupied_s=lambda nbytes: 0.0)
    return Rank(
        streams=streams,
        up=at_once,
        down=at_once,
        reduce_s_per_byte=size.reduce_s_per_byte * size.speed,
        early=True,
        is_store=True,
    )


@lru_cache(maxsize=256)
def _served(members: int, length: int, chunk: int) -> CompiledSchedule:
    return CompiledSchedule(serve(members, length, chunk=chunk))
