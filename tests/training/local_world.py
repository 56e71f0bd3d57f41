"""N replicas of local SGD in one process: their flat buffers summed by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dayfly.job import Job
from dayfly.training.averaging import Averaging, RoundSum
from dayfly.training.devices import CPU
from dayfly.training.forward import SAMPLES, Weighting
from dayfly.training.local_sgd import LocalSgd
from dayfly.training.order import Epochs, Rounds
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Slices
from dayfly.training.sources import DatasetSource
from tests.training.jobs import sum_by_hand


class LocalWorld:
    """Replicas that take rounds. after_merge: done to every replica after each average."""

    def __init__(
        self,
        job: Job,
        dataset: Any,
        workers: int,
        k: int | None,
        after_merge: Callable[[Replica], None] = lambda replica: None,
        device: torch.device = CPU,
        weighting: Weighting = SAMPLES,
        make: Callable[[Replica, int], RoundSum] = Averaging,
    ) -> None:
        self.job = job
        self.workers = workers
        self.epochs = Epochs(len(dataset), job.batch_size, job.seed)
        self.rounds = Rounds(self.epochs, k)
        self.source = DatasetSource(dataset, job.seed)
        self.after_merge = after_merge
        self.replicas: list[Replica] = []
        self.locals: list[LocalSgd] = []
        for rank in range(workers):
            replica = Replica(job, device=device)
            fresh, tensors = replica.state()
            kept = {name: tensor.clone() for name, tensor in tensors.items()}
            own = LocalSgd(job, replica, self.epochs, self.rounds, rank, workers, weighting, make)
            replica.load_state(fresh, kept)
            self.replicas.append(replica)
            self.locals.append(own)
        self.at = 0

    def train_alone(self, rank: int, steps: Sequence[int]) -> None:
        """One replica's steps of a round."""
        slices = Slices(self.source, self.epochs, rank, self.workers, self.job.accumulate)
        try:
            for step in steps:
                self.locals[rank].step(slices.pieces(step), step)
        finally:
            slices.close()

    def round(self) -> list[float]:
        """One round of all; returns the mean loss of each of its batches."""
        steps = self.rounds.steps(self.at)
        for rank, own in enumerate(self.locals):
            own.begin_round()
            self.train_alone(rank, steps)
        return self.merge()

    def merge(self) -> list[float]:
        """All replicas become their mean."""
        for own in self.locals:
            own.contribute(self.at, Wishes())
        total = sum_by_hand([own.round_sum.data for own in self.locals])
        losses: list[float] = []
        for own, replica in zip(self.locals, self.replicas, strict=True):
            own.round_sum.data.copy_(total)
            losses = list(own.adopt(self.at)[0])
            self.after_merge(replica)
        self.at = self.rounds.steps(self.at).stop
        return losses
