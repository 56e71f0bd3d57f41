"""Protocols whose workers each hold all of the model, and how these validate.

blocks    |0 1 2 3|4 5 6|7 8 9|     of each worker some; sums: a row a block
metrics   rank 0 has them, of what all others hand in; they travel with the sums
"""

from __future__ import annotations

from abc import abstractmethod

import torch

from dayfly.batches import block_shares, covered
from dayfly.job import Job
from dayfly.runs.catch_up import Sum
from dayfly.runs.protocols.base import Protocol
from dayfly.runs.protocols.gathering import Gathering
from dayfly.training.order import Rounds
from dayfly.training.replica import Replica


class WholeModel(Protocol):
    """A protocol whose workers each hold all of the model."""

    @staticmethod
    @abstractmethod
    def round_bytes(job: Job, replica: Replica, rounds: Rounds) -> int:
        """Size of what a round sums over the workers; may change the replica."""

    def validate(self, step: int) -> dict[str, float | None]:
        """Measures the model after an epoch's last step: each worker its blocks, summed by all.

        Rank 0 computes the metrics, of outputs and targets that all others hand in.
        """
        here, evaluation = self.station, self.station.evaluation
        here.places.operation = "val"
        rank, root = here.task.rank, 0
        blocks = len(evaluation.blocks)
        sums = torch.cat([evaluation.empty(blocks), evaluation.no_values()])
        numbers = len(sums) - len(evaluation.metrics)
        table, values = sums[:numbers], sums[numbers:]
        one = Sum(here.engine, "val", sums)
        (stored,) = here.catch_up.stored(step, [one])
        gathering = Gathering(here, root, step)
        if one.reads_buffer(stored):
            shares = block_shares(evaluation.blocks, here.task.world_size)
            samples = [covered(share) for share in shares]
            whole = range(here.validation.samples)
            rows = evaluation.rows(whole if rank == root else samples[rank])
            with here.spans.during("validate"):
                table.copy_(
                    evaluation.measure(here.replica.model, here.validation, shares[rank], rows)
                )
            here.faults.at(step, "evaluated")
            if rows is not None:
                if rank == root:
                    others = {r: some for r, some in enumerate(samples) if r != root}
                    gathering.collect(0, rows, others)
                    values.copy_(evaluation.values(rows))
                else:
                    gathering.hand_in(0, rows, samples[rank])
            here.faults.at(step, "gathered")
        one.take(step, stored)
        gathering.drop()
        return evaluation.record(table, values)
