"""Synchronous data parallel (bsp): replicas are equal after every step.

Every replica computes the gradient of its slice, the flat buffers are summed over all workers, and
every replica applies the same sum; so replicas are equal, bit for bit, after every step, the moving
statistics of BatchNorm included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from dayfly.job import Job
from dayfly.train.devices import to_device
from dayfly.train.flat import FlatBuffer
from dayfly.train.randomness import DROPOUT, seed_generators
from dayfly.train.replica import Replica, Wishes, forward
from dayfly.train.slices import Piece


class Synchronous:
    """The step of a replica; `flat.data` is what the all-reduce sums, bucket by bucket.

    apart: whether what is no gradient is a bucket of its own. own_loss: this worker's share of the
    loss of the step that it computed last.
    """

    def __init__(self, job: Job, replica: Replica, *, apart: bool = False) -> None:
        self._job = job
        self._replica = replica
        self.flat = FlatBuffer(replica.model, tail=3, apart=apart)
        self.own_loss = 0.0

    def compute(
        self,
        pieces: Iterable[Piece],
        batch_samples: int,
        step: int,
        rank: int,
        wishes: Wishes,
        ready: Callable[[int], None] = lambda bucket: None,
    ) -> None:
        """Forward and backward of this worker's slice of a batch of `batch_samples`.

        ready: called with each bucket but the last, in their order, as soon as it is whole.
        """
        model, flat = self._replica.model, self.flat
        model.train()
        flat.begin()
        samples = 0
        losses: list[tuple[torch.Tensor, float]] = []
        for piece in pieces:
            seed_generators(DROPOUT, self._job.seed, step, rank, piece.number)
            loss, _ = forward(self._job, model, to_device(piece.batch, self._replica.device))
            weight = piece.samples / batch_samples
            if piece.last:
                flat.announce(ready)
            (loss * weight).backward()  # type: ignore[no-untyped-call]
            losses.append((loss.detach(), weight))
            samples += piece.samples
        if not samples:
            flat.announce(ready)
        flat.end(samples / batch_samples)
        # Only now: to ask a GPU for a number is to wait for it, and buckets may go out meanwhile.
        self.own_loss = sum((loss.item() * weight for loss, weight in losses), 0.0)
        flat.tail.copy_(torch.tensor([self.own_loss, wishes.checkpoint, wishes.stop]))

    def apply(self) -> tuple[float, Wishes]:
        """Take the summed step; returns the batch's mean loss and what is to be done after it."""
        self.flat.spread()
        if self._job.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.flat.parameters, self._job.clip_norm)
        self._replica.step()
        self._replica.end_step()
        loss, checkpoint, stop = self.flat.tail.tolist()
        return loss, Wishes(checkpoint > 0, stop > 0)
