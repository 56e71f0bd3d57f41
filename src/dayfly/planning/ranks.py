"""A worker in virtual time: its channel, its link, its share of the CPU, and its all-reduces.

Many functions share the way to a store:

    alone                     w(b) = p (1 - exp(-t b)), of a message of b bytes (FasDL eq. 2)
    with n functions          w(b) d(n), d falling (FuncPipe section 5.4, figure 7)
    of the whole store        C / n, if n functions carry at once (Alibaba: C = 10 Gb/s)
    of a host with h          H / h, if as many of a run are on each (`HostLink`)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypedDict

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import wrong_url
from dayfly.planning.configuration import ITEM_BYTES
from dayfly.planning.function_times import APART
from dayfly.planning.profile import Profile, SizeProfile, Transfer
from dayfly.planning.summed import Summed
from dayfly.wire.channels import CHANNELS
from dayfly.wire.channels.kind import ChannelKind
from dayfly.wire.collectives import SMALL_SUM, collective
from dayfly.wire.collectives.k_reduce import hybrid_part
from dayfly.wire.collectives.link import DirectionModel, LinkModel
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.pipelines.step import message_bytes, worthwhile_bytes
from dayfly.wire.processor import SharedProcessor
from dayfly.wire.schedule import (
    CompiledSchedule,
    Kind,
    Op,
    Schedule,
    Span,
    Work,
    width,
    worth_at_once,
)
from dayfly.wire.shaping import IN_FLIGHT, PIECE_S
from dayfly.wire.streams import Direction, Rank, Shared, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelModel:
    """What a run's workers talk through.

    Attributes:
        immediate: whether a transfer is work of the processor alone.
        in_flight, chunk_bytes: as the channel's `Abilities`.
        zero_copy: whether contributions are added where they lie, all at the end.
        shared: what all workers have together.
        store: whose prices requests have; None: they are free.
    """

    kind: ChannelKind
    immediate: bool
    in_flight: int
    chunk_bytes: int
    zero_copy: bool
    shared: Shared
    store: StoreFacts | None

    @classmethod
    def of(cls, profile: Profile) -> ChannelModel:
        """Of a profile's channel. Raises RequestError if it is none that dayfly has."""
        limited = any(size.rates is not None for size in profile.sizes)
        shared = Shared(
            cores=profile.shared_cores,
            store=profile.store,
            store_bytes_per_s=profile.store_bytes_per_s or math.inf,
            host=profile.host,
        )
        return _model(channel_of(profile.channel), profile.channel, shared, limited=limited)

    @property
    def at_once(self) -> int:
        """All-reduces that a worker runs at once; see `Engine.at_once`."""
        return worth_at_once(immediate=self.immediate)

    @property
    def direct(self) -> bool:
        """Whether messages go from worker to worker."""
        return self.kind.abilities.direct

    def link(
        self, size: SizeProfile, part: float = 1.0, store_bytes_per_s: float | None = None
    ) -> LinkModel:
        """Returns the link of functions of this size, as costs of collectives are asked for it.

        Args:
            size: of the functions.
            part: share of their bandwidth that is left.
            store_bytes_per_s: rate of the store for all functions together; None: the profile's.
        """
        whole = store_bytes_per_s or self.shared.store_bytes_per_s
        up, down = (
            DirectionModel(
                direction=direction(size, transfer),
                part=part,
                store_bytes_per_s=whole,
                host=self.shared.host,
                cores=math.inf if size.cpu_cores is None else size.cpu_cores,
                in_flight=1 if self.immediate else self.in_flight,
                chunk_bytes=self.chunk_bytes,
            )
            for transfer in (size.up, size.down)
        )
        return LinkModel(
            up=up,
            down=down,
            direct=self.direct,
            alone=self.immediate,
            zero_copy=self.zero_copy,
            begin_s=size.sum_cpu_s / size.speed,
            # Where contributions come one by one, adding one is hidden behind the next.
            reduce_s_per_byte=size.reduce_s_per_byte if self.zero_copy else 0.0,
            message=self.kind.message,
        )

    def message_bytes(self, sizes: list[SizeProfile]) -> int:
        """Least bytes of a message between two stages on functions of these sizes."""
        # Over links that are measured and not limited, runs know of no rates, either.
        worth = worthwhile_bytes((size.rates for size in sizes), self.kind.abilities.in_flight)
        return message_bytes(self.chunk_bytes, worth, immediate=self.immediate)


@lru_cache(maxsize=256)
def _model(kind: ChannelKind, channel: str, shared: Shared, *, limited: bool) -> ChannelModel:
    """Of a channel; a choice among plans asks for the same thousands of times."""
    named = channel if kind.carries(channel) else kind.priced_as(channel)
    return ChannelModel(
        kind=kind,
        immediate=kind.immediate and not limited,
        in_flight=in_flight(kind, limited=limited),
        chunk_bytes=kind.abilities.chunk_bytes,
        zero_copy=kind.zero_copy,
        shared=shared,
        store=None if named is None else _store(named),
    )


@cache
def _store(name: str) -> StoreFacts | None:
    """None: a store of the user's own catalogue, which a profile does not have."""
    known = Catalogue()
    return known.store(name) if known.has_store(name) else None


def in_flight(kind: ChannelKind, *, limited: bool) -> int:
    """Requests at once, each way.

    Args:
        limited: whether the way to the channel has rates of its own, as in `ShapedChannel`.
    """
    return IN_FLIGHT if kind.immediate and limited else kind.abilities.in_flight


@lru_cache(maxsize=256)
def channel_of(channel: str) -> ChannelKind:
    """The kind of channel of a URL, or of a store of the catalogue.

    Raises RequestError for what is neither.
    """
    scheme = channel.partition("://")[0]
    kinds = CHANNELS.values()
    kind = CHANNELS.get(scheme) or next((one for one in kinds if one.carries(channel)), None)
    if kind is None:
        stores = (store for one in kinds for store in one.stores)
        known = ", ".join(dict.fromkeys((*CHANNELS, *stores)))
        raise wrong_url(
            "the profile's channel",
            channel,
            f"it is not known: give a URL of one, or one of {known}",
        )
    return kind


@lru_cache(maxsize=256)
def chain(length: int) -> CompiledSchedule:
    """So many COMPUTE operations, one after another, whose work is counted from 0."""
    return CompiledSchedule(
        Schedule(
            tuple(
                Op(Kind.COMPUTE, Span(0, 0), work=Work("part", n), after=(n - 1,) if n else ())
                for n in range(length)
            )
        )
    )


def processor(size: SizeProfile, rank: int) -> SharedProcessor:
    """A function's share of the CPU; a rank's periods begin at moments of their own."""
    if size.cpu_cores is None:
        return SharedProcessor()
    phase_s = size.cpu_period_s * (rank * APART % 1.0)
    return SharedProcessor(size.cpu_cores, size.cpu_period_s, phase_s)


def direction(size: SizeProfile, transfer: Transfer) -> Direction:
    """One direction of a function's way to the store.

    Where nobody measured what a message takes of the CPU, it is what FuncPipe's beta says: while it
    is under way, computing gets 1/beta of what it had.
    """
    cpu_s, cpu_s_per_byte = transfer.cpu_s, transfer.cpu_s_per_byte
    if not (cpu_s or cpu_s_per_byte) and size.beta.value > 1:
        lost = (1 - 1 / size.beta.value) * size.speed
        cpu_s_per_byte = lost / transfer.peak_bytes_per_s.value
    return Direction(
        occupied_s=transfer.occupied_s,
        latency_s=transfer.latency_s.value,
        piece_s=PIECE_S,
        cpu_s=cpu_s,
        cpu_s_per_byte=cpu_s_per_byte,
    )


class Lanes(TypedDict):
    """How a stream's operations are carried; see `Stream`."""

    in_flight: int
    alone: bool


def ways_of(size: SizeProfile) -> tuple[Direction, Direction]:
    """Returns the way up to the store and the way down from it of functions of this size."""
    return direction(size, size.up), direction(size, size.down)


def limited(
    size: SizeProfile,
    means: ChannelModel,
    rank: int,
    streams: Sequence[Stream],
    ways: tuple[Direction, Direction] | None = None,
) -> Rank:
    """Returns a worker as virtual time sees it: its link, its processor, and what it does.

    Args:
        ways: of `ways_of` its size; None: they are made.
    """
    up, down = ways or ways_of(size)
    return Rank(
        streams=streams,
        up=up,
        down=down,
        processor=processor(size, rank),
        header_bytes=HEADER_BYTES,
        direct=means.direct,
        held=True,
        reduce_s_per_byte=size.reduce_s_per_byte * size.speed,
        early=not means.zero_copy,
    )


def all_reduce(
    algorithm: str,
    aggregators: int | None,
    member: int,
    members: int,
    summed: Summed,
    means: ChannelModel,
    *,
    name: Hashable,
    after: tuple[tuple[int, int | None], ...],
    pool: str,
    itemsize: int = ITEM_BYTES,
    group: bool = False,
    begin_s: float = 0.0,
    virtual_workers: int | None = None,
    part: str = "",
) -> Stream:
    """One all-reduce, as an engine runs it.

    Args:
        itemsize: bytes of an element of what is not compressed.
        part: as of `hybrid_part`, of a worker that lags; empty: all of it.
        begin_s: CPU seconds that it takes beside its messages; of one member nothing, as nothing is
            sent.
        virtual_workers: leaves of a batch, along whose tree it sums; None: it does not.
    """
    chunk = max(1, means.chunk_bytes // itemsize)
    how = algorithm, aggregators, member, members
    plan = _planned(*how, summed.length, chunk, virtual_workers, part)
    served = collective(algorithm, aggregators, members).server and members > 1
    return Stream(
        plan=plan,
        name=name,
        member=member,
        members=members + served,
        group=group,
        itemsize=itemsize,
        travelling=summed.travelling(members),
        after=after,
        pool=pool,
        at_once=means.at_once,
        begin_s=begin_s if members > 1 else 0.0,
        **alone_or_side_by_side(means, plan, itemsize),
    )


def small_sum(
    member: int,
    members: int,
    length: int,
    means: ChannelModel,
    *,
    name: Hashable,
    after: tuple[tuple[int, int | None], ...],
    itemsize: int,
    begin_s: float,
) -> Stream:
    """Returns a sum of a few numbers at member 0, by a thread of its own.

    All others do the same, so they have one plan, whichever they are and however many.

    Args:
        member, members: which of them this one is.
        length: numbers.
        means: ways to the store.
        name, after, itemsize, begin_s: as of `all_reduce`.
    """
    like, labels = ((1, 2), (0, member)) if member else ((0, members), ())
    chunk = max(1, means.chunk_bytes // itemsize)
    plan = _planned(*SMALL_SUM, *like, length, chunk, None, "")
    return Stream(
        plan=plan,
        name=name,
        member=member,
        members=members,
        labels=labels,
        itemsize=itemsize,
        after=after,
        pool="all",
        at_once=means.at_once,
        begin_s=begin_s if members > 1 else 0.0,
        **alone_or_side_by_side(means, plan, itemsize),
    )


def alone_or_side_by_side(means: ChannelModel, plan: CompiledSchedule, itemsize: int) -> Lanes:
    """How an execution carries a schedule over this channel."""
    return {
        "in_flight": _width(means.in_flight, means.chunk_bytes, itemsize * plan.largest),
        "alone": means.immediate,
    }


_width = lru_cache(maxsize=4096)(width)


@lru_cache(maxsize=4096)
def _planned(
    algorithm: str,
    aggregators: int | None,
    member: int,
    members: int,
    length: int,
    chunk: int,
    virtual_workers: int | None,
    part: str,
) -> CompiledSchedule:
    if part:
        how = hybrid_part(part, aggregators or 0)
    else:
        how = collective(algorithm, aggregators, members, virtual_workers)
    return CompiledSchedule(how.schedule(member, members, length, chunk=chunk))
