"""A job whose cuts are compared with the uncut model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dayfly.job import Job
from dayfly.training.stages.forms import BoundaryForm
from dayfly.wire.channels.files import FileChannel
from tests.pipelines.by_hand import measure_whole, train_whole
from tests.pipelines.taken import NEAR, Taken, check_equal
from tests.pipelines.trained import boundaries, pipelining, train_cut
from tests.training.jobs import Pairs


def score(outputs: Any, targets: Any) -> torch.Tensor:
    """A metric: the mean score of the right class."""
    found: torch.Tensor = outputs.gather(1, targets.unsqueeze(1)).mean()
    return found


@dataclass
class Case:
    """A job with its data, what passes its model's boundaries, and what the uncut model gives.

    whole: by the number of replicas: the steps, and what is measured after them.
    """

    job: Job
    data: Pairs
    unseen: Pairs
    steps: int
    micro_batches: int
    forms: tuple[BoundaryForm, ...]
    whole: dict[int, tuple[list[Taken], dict[str, float]]]

    @classmethod
    def of(
        cls, job: Job, data: Pairs, unseen: Pairs, *, micro_batches: int, steps: int = 2
    ) -> Case:
        """Train it uncut, with a replica and with two."""
        whole = {}
        for replicas in (1, 2):
            model, taken = train_whole(job, data, steps, replicas, micro_batches)
            whole[replicas] = taken, measure_whole(job, model, unseen)
        return cls(job, data, unseen, steps, micro_batches, boundaries(job, data), whole)

    def check(
        self,
        cut: Sequence[int],
        replicas: int,
        schedule: str,
        kind: type[FileChannel] = FileChannel,
    ) -> float:
        """A cut gives the same at every rank. Returns the largest difference of the training."""
        line = pipelining(self.forms, cut, replicas, self.micro_batches, schedule)
        ranks, measured = train_cut(self.job, self.data, self.unseen, self.steps, line, kind)
        taken, right = self.whole[replicas]
        apart = check_equal(ranks, taken, replicas)
        for found in measured:
            assert found == pytest.approx(right, rel=0, abs=NEAR)
        return apart
