"""Which replica computes which micro-batch, where stages have different numbers of replicas.

    8 micro-batches, replicas (4, 2, 1)

                replica 0          1        2     3
    stage 0     0 1                2 3      4 5   6 7       each stage cuts the row of micro-batches
    stage 1     0 2 1 3            4 6 5 7                  among its replicas
    stage 2     0 2 4 6 1 3 5 7

A replica has micro-batches in a row, and so rows of the batch in a row. Each micro-batch goes, as
a whole, from the replica that has it in one stage to the one that has it in the next, and its
gradient comes back the same way: so a message carries one micro-batch, and is named after it.

They are computed in **waves**: wave n is the n-th micro-batch of each replica of the stage with the
most. So a stage with one replica is fed by all four of the stage before it from the first wave on,
and not first by replica 0 alone, at a quarter of its pace.

All stages go through the waves in one order, and each replica through what it has of them. So
whatever a pass waits for stands before it in one order of all passes, and no replicas wait for each
other in a ring. For 1F1B that needs the waves, too: by its own micro-batches alone, a stage could
wait for more of them than the stage before it sends before it gets gradients back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dayfly.batches import share


@dataclass(frozen=True, slots=True)
class Routes:
    """How stages share out some micro-batches, numbered from 0.

    Args:
        replicas: of each stage.
        total: micro-batches.
        in_order: every replica computes its own in the order of their numbers: each is a wave.
    """

    replicas: Sequence[int]
    total: int
    in_order: bool = False

    def own(self, stage: int, replica: int) -> range:
        """The micro-batches of a stage's replica."""
        return share(self.total, replica, self.replicas[stage])

    def owner(self, stage: int, number: int) -> int:
        """The replica of a stage that has a micro-batch; the inverse of `own`."""
        return ((number + 1) * self.replicas[stage] - 1) // self.total

    def waves(self, stage: int, replica: int) -> tuple[tuple[int, ...], ...]:
        """What a replica has of each wave, in the order of computing; of some it has nothing."""
        own = self.own(stage, replica)
        if self.in_order:
            return tuple((number,) if number in own else () for number in range(self.total))
        most = max(self.replicas)
        rows = [share(self.total, one, most) for one in range(most)]
        return tuple(
            tuple(row[wave] for row in rows if wave < len(row) and row[wave] in own)
            for wave in range(max(map(len, rows)))
        )
