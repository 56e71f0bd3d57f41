"""The engines by which a worker sums: with all ranks, and with some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dayfly.runs.task import StepTask
from dayfly.wire.channels.base import Channel, Messages
from dayfly.wire.channels.group import GroupChannel
from dayfly.wire.collectives import Collective, collective
from dayfly.wire.collectives.k_reduce import k_reduce
from dayfly.wire.engine import Engine


@dataclass(frozen=True, slots=True)
class Engines:
    """Makes the engines of one worker.

    Args:
        channel: of its generation.
        task: of the worker.
        check: is called while it waits; what it raises ends the wait.
        observe: see `Engine`.
        watch: see `Engine`.
    """

    channel: Channel
    task: StepTask
    check: Callable[[], None]
    observe: Callable[..., None]
    watch: Callable[..., None]

    def of_all(self) -> Engine:
        """Returns the engine of all ranks, which sums gradients if the model is not cut."""
        ranks = range(self.task.world_size)
        # All ranks of a pipeline sum only what is small: what counts is how often somebody waits.
        cut = self.task.pipelining is not None
        whole = k_reduce(1) if cut else self._collective(len(ranks))
        return self._engine(self.channel, self.task.rank, ranks, whole)

    def among(self, name: str | None, ranks: Sequence[int], leaves: int | None) -> Engine:
        """Returns an engine of some of the ranks, this one among them, by the run's collective.

        Args:
            name: of its messages; None: they are named as those of all ranks.
            ranks: in order.
            leaves: of a batch, of which each has some in a row, along whose tree they sum; None:
                they sum what each has as a whole.
        """
        member = ranks.index(self.task.rank)
        channel: Messages = self.channel
        if name is not None:
            channel = GroupChannel(self.channel, name, ranks, member, whole_world=False)
        how = self._collective(len(ranks), leaves)
        return self._engine(channel, member, ranks, how)

    def by(self, how: Collective) -> Engine:
        """Returns an engine of all ranks, by another collective than the run's."""
        return self._engine(self.channel, self.task.rank, range(self.task.world_size), how)

    def _collective(self, world_size: int, leaves: int | None = None) -> Collective:
        aggregators = self.task.aggregators
        if aggregators is not None:  # of a stage with fewer replicas, all of them
            aggregators = min(aggregators, world_size)
        return collective(self.task.collective, aggregators, world_size, leaves)

    def _engine(
        self, channel: Messages, member: int, ranks: Sequence[int], collective: Collective
    ) -> Engine:
        return Engine(
            channel,
            collective,
            member,
            len(ranks),
            timeout_s=self.task.wait_timeout_s,
            interrupt=self.check,
            observe=self.observe,
            watch=self.watch,
        )
