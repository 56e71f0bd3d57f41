"""What an all-reduce costs: the terms in which each algorithm states it, beside its schedule.

    AllReduce    what is asked: so many members, a buffer of so many elements, over links (`link`)
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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dayfly.elementwise import by_value, choice, least, most, rounded
from dayfly.wire.channels.kind import one_request
from dayfly.wire.collectives.link import DirectionModel, LinkModel, plain_link
from dayfly.wire.keys import HEADER_BYTES
from dayfly.wire.schedule import MOST_CHUNKS, chunk_count, width


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
        each_s = line.occupied_s(nbytes, at_once, on_host, line.under_way(nbytes, count))
        # What a message takes of the CPU beyond its bytes, it takes during its latency.
        beyond_s = each_s - line.carried_s(nbytes, at_once, on_host)
        late_s = choice(count, line.latency_s - least(line.latency_s, beyond_s), 0.0)
        length_s = line.row_s(each_s, nbytes, count) + late_s
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
