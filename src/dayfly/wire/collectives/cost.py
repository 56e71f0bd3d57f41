"""What an all-reduce costs: the terms in which each algorithm states it, beside its schedule.

    LinkModel    a member's link to the channel: how long a message occupies it, latency, chunk
    AllReduce    what is asked: so many members, a buffer of so many elements, over such links
    Cost         the answer: phases in time; requests, bytes and memory

    phases of scatter-reduce   |begin|up (n-1)/n s|down (n-1)/n s|add|up s/n|down (n-1)/n s|

An algorithm is a function `cost(one: AllReduce) -> Cost` (`Collective.cost`). It states its phases,
its messages and its memory. `AllReduce.costs` makes requests and bytes from the messages, as they
depend on the channel alone; a message's CPU time is in how long it occupies its link. The
conformance suite holds the cost to the schedule. Costs of dayfly's own are asked for many at once,
too: members, length and K are arrays then (`elementwise`).

n: members; s: bytes of the buffer; w: bytes a second of a link; t_lat: its latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dayfly.elementwise import by_value, choice, least, most, rounded
from dayfly.wire.channels.kind import MessageCost, one_request
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import MOST_CHUNKS, chunk_count, width
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
        speed: CPU cores that the member gets, such as 0.5.
        in_flight, chunk_bytes: messages at once, and the smallest that is worth its request; see
            `schedule.width`.
    """

    direction: Direction
    part: float = 1.0
    store_bytes_per_s: float = math.inf
    host: HostLink | None = None
    speed: float = 1.0
    in_flight: int = 1
    chunk_bytes: int = 1

    @property
    def latency_s(self) -> float:
        """Latency of a message, in seconds."""
        return self.direction.latency_s

    def occupied_s(
        self, nbytes: float, at_once: float = 1.0, on_host: float | None = None
    ) -> float:
        """Returns how long a message occupies the link: by its bytes, or by its CPU time.

        Args:
            nbytes: payload of the message; none for 0.
            at_once: members that transfer at the same time.
            on_host: of these, the most that are on one host; None: as many as there is room for.
        """
        way = self.direction
        carried_s = way.occupied_s(HEADER_BYTES + nbytes) / self.part
        worked_s = (way.cpu_s + way.cpu_s_per_byte * nbytes) / self.speed
        alone_s: float = choice(nbytes, most(carried_s, worked_s), 0.0)
        if self.store_bytes_per_s == math.inf and self.host is None:
            return alone_s
        shared_s = (HEADER_BYTES + nbytes) * at_once / self.store_bytes_per_s
        if self.host is not None:
            share = self.host.share(at_once if on_host is None else on_host)
            shared_s = most(shared_s, (HEADER_BYTES + nbytes) / share)
        found: float = choice(nbytes, most(alone_s, shared_s), 0.0)
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


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a collective.

    Args:
        length_s: how long it lasts.
        up_s, down_s: how much of it the links are busy.
        late_s: how much of it is latency, in which the links may carry messages of others.
    """

    length_s: float
    up_s: float = 0.0
    down_s: float = 0.0
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MessageCount:
    """How many messages of about one size all members together put and get.

    Args:
        puts, gets: their numbers.
        bytes_up, bytes_down: their payload, of a message for everyone up once.
        everyone: each is for all members.
    """

    puts: int
    gets: int
    bytes_up: int
    bytes_down: int
    everyone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an all-reduce takes.

    Args:
        phases: from the moment at which every member has its contribution.
        puts, gets: requests of all members.
        bytes_up, bytes_down: of all members, headers included.
        memory_bytes: most that a member holds of contributions beside its buffer.
        alone: as of the link.
    """

    phases: tuple[Phase, ...] = ()
    puts: int = 0
    gets: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    memory_bytes: float = 0.0
    alone: bool = False

    @property
    def seconds(self) -> float:
        """From the moment at which every member has its contribution, until all have the sum."""
        return sum(phase.length_s for phase in self.phases)

    @property
    def carried_s(self) -> float:
        """The same without latencies: until the links are free for another one."""
        return sum(phase.length_s - phase.late_s for phase in self.phases)

    @property
    def busiest_s(self) -> float:
        """Seconds for which uploads or downloads, whichever take longer, keep their direction busy.

        A sum that is under way beside others takes no less time: its uploads may be carried beside
        their downloads, but not beside their uploads.
        """
        up_s, down_s = (sum(getattr(one, way) for one in self.phases) for way in ("up_s", "down_s"))
        busy_s = up_s + down_s if self.alone else most(up_s, down_s)
        return least(self.carried_s, busy_s)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class AllReduce:
    """An all-reduce whose cost is asked.

    Args:
        members: ranks that sum, n.
        length: elements of the buffer.
        link: of each member.
        itemsize: bytes of an element in the buffer.
        travelling_bytes: all elements on their way; None: as they are in the buffer.
        sum_bytes: of the sum of all elements on its way; None: as of a contribution.
        groups: groups of members that sum at once, over one store.
        first: rank of the first member; the others follow it.
    """

    members: int
    length: int
    link: LinkModel
    itemsize: int = 4
    travelling_bytes: int | None = None
    sum_bytes: int | None = None
    groups: int = 1
    first: int = 0

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the whole buffer on their way, s."""
        return self.length * self.itemsize if (s := self.travelling_bytes) is None else s

    @cached_property
    def summed(self) -> int:
        """The same of the sum."""
        return self.nbytes if self.sum_bytes is None else self.sum_bytes

    @cached_property
    def chunk(self) -> int:
        """Elements that are worth a message."""
        return max(1, self.link.up.chunk_bytes // self.itemsize)

    def travelling(self, elements: int, total: bool = False) -> int:
        """Returns the bytes that travel for so many elements. total: of the sum."""
        whole = self.summed if total else self.nbytes
        return round(whole * elements / self.length) if self.length else 0

    @property
    def copies(self) -> int:
        """How often a message for everyone leaves its sender."""
        return self.members - 1 if self.link.direct else 1

    def chunks_of_splits(self, limit: int = MOST_CHUNKS) -> tuple[int, int]:
        """Returns the chunks of the largest split, and of all: the buffer has a split a member."""
        size, larger = divmod(self.length, self.members)
        of_larger = chunk_count(size + 1, self.chunk, limit)
        of_least = chunk_count(size, self.chunk, limit)
        whole = larger * of_larger + (self.members - larger) * of_least
        return choice(larger, of_larger, of_least), whole

    def on_host(self, members: float, after: int = 0) -> float | None:
        """Returns how many of so many members behind the first `after` are on one host at most;
        None: they share none."""
        host = self.link.up.host
        return None if host is None else host.together(self.first + after, members)

    def up(
        self, nbytes: float, senders: int, count: int = 1, *, after: int = 0, everyone: bool = False
    ) -> Phase:
        """Returns the phase in which members put a row of messages.

        Args:
            nbytes: payload of a message.
            senders: members of a group that put at the same time.
            count: messages of each of them.
            after: as of `on_host`.
            everyone: each is for all members.
        """
        copies_s = 0.0
        if everyone:
            on_host = self.on_host(senders, after)
            each_s = self.link.up.occupied_s(nbytes, on_host=on_host)
            copies_s = (self.copies - 1) * count * each_s
        row = self._phase(self.link.up, nbytes, senders, count, after)
        return Phase(row.length_s + copies_s, up_s=row.up_s + copies_s, late_s=row.late_s)

    def down(self, nbytes: float, readers: float, count: int = 1, *, after: int = 0) -> Phase:
        """Returns the phase in which members get a row of messages; arguments as of `up`."""
        row = self._phase(self.link.down, nbytes, readers, count, after)
        return Phase(row.length_s, down_s=row.up_s, late_s=row.late_s)

    def _phase(
        self, line: DirectionModel, nbytes: float, members: float, count: int, after: int
    ) -> Phase:
        at_once, on_host = members * self.groups, self.on_host(members, after)
        each_s = line.occupied_s(nbytes, at_once, on_host)
        length_s = line.row_s(each_s, nbytes, count) + choice(count, line.latency_s, 0.0)
        busy_s = length_s if self.link.alone else count * each_s
        return Phase(length_s, up_s=busy_s, late_s=length_s - busy_s)

    def held_bytes(self, message_bytes: float, waiting: int = 1) -> float:
        """Returns the memory of contributions of so many bytes each.

        Args:
            message_bytes: of a contribution.
            waiting: contributions that wait for earlier ones, or the sum so far; those in flight
                come on top.
        """
        if self.link.zero_copy:
            return 0.0
        down = self.link.down
        wide = width(down.in_flight, down.chunk_bytes, rounded(message_bytes))
        return message_bytes * (waiting + wide)

    def costs(
        self, phases: Sequence[Phase], messages: Sequence[MessageCount], memory_bytes: float = 0.0
    ) -> Cost:
        """Returns the cost of these phases and messages.

        Args:
            phases: one after another.
            messages: by size.
            memory_bytes: as `Cost` has it.
        """
        begin_s, message = self.link.begin_s, self.link.message
        # Sums that are no arrays of the first term's shape: no `+=`.
        puts = gets = up = down = 0
        for some in messages:
            copies = self.copies if some.everyone else 1
            sent = read = 1
            if message is not one_request:
                up_bytes = some.bytes_up // most(1, some.puts)
                down_bytes = some.bytes_down // most(1, some.gets)
                sent = by_value(lambda size: message(size).puts, up_bytes)
                read = by_value(lambda size: message(size).gets, down_bytes)
            # To all ranks a message for everyone is one put; to those of a group, one a reader.
            puts = puts + some.puts * sent * (copies if self.groups > 1 else 1)
            gets = gets + some.gets * read
            up = up + copies * (some.bytes_up + some.puts * HEADER_BYTES)
            down = down + some.bytes_down + some.gets * HEADER_BYTES
        if self.link.alone:
            phases = [_one_at_a_time(phase) for phase in phases]
        return Cost(
            phases=(*((Phase(begin_s, late_s=begin_s),) if begin_s else ()), *phases),
            puts=puts,
            gets=gets,
            bytes_up=up,
            bytes_down=down,
            memory_bytes=least(memory_bytes, 1.0 * (self.members - 1) * self.nbytes),
            alone=self.link.alone,
        )


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


def over_plain_links(
    cost: Callable[[AllReduce], Cost], members: int, up_s: float, down_s: float, latency_s: float
) -> float:
    """Returns the seconds of an all-reduce over links as `plain_link` has them.

    Args:
        cost: the collective's.
        members: two or more.
        up_s, down_s: time of the whole buffer, up and down a link.
        latency_s: of a message.
    """
    length = members * 2**10  # so that shards and chunks are whole, and sums of their times exact
    whole = float(length * 4)
    link = plain_link(up_s, down_s, latency_s * whole)
    return cost(AllReduce(members=members, length=length, link=link)).seconds / whole


def _one_at_a_time(phase: Phase) -> Phase:
    """Returns the phase with its uplink and downlink busy one after the other."""
    return replace(phase, length_s=most(phase.length_s, phase.up_s + phase.down_s))
