"""A worker's way and share of the CPU, and the all-reduces that it runs, for virtual time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache, partial
from typing import TypedDict

from dayfly.planning.channels import Means
from dayfly.planning.flat import ITEM_BYTES
from dayfly.planning.profile import SizeProfile
from dayfly.planning.work import direction, processor
from dayfly.wire.codec import CODECS
from dayfly.wire.collectives import collective
from dayfly.wire.collectives.push_pull import serve
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import CompiledSchedule, width
from dayfly.wire.streams import Direction, Rank, Stream


class Lanes(TypedDict):
    """How a stream's operations are carried; see `Stream`."""

    in_flight: int
    alone: bool


def limited(size: SizeProfile, means: Means, rank: int, streams: Sequence[Stream]) -> Rank:
    """A worker on functions of this size."""
    return Rank(
        streams=streams,
        up=direction(size, size.up),
        down=direction(size, size.down),
        processor=processor(size, rank),
        header_bytes=HEADER_BYTES,
        direct=means.direct,
        held=True,
        reduce_s_per_byte=size.reduce_s_per_byte * size.speed,
        early=not means.lends,
    )


def server(size: SizeProfile, means: Means, members: int, worker: Sequence[Stream]) -> Rank:
    """The parameter server of these workers: a process of its own, which is not limited. It takes
    what comes, adds it up and serves it. worker: streams of one of them."""
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
    )


def all_reduce(
    algorithm: str,
    aggregators: int | None,
    member: int,
    members: int,
    length: int,
    means: Means,
    *,
    name: Hashable,
    after: tuple[tuple[int, int | None], ...],
    pool: str,
    codec: str = "none",
    itemsize: int = ITEM_BYTES,
    group: bool = False,
    begin_s: float = 0.0,
) -> Stream:
    """One all-reduce of a buffer of `length` elements, as an engine runs it.

    begin_s: CPU seconds that it takes beside its messages; of one member nothing, as nothing is
    sent.
    """
    chunk = max(1, means.chunk_bytes // itemsize)
    plan = _planned(algorithm, aggregators, member, members, length, chunk)
    served = algorithm == "push-pull" and members > 1
    return Stream(
        plan=plan,
        name=name,
        member=member,
        members=members + served,
        group=group,
        itemsize=itemsize,
        travelling=None if codec == "none" else partial(travelling_bytes, codec),
        after=after,
        pool=pool,
        at_once=means.at_once,
        begin_s=begin_s if members > 1 else 0.0,
        **alone_or_side_by_side(means, plan, itemsize),
    )


def alone_or_side_by_side(means: Means, plan: CompiledSchedule, itemsize: int) -> Lanes:
    """How an execution carries a schedule over this channel."""
    largest = max((len(op.span) for op in plan.schedule if op.name is not None), default=0)
    return {
        "in_flight": width(means.in_flight, means.chunk_bytes, itemsize * largest),
        "alone": means.immediate,
    }


@lru_cache(maxsize=4096)
def _planned(
    algorithm: str, aggregators: int | None, member: int, members: int, length: int, chunk: int
) -> CompiledSchedule:
    how = collective(algorithm, aggregators, members)
    return CompiledSchedule(how.schedule(member, members, length, chunk=chunk))


@lru_cache(maxsize=256)
def _served(members: int, length: int, chunk: int) -> CompiledSchedule:
    return CompiledSchedule(serve(members, length, chunk=chunk))


def travelling_bytes(codec: str, length: int) -> int:
    """Bytes that travel for so many elements in this form."""
    dtype, shape = CODECS[codec]().form(length)
    return dtype.itemsize * shape[0]
