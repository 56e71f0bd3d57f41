"""What a collective should take: the bound, virtual time, and the papers' closed forms."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dayfly.errors import RequestError
from dayfly.wire.channels.kind import Abilities
from dayfly.wire.collectives import COLLECTIVES, K_REDUCE, Collective, collective
from dayfly.wire.collectives.cost import AllReduce as Asked
from dayfly.wire.collectives.link import DirectionModel, LinkModel
from dayfly.wire.collectives.overlapped import bound_s
from dayfly.wire.collectives.push_pull import serve
from dayfly.wire.collectives.virtual_cost import cost_of
from dayfly.wire.schedule import Kind, Schedule
from dayfly.wire.streams import Direction
from dayfly.wire.virtual import Link, finish_s, simulate

#: Element size of the buffers that are summed: float32.
ITEM_BYTES = 4
#: Every all-reduce algorithm.
NAMES = (*COLLECTIVES, K_REDUCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """One all-reduce: of what, on how many, over which links.

    size_bytes: of the buffer. bytes_per_s: of each worker's link, each way. latency_s: of each
    request. abilities: the channel's.
    """

    name: str
    world_size: int
    size_bytes: int
    bytes_per_s: float
    latency_s: float
    abilities: Abilities

    @property
    def bound_s(self) -> float:
        """Least seconds over a store that only keeps: 2(n-1)/n s/w."""
        return bound_s(self.size_bytes, self.world_size, self.bytes_per_s)

    @property
    def virtual_s(self) -> float:
        """Seconds of its schedules in virtual time; a server's own link takes no time."""
        schedules = self.schedules()
        link = Link(
            up_bytes_per_s=self.bytes_per_s,
            down_bytes_per_s=self.bytes_per_s,
            latency_s=self.latency_s,
            in_flight=self.abilities.in_flight,
            direct=self.abilities.direct,
        )
        links = [link] * len(schedules)
        if algorithm(self.name, self.world_size).server:
            endless = float("inf")
            schedules.append(serve(self.world_size, self._length, chunk=self._chunk))
            links.append(
                replace(link, up_bytes_per_s=endless, down_bytes_per_s=endless, latency_s=0.0)
            )
        return finish_s(simulate(schedules, links, itemsize=ITEM_BYTES))

    @property
    def formula_s(self) -> float:
        """Seconds by the closed form that the algorithm states."""
        line = DirectionModel(
            direction=Direction(
                occupied_s=lambda nbytes: nbytes / self.bytes_per_s, latency_s=self.latency_s
            ),
            in_flight=self.abilities.in_flight,
            chunk_bytes=self.abilities.chunk_bytes,
        )
        link = LinkModel(up=line, down=line, direct=self.abilities.direct)
        asked = Asked(members=self.world_size, length=self._length, link=link)
        return cost_of(self.name, algorithm(self.name, self.world_size), asked).seconds

    def schedules(self) -> list[Schedule]:
        """Every rank's, as an engine makes them."""
        make = algorithm(self.name, self.world_size).schedule
        return [
            make(rank, self.world_size, self._length, chunk=self._chunk)
            for rank in range(self.world_size)
        ]

    @property
    def misfit(self) -> str | None:
        """Why the channel cannot carry it; None if it can."""
        if algorithm(self.name, self.world_size).server != self.abilities.sums:
            return "a channel that sums carries push-pull, and no other does"
        most = self.abilities.largest_bytes
        if most is not None:
            puts = [op for one in self.schedules() for op in one if op.kind is Kind.PUT]
            largest = max((len(op.span) * ITEM_BYTES for op in puts), default=0)
            if largest > most:
                return f"it has messages of {largest} bytes, and the channel takes {most} at most"
        return None

    @property
    def _length(self) -> int:
        return self.size_bytes // ITEM_BYTES

    @property
    def _chunk(self) -> int:
        return max(1, self.abilities.chunk_bytes // ITEM_BYTES)


def aggregators(world_size: int) -> int:
    """K of k-reduce as it is measured: half of the workers."""
    return world_size // 2


def algorithm(name: str, world_size: int) -> Collective:
    """By its name."""
    return collective(name, aggregators(world_size) if name == K_REDUCE else None, world_size)


def fitting(asked: list[str] | None, like: AllReduce) -> list[str]:
    """The algorithms to measure: those asked for, or all that the channel of `like` can carry.

    Raises RequestError if one that was asked for cannot be carried.
    """
    why = {name: replace(like, name=name).misfit for name in asked or NAMES}
    for name, reason in why.items():
        if asked and reason is not None:
            raise RequestError(f"{name} cannot be measured over this channel: {reason}")
    return [name for name, reason in why.items() if reason is None]
