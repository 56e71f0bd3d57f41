"""What the generations of a run have until its plan changes: what follows from its settings.

run.json    settings ---> Setup ---> the plan of each generation, and what its workers are told
               ^
               '--- a change of the plan: other settings, and another Setup
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from dayfly.catalogue.platform import FunctionPlatform
from dayfly.life.platforms.base import PLATFORMS
from dayfly.runs.function_resources import FunctionResources, resources_of
from dayfly.runs.functions import FunctionSettings, catalogue, price_list
from dayfly.runs.pipelining import Pipelining
from dayfly.specs.functions import FunctionSpec
from dayfly.specs.pace import Pace
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.pipelines.step import worthwhile_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Functions, channel and pace of a run's generations.

    Args:
        settings: of the run.
        resources: of each kind of function.
        priced_as: under whose prices it is billed.
        channel_url: of the channel.
        channel: what that is made for.
        pace: of reports, and of looks for what workers are asked to do.
        log_rounds: rounds that the message log may hold; None: there is no log.
    """

    settings: FunctionSettings
    resources: tuple[FunctionResources, ...]
    priced_as: FunctionPlatform
    channel_url: str
    channel: ChannelSpec
    pace: Pace
    log_rounds: int | None = None

    @classmethod
    def of(
        cls,
        settings: FunctionSettings,
        channel_url: str,
        channel: ChannelSpec,
        log_rounds: int | None = None,
    ) -> Self:
        """Returns the setup of a run with these settings.

        Raises:
            RequestError: functions that cannot be.
        """
        kinds = settings.kinds
        each = {kind: resources_of(kind) for kind in dict.fromkeys(kinds)}
        resources = tuple(each[kind] for kind in kinds)
        known = catalogue(settings)
        priced_as = known.platform(price_list(settings))
        kind = channel_kind(channel_url)
        store = kind.priced_as(channel_url)
        # How often workers report, look and beat depends on what requests and they themselves cost.
        pace = Pace.of(
            [one.spec for one in resources],
            priced_as,
            None if store is None else known.store(store),
            workers=settings.workers,
            immediate=kind.immediate and all(one.rates is None for one in resources),
            heartbeats=not kind.immediate and not PLATFORMS[settings.platform].ends_stopped,
        )
        return cls(
            settings=settings,
            resources=resources,
            priced_as=priced_as,
            channel_url=channel_url,
            channel=channel,
            pace=pace,
            log_rounds=log_rounds,
        )

    def resources_of(self, rank: int) -> FunctionResources:
        """What a worker's function gets."""
        return self.resources[self.settings.kind_of(rank)]

    def sends(self, line: Pipelining | None) -> Pipelining | None:
        """A cut model's, with messages as large as the way to this channel wants them."""
        if line is None:
            return None
        in_flight = channel_kind(self.channel_url).abilities.in_flight
        ways = (one.rates for one in self.resources)
        return replace(line, chunk_bytes=worthwhile_bytes(ways, in_flight))

    @property
    def specs(self) -> Sequence[FunctionSpec]:
        """Each rank's function, in order."""
        return [self.resources_of(rank).spec for rank in range(self.settings.workers)]
