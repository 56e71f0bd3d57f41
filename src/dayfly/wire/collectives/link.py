"""Links as costs of collectives are asked for them: what a member of a channel sends and receives.

    DirectionModel    one direction: its rate, latency, messages in flight, and their CPU time
    LinkModel         both, and what the channel does with messages

A message occupies its direction by its bytes, or by the CPU time that it takes, whichever is more.
Several at once may each have a core of the member's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dayfly.elementwise import choice, least, most, rounded
from dayfly.wire.channels.kind import MessageCost, one_request
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import width
from dayfly.wire.streams import Direction, HostLink

#: Messages in flight that limit nothing.
_ANY_NUMBER = 2**50


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionModel:
    """One direction of a member's link.

    Args:
        direction: how long a message occupies it (elementwise, to be asked for many at once), its
            latency, and the CPU time that it takes.
        part: share of the rate that is left where many functions run.
        store_bytes_per_s: rate of the store for all members together; infinite: not limited.
        host: what members on one machine share; None: nothing.
        cores: of the CPU that the member gets, such as 0.5; infinite: nothing limits it.
        in_flight, chunk_bytes: messages at once, and the smallest that is worth its request; see
            `schedule.width`.
    """

    direction: Direction
    part: float = 1.0
    store_bytes_per_s: float = math.inf
    host: HostLink | None = None
    cores: float = 1.0
    in_flight: int = 1
    chunk_bytes: int = 1

    @property
    def latency_s(self) -> float:
        """Latency of a message, in seconds."""
        return self.direction.latency_s

    def occupied_s(
        self,
        nbytes: float,
        at_once: float = 1.0,
        on_host: float | None = None,
        beside: float = 1.0,
    ) -> float:
        """Returns how long a message occupies the link: by its bytes, or by its CPU time.

        Args:
            nbytes: payload of the message; none for 0.
            at_once: members that transfer at the same time.
            on_host: of these, the most that are on one host; None: as many as there is room for.
            beside: messages of the member that are under way at once; each may have a core.
        """
        handled_s = self.handled_s(1, nbytes, beside)
        found: float = choice(nbytes, most(self.carried_s(nbytes, at_once, on_host), handled_s), 0)
        return found

    def carried_s(self, nbytes: float, at_once: float = 1.0, on_host: float | None = None) -> float:
        """Returns how long the bytes of a message occupy the link, whatever CPU time it takes.

        Args:
            nbytes, at_once, on_host: as of `occupied_s`.
        """
        found: float = self.direction.occupied_s(HEADER_BYTES + nbytes) / self.part
        if self.store_bytes_per_s < math.inf:
            found = most(found, (HEADER_BYTES + nbytes) * at_once / self.store_bytes_per_s)
        if self.host is not None:
            share = self.host.share(at_once if on_host is None else on_host)
            found = most(found, (HEADER_BYTES + nbytes) / share)
        return choice(nbytes, found, 0.0)  # type: ignore[no-any-return]

    def handled_s(self, messages: float, nbytes: float, beside: float = 1.0) -> float:
        """Returns the seconds that the CPU of the member takes for messages.

        Args:
            messages: how many.
            nbytes: of them together.
            beside: as of `occupied_s`.
        """
        way = self.direction
        cpu_s = way.cpu_s * messages + way.cpu_s_per_byte * nbytes
        return cpu_s / least(beside, self.cores)  # type: ignore[no-any-return]

    def under_way(self, nbytes: float, count: int) -> int:
        """Returns how many of a row of messages are under way at once; elementwise.

        Args:
            nbytes: payload of each message.
            count: messages.
        """
        wide = width(self.in_flight, self.chunk_bytes, rounded(nbytes))
        found: int = most(1, least(count, wide))
        return found

    def row_s(self, each_s: float, nbytes: float, count: int) -> float:
        """Returns the time from the start of a row of messages until the last has been carried.

        A message is in flight until its latency has passed, and w of them at most: message i
        starts a time c after the one before it, and c + t_lat after message i - w.

        Args:
            each_s: c, as of `occupied_s`.
            nbytes: payload of each message.
            count: messages.
        """
        wide = width(self.in_flight, self.chunk_bytes, rounded(nbytes))
        full, rest = divmod(count - 1, wide)
        waiting_s = full * (each_s + self.latency_s) + (rest + 1) * each_s
        hidden = self.latency_s <= (wide - 1) * each_s
        found: float = choice(count, choice(hidden, count * each_s, waiting_s), 0.0)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkModel:
    """A member's link, the same for all members.

    Args:
        up, down: its directions.
        direct: messages go from member to member, so one for everyone leaves its sender once a
            reader.
        alone: one transfer at a time, up or down, as it is work of the member's processor.
        zero_copy: contributions are added where the channel keeps them, so they take no memory.
        begin_s: time before the first message.
        reduce_s_per_byte: time to add a contribution that nothing hides.
        message: requests of a message of so many bytes, as the channel states them.
    """

    up: DirectionModel
    down: DirectionModel
    direct: bool = False
    alone: bool = False
    zero_copy: bool = False
    begin_s: float = 0.0
    reduce_s_per_byte: float = 0.0
    message: Callable[[int], MessageCost] = one_request

    @property
    def late_s(self) -> float:
        """Latency of a message up and down again."""
        return self.up.latency_s + self.down.latency_s

    def handled_s(self, puts: float, gets: float, bytes_up: float, bytes_down: float) -> float:
        """Returns the seconds that the CPU of a member takes for its messages, one by one;
        elementwise.

        Args:
            puts, gets: how many messages it sends and receives.
            bytes_up, bytes_down: of these together.
        """
        return self.up.handled_s(puts, bytes_up) + self.down.handled_s(gets, bytes_down)


def plain_link(up_s_per_byte: float, down_s_per_byte: float, latency_s: float) -> LinkModel:
    """Returns a link that only carries, as papers have them.

    A message has no header and takes no CPU time, and any number of them may travel at once.

    Args:
        up_s_per_byte, down_s_per_byte: time of a byte.
        latency_s: of a message.
    """

    def line(s_per_byte: float) -> DirectionModel:
        way = Direction(
            occupied_s=lambda nbytes: (nbytes - HEADER_BYTES) * s_per_byte, latency_s=latency_s
        )
        return DirectionModel(direction=way, in_flight=_ANY_NUMBER)

    return LinkModel(up=line(up_s_per_byte), down=line(down_s_per_byte))
