"""Synchronous data parallel (bsp): replicas are equal after every step.

Every replica computes the gradient of its slice, the flat buffers are summed over all workers, and
every replica applies the same sum; so replicas are equal, bit for bit, after every step, the moving
statistics of BatchNorm included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import nn

from dayfly.job import Job
from dayfly.training.devices import to_device
from dayfly.training.flat import FlatBuffer
from dayfly.training.forward import SAMPLES, Weighting, Weights, divide, forward
from dayfly.training.logged import NUMBERS, Given, added, numbers_of
from dayfly.training.randomness import DROPOUT, seed_generators
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Piece


class Synchronous:
    """The step of a replica; `flat.data` is what the all-reduce sums, bucket by bucket.

    The tail is the loss and two wishes, of a loss with a denominator of its own two numbers more
    (see `training.forward`), and two for each value that the step logs (see `training.logged`).

    Of a job with several phases each is one of these, with its optimizer's parameters:

        phase 0   compute | sum | apply |
        phase 1                         | compute | sum | apply | end of the step

    Args:
        apart: whether what is no gradient is a bucket of its own.
        phase: its name; "": the only one.

    Attributes:
        own_loss: this worker's share of the loss of the step that it computed last.
        logged: sums of what the step that was applied last logs, a share of the batch's samples.
    """

    def __init__(
        self,
        job: Job,
        replica: Replica,
        *,
        apart: bool = False,
        weighting: Weighting = SAMPLES,
        phase: str = "",
    ) -> None:
        self._job = job.phase(phase)
        self._phase = phase
        self._number = job.phases.index(phase)
        self._last = self._number == len(job.phases) - 1
        self._replica = replica
        self._weighting = weighting
        tail = 3 + len(Weights(weighting).tail) + NUMBERS * len(weighting.logged)
        groups = replica.optimizers[phase].param_groups if phase else ()
        self._others: list[nn.Parameter] = []
        own = None
        if phase:
            own = [parameter for group in groups for parameter in group["params"]]
            mine = {id(parameter) for parameter in own}
            self._others = [
                p for p in replica.model.parameters() if p.requires_grad and id(p) not in mine
            ]
        self.flat = FlatBuffer(replica.model, tail=tail, apart=apart, of=own)
        self.own_loss = 0.0
        self.logged: list[float] = []

    def compute(
        self,
        pieces: Iterable[Piece],
        batch_samples: int,
        step: int,
        leaf: int,
        wishes: Wishes,
        ready: Callable[[int], None] = lambda bucket: None,
    ) -> None:
        """Forward and backward of a leaf of a batch of `batch_samples`: a worker's slice, or one of
        those that it has in a row.

        Args:
            leaf: its number in the batch; without virtual workers the rank.
            ready: called with each bucket but the last, in their order, as soon as it is whole.
        """
        model, flat, replica = self._replica.model, self.flat, self._replica
        model.train()
        flat.begin()
        samples = 0
        losses: list[tuple[torch.Tensor, float]] = []
        logged: list[tuple[Mapping[str, Given], int]] = []
        weights = Weights(self._weighting)
        for piece in pieces:
            later = (self._number,) if self._number else ()
            seed_generators(DROPOUT, self._job.seed, step, leaf, piece.number, *later)
            batch = to_device(piece.batch, replica.device)
            with _only(self._others):
                passed = forward(self._job, model, batch, self._weighting, replica.precision)
                weight = weights.part(piece.samples / batch_samples, passed.weight, piece.samples)
                if piece.last:
                    flat.announce(ready)
                if weight:  # else all its targets are ignored: torch's loss is NaN
                    (passed.loss * (weight * replica.scale)).backward()  # type: ignore[no-untyped-call]
                    losses.append((passed.loss.detach(), weight))
            samples += piece.samples
            logged.append((passed.logged, piece.samples))
        if not samples:
            flat.announce(ready)
        flat.end(samples / batch_samples)
        # Only now: to ask a GPU for a number is to wait for it, and buckets may go out meanwhile.
        self.own_loss = sum((loss.item() * weight for loss, weight in losses), 0.0)
        names = self._weighting.logged
        sums = added((numbers_of(names, given, its) for given, its in logged), names)
        shares = [one / batch_samples for one in sums]
        tail = [self.own_loss, wishes.checkpoint, wishes.stop, *weights.tail, *shares]
        flat.tail.copy_(torch.tensor(tail))

    def apply(self) -> tuple[float, Wishes]:
        """Take the summed step; returns the batch's mean loss and what is to be done after it."""
        self.flat.spread()
        loss, checkpoint, stop, *rest = self.flat.tail.tolist()
        own = len(rest) - NUMBERS * len(self._weighting.logged)
        weights, self.logged = rest[:own], rest[own:]
        loss = divide(loss, weights, self.flat.found)
        replica = self._replica
        if replica.unscale(self.flat.found()):
            if self._job.clip_norm is not None:
                nn.utils.clip_grad_norm_(self.flat.parameters, cast("float", self._job.clip_norm))
            replica.step(self._phase)
        else:
            replica.overflowed = True
        if self._last:
            replica.end_step()
        return loss, Wishes(checkpoint > 0, stop > 0)


@contextmanager
def _only(others: Sequence[nn.Parameter]) -> Iterator[None]:
    """No gradients of others than a phase's own are computed inside."""
    for parameter in others:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)
