"""What a profile's channel does to a schedule: messages' size, how many at once, and where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from dayfly.catalogue.lookup import Catalogue
from dayfly.catalogue.store import StoreFacts
from dayfly.errors import wrong_url
from dayfly.planning.profile import Profile, SizeProfile
from dayfly.wire.channels import CHANNELS
from dayfly.wire.channels.kind import ChannelKind
from dayfly.wire.pipelines.step import message_bytes, worthwhile_bytes
from dayfly.wire.schedule import MOST_AT_ONCE
from dayfly.wire.shaping import IN_FLIGHT
from dayfly.wire.streams import Shared

#: Stores of the catalogue, by the scheme of the channel that runs use over them.
_SCHEMES = {
    "s3": "s3",
    "s3-express": "s3",
    "alibaba-oss": "s3",
    "azure-storage": "s3",
    "elasticache": "redis",
    "dynamodb": "dynamodb",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a run's workers talk through.

    immediate: whether a transfer is work of the processor alone. in_flight, chunk_bytes: as the
    channel's `Abilities`. lends: whether contributions are added where they lie, all at the end.
    shared: what all workers have together. store: whose prices requests have; None: they are free.
    """

    kind: ChannelKind
    immediate: bool
    in_flight: int
    chunk_bytes: int
    lends: bool
    shared: Shared
    store: StoreFacts | None

    @classmethod
    def of(cls, profile: Profile) -> Means:
        """Of a profile's channel. Raises RequestError if it is none that dayfly has."""
        kind = channel_of(profile.channel)
        abilities = kind.abilities
        limited = any(size.rates is not None for size in profile.sizes)
        return cls(
            kind=kind,
            immediate=kind.immediate and not limited,
            in_flight=in_flight(kind, limited=limited),
            chunk_bytes=abilities.chunk_bytes,
            lends=kind.immediate,
            shared=Shared(cores=profile.shared_cores, store=profile.store),
            store=None if (named := _priced_as(profile.channel)) is None else _store(named),
        )

    @property
    def at_once(self) -> int:
        """All-reduces that a worker runs at once; see `Engine.at_once`."""
        return 1 if self.immediate else MOST_AT_ONCE

    @property
    def direct(self) -> bool:
        """Whether messages go from worker to worker."""
        return self.kind.abilities.direct

    def message_bytes(self, sizes: list[SizeProfile]) -> int:
        """Least bytes of a message between two stages on functions of these sizes."""
        # Over links that are measured and not limited, runs know of no rates, either.
        worth = worthwhile_bytes((size.rates for size in sizes), self.kind.abilities.in_flight)
        return message_bytes(self.chunk_bytes, worth, immediate=self.immediate)


def _priced_as(channel: str) -> str | None:
    """The store of the catalogue whose prices a channel's requests have, by name."""
    return channel if channel in _SCHEMES else channel_of(channel).priced_as(channel)


@cache
def _store(name: str) -> StoreFacts:
    return Catalogue().store(name)


def in_flight(kind: ChannelKind, *, limited: bool) -> int:
    """Requests at once, each way. limited: whether the way to the channel has rates of its own, as
    in `ShapedChannel`."""
    return IN_FLIGHT if kind.immediate and limited else kind.abilities.in_flight


def channel_of(channel: str) -> ChannelKind:
    """The kind of channel of a URL, or of a store of the catalogue.

    Raises RequestError for what is neither.
    """
    scheme = channel.partition("://")[0]
    kind = CHANNELS.get(_SCHEMES.get(scheme, scheme))
    if kind is None:
        known = ", ".join((*CHANNELS, *_SCHEMES))
        raise wrong_url(
            "the profile's channel",
            channel,
            f"it is not known: give a URL of one, or one of {known}",
        )
    return kind
