"""All-reduces of some ranks over one channel, from the side that asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from benchmarks.parts.cpu_clocks import cpu_s, others
from benchmarks.parts.ranks import Ranks
from benchmarks.parts.reducer import Place
from dayfly.closing import Closing
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.kind import ChannelSpec
from dayfly.wire.shaping import Rates

#: Room for messages beside the sums: keys, reports, and what is not reused at once.
_SPARE_BYTES = 2**26

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Took:
    """What one all-reduce took, of several in a row.

    wall_s: seconds from the first rank's start to the last's end. cpu_s: CPU seconds of a rank's
    process, the mean of all. store_cpu_s: of all other processes of the bench, which is where
    stores and the coordinator's end of the channel are.
    """

    wall_s: float
    cpu_s: float
    store_cpu_s: float


class Where(Protocol):
    """Where the coordinator's end of the channel lives: calls a function there."""

    def __call__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...


def _here(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return work(*args, **kwargs)


class Reductions(Closing):
    """The first `world_size` of the ranks, over the channel at `place`, made here.

    operations: all-reduces of `nbytes` that its log is to hold at once; it is trimmed after each
    measurement. Close it to remove the channel. Raises WireError if it cannot be made.
    """

    def __init__(
        self,
        ranks: Ranks,
        place: Place,
        world_size: int,
        nbytes: int,
        operations: int,
        where: Where = _here,
    ) -> None:
        self._ranks, self._world_size, self._where = ranks, world_size, where
        self._nbytes = nbytes
        self._step = 0
        kind = channel_kind(place.url)
        self.abilities = kind.abilities
        # While one runs, every rank's contributions are there, too.
        held_bytes = (operations + world_size) * (nbytes + nbytes // 8)
        plan = ChannelSpec(
            senders=world_size, budget_bytes=held_bytes + _SPARE_BYTES, ahead_bytes=2 * nbytes
        )
        where(kind.remove, place.site())
        self._channel = where(kind.create, place.site(), plan)
        try:
            ranks.ask("open", place, world_size, count=world_size)
        except BaseException:
            self._remove()
            raise

    def measure(
        self, collective: str, operations: int, rates: Rates | None = None, *, warm: int = 0
    ) -> Took:
        """Measures an all-reduce, of so many in a row; the result is checked.

        warm: others before them, which do not count.
        """
        count = self._world_size
        self._ranks.ask("prepare", collective, self._nbytes, rates, self._step, count=count)
        if warm:
            self._ranks.together("run", warm, count=count)
            self._ranks.ask("check", count=count)
        took = together(self._ranks, operations, count)
        self._ranks.ask("check", count=count)
        self._trim(warm + operations)
        return took

    def growth_bytes(self, collective: str) -> list[int]:
        """The most memory that one all-reduce takes beside the buffer, rank by rank."""
        count = self._world_size
        self._ranks.ask("prepare", collective, self._nbytes, None, self._step, count=count)
        growth = self._ranks.together("growth_bytes", count=count)
        self._ranks.ask("check", count=count)
        self._trim(2)
        return growth

    def traffic_bytes(self) -> int:
        """What all ranks have sent and received so far."""
        return sum(self._ranks.ask("traffic_bytes", count=self._world_size))

    def close(self) -> None:
        try:
            if self._ranks.in_order:
                self._ranks.ask("close", count=self._world_size)
        finally:
            self._remove()

    def _trim(self, operations: int) -> None:
        self._step += operations
        self._where(self._channel.trim, self._step)

    def _remove(self) -> None:
        self._where(self._channel.destroy)
        self._where(self._channel.close)


class Gloo(Closing):
    """The first `world_size` of the ranks, joined by gloo. rendezvous: a file that is not there."""

    def __init__(self, ranks: Ranks, rendezvous: Path, world_size: int, nbytes: int) -> None:
        self._ranks, self._world_size, self._nbytes = ranks, world_size, nbytes
        ranks.ask("open_gloo", rendezvous, world_size, count=world_size)

    def measure(self, operations: int, *, warm: int) -> Took:
        """As that of `Reductions`."""
        count = self._world_size
        self._ranks.ask("prepare_gloo", self._nbytes, count=count)
        self._ranks.together("run", warm, count=count)
        self._ranks.ask("check", count=count)
        took = together(self._ranks, operations, count)
        self._ranks.ask("check", count=count)
        return took

    def close(self) -> None:
        if self._ranks.in_order:
            self._ranks.ask("close_gloo", count=self._world_size)


def together(ranks: Ranks, operations: int, count: int) -> Took:
    """Measures one of the operations that these ranks do in a row, as `prepare`d."""
    pids = ranks.pids
    its_ranks, the_rest = pids[:count], others(pids)
    began_s, rest_began_s = cpu_s(its_ranks), cpu_s(the_rest)
    spans = ranks.together("run", operations, count=count)
    rank_s, rest_s = cpu_s(its_ranks) - began_s, cpu_s(the_rest) - rest_began_s
    wall_s = max(ended for _, ended in spans) - min(began for began, _ in spans)
    return Took(wall_s / operations, rank_s / count / operations, rest_s / operations)
