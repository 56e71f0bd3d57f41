"""Which micro-batches a rank passes, in which order, and with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dayfly.batches import MicroBatch, micro_batches, share
from dayfly.wire.pipelines.orders import most_held, most_of_wave
from dayfly.wire.pipelines.routes import Routes
from dayfly.wire.pipelines.step import Layout, StageRank


@dataclass(frozen=True, slots=True)
class Passing:
    """The micro-batches that a rank passes.

    Attributes:
        micros: in the order of their forward passes, which is that of their backward passes.
        waves: their numbers, as `orders.in_waves` takes them.
        before, behind: of each, the replica of the stage before and behind that has it, too; empty:
            the one that has the rank's own number.
    """

    micros: tuple[MicroBatch, ...]
    waves: tuple[tuple[int, ...], ...]
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """How the replicas of each stage share out a batch.

    Where all stages have as many replicas, each replica cuts its share of the batch in pieces, and
    passes them to the replica of its own number. Else the batch is cut in as many micro-batches as
    the stage with the most replicas computes, and all stages share these out (see `routes`).

    Args:
        pieces: micro-batches of a replica, of the stage with the most.
        leaves: of a batch, each of them a micro-batch; None: as many as there are pieces.
    """

    layout: Layout
    pieces: int
    leaves: int | None = None

    @property
    def total(self) -> int:
        """Micro-batches of a batch, all replicas' together."""
        return self.leaves or self.pieces * max(self.layout.each)

    @property
    def shared(self) -> int | None:
        """Micro-batches of a batch that all stages share out; None: each replica cuts its own."""
        return None if self.layout.even else self.total

    def most(self, stage: int) -> int:
        """The most micro-batches of a batch that a replica of a stage computes."""
        return -(-self.total // self.layout.replicas_of(stage))

    def held(self, stage: int, schedule: str) -> int:
        """Returns how many micro-batches a replica of a stage holds at once, at most.

        It holds those whose forward pass is done and whose backward pass is not. Where stages have
        different numbers of replicas, the number is an upper bound.

        Args:
            stage: its number.
            schedule: a name of `orders.ORDERS`.
        """
        stages_on, each = self.layout.stages - stage, 1
        if self.shared is not None and self.leaves is None:  # of a wave a replica has several
            each = most_of_wave(max(self.layout.each), self.layout.replicas_of(stage))
        return most_held(schedule, self.most(stage), each * stages_on)

    def passing(self, samples: int, own: StageRank) -> Passing:
        """What a rank passes of a batch of so many samples; empty micro-batches are left out."""
        if self.shared is not None:
            return self._routed(_sizes(samples, self.total), own)
        replicas = self.layout.replicas_of(own.stage)
        return _alone(micro_batches(samples, own.replica, replicas, self.pieces, self.leaves))

    def order(self, own: StageRank) -> tuple[int, ...]:
        """Returns the micro-batches of a rank, in the order in which it computes them.

        Those that are empty in a small batch are among them. Where all stages have as many replicas
        there are none, as each replica then cuts its own share of a batch.
        """
        if self.shared is None:
            return ()
        routes = self._routes(self.total)
        return tuple(one for wave in routes.waves(own.stage, own.replica) for one in wave)

    def blocks(self, total: int, own: StageRank) -> range:
        """The positions of a rank's blocks in a round of validation of so many."""
        return share(total, own.replica, self.layout.replicas_of(own.stage))

    def validating(self, sizes: Sequence[int], own: StageRank) -> Passing:
        """What a rank passes of a round of validation, with blocks of these sizes.

        Numbers are positions in the round; where all stages have as many replicas, in `blocks`.
        """
        if self.shared is not None:
            return self._routed(sizes, own)
        mine = self.blocks(len(sizes), own)
        return _alone([MicroBatch(n, sizes[position]) for n, position in enumerate(mine)])

    def _routes(self, total: int) -> Routes:
        # Leaves are joined along their tree in the order of their numbers.
        return Routes(self.layout.each, total, in_order=self.leaves is not None)

    def _routed(self, sizes: Sequence[int], own: StageRank) -> Passing:
        routes = self._routes(len(sizes))
        waves, before, behind = _route(routes, own)
        waves = tuple([tuple([number for number in wave if sizes[number]]) for wave in waves])
        numbers = [number for wave in waves for number in wave]
        return Passing(
            micros=tuple([MicroBatch(number, sizes[number]) for number in numbers]),
            waves=waves,
            before=tuple([before[number] for number in numbers]) if before else (),
            behind=tuple([behind[number] for number in numbers]) if behind else (),
        )


@lru_cache(maxsize=1024)
def _route(
    routes: Routes, own: StageRank
) -> tuple[tuple[tuple[int, ...], ...], Mapping[int, int], Mapping[int, int]]:
    """A rank's waves, and of each of their micro-batches the replica of the stage before and behind
    that has it; batches of all sizes have the same."""
    waves = routes.waves(own.stage, own.replica)

    def owners(stage: int) -> dict[int, int]:
        there = 0 <= stage < len(routes.replicas)
        numbers = [number for wave in waves for number in wave] if there else []
        return {number: routes.owner(stage, number) for number in numbers}

    return waves, owners(own.stage - 1), owners(own.stage + 1)


@lru_cache(maxsize=256)
def _sizes(samples: int, total: int) -> tuple[int, ...]:
    """Samples of each of so many micro-batches; all ranks ask for the same."""
    return tuple([len(share(samples, number, total)) for number in range(total)])


def _alone(micros: Sequence[MicroBatch]) -> Passing:
    return Passing(tuple(micros), tuple((micro.number,) for micro in micros))
