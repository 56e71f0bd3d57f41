"""Groups of processes over one backend, from the side that asks them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.parts.member import Meeting, Steps
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.stores import Store
from benchmarks.parts.turns import Side, Taken
from dayfly.closing import Closing
from dayfly.life.sessions import Session
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.shaping import Rates

#: A channel has room for so much, as a run's log has by default; and touches so much ahead.
_BUDGET_BYTES, _AHEAD_BYTES = 2**30, 2**27


class Group(Closing):
    """The first `world_size` of the ranks, with one default group. Close it to leave.

    store: where the channel is made, which the group talks over; None: gloo. rates: of each rank's
    way to it.
    """

    def __init__(
        self,
        ranks: Ranks,
        world_size: int,
        session: Session,
        store: Store | None,
        rates: Rates | None = None,
    ) -> None:
        self._ranks, self._world_size, self._channel = ranks, world_size, None
        place = None if store is None else store.place()
        if place is not None:
            kind = channel_kind(place.url)
            plan = ChannelSpec(
                senders=world_size, budget_bytes=_BUDGET_BYTES, ahead_bytes=_AHEAD_BYTES
            )
            kind.remove(place.site())
            self._channel = kind.create(place.site(), plan)
        meet = session.root / f"meet-{secrets.token_hex(4)}"
        meeting = Meeting(meet=meet, world_size=world_size, place=place, rates=rates)
        try:
            self.ask("join", meeting)
        except BaseException:
            self._remove()
            raise

    def ask(self, method: str, *args: object) -> list[Any]:
        """As `Ranks.ask`, of this group's ranks."""
        return self._ranks.ask(method, *args, count=self._world_size)

    def take(self, name: str, count: int) -> list[Steps]:
        """So many steps of a program, begun by all at one moment; rank by rank."""
        return self._ranks.together("take", name, count, count=self._world_size)

    def close(self) -> None:
        try:
            if self._ranks.in_order:
                self.ask("leave")
        finally:
            self._remove()

    def _remove(self) -> None:
        if self._channel is not None:
            self._channel.destroy()
            self._channel.close()


@dataclass(frozen=True, slots=True)
class Of(Side):
    """A program in a group."""

    group: Group
    program: str

    def take(self, count: int) -> Taken:
        """A step's time is from the first rank's start to the last's end, over their number."""
        took = self.group.take(self.program, count)
        span_s = max(one.ended_s for one in took) - min(one.began_s for one in took)
        return Taken(
            step_s=span_s / count,
            cpu_s=fmean(one.cpu_s for one in took) / count,
            losses=[one.losses for one in took],
        )
