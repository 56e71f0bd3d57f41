"""Local SGD (KubeML section 3.5): replicas train by themselves and are averaged every k steps.

In each step a replica computes the gradient of its own slice of the global batch, the mean over its
own samples, and takes the step alone. After a round of k steps, or of an epoch, model and optimizer
become the mean of the replicas', weighted by their samples (averaging.py).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from dayfly.job import Job
from dayfly.training.averaging import Averaging
from dayfly.training.devices import to_device
from dayfly.training.forward import forward
from dayfly.training.order import Epochs, Rounds, share
from dayfly.training.randomness import DROPOUT, seed_generators
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Piece
from dayfly.training.state import Tensors, decode, encode
from dayfly.training.weighting import SAMPLES, Weighting, Weights, divide


class LocalSgd:
    """The steps of a replica between two averages; `averaging.data` is what the all-reduce sums.

    Make it of a replica whose state is loaded afterwards (see `Averaging`).
    """

    def __init__(
        self,
        job: Job,
        replica: Replica,
        epochs: Epochs,
        rounds: Rounds,
        rank: int,
        world_size: int,
        weighting: Weighting = SAMPLES,
    ) -> None:
        self._job = job
        self._replica = replica
        self._epochs = epochs
        self._rounds = rounds
        self._rank = rank
        self._world_size = world_size
        self._weighting = weighting
        self._losses: list[float] = []
        self._weights: list[float] = []
        self.averaging = Averaging(replica, rounds.longest * (2 if weighting.own else 1))

    @property
    def done(self) -> int:
        """Steps of the round that this replica has taken."""
        return len(self._losses)

    @property
    def finite(self) -> bool:
        """Whether the losses of these steps are."""
        return all(map(math.isfinite, self._losses))

    def begin_round(self) -> None:
        """All replicas are equal."""
        self.averaging.begin()
        self._losses = []
        self._weights = []

    def step(self, pieces: Iterable[Piece], step: int) -> float | None:
        """Take a step alone; returns the mean loss of the own slice, None if it is empty."""
        model, own = self._replica.model, self._own(step)
        model.train()
        for parameter in model.parameters():
            parameter.grad = None
        total = 0.0
        weights = Weights(self._weighting)
        for piece in pieces:
            seed_generators(DROPOUT, self._job.seed, step, self._rank, piece.number)
            batch = to_device(piece.batch, self._replica.device)
            passed = forward(self._job, model, batch, self._weighting)
            weight = weights.part(piece.samples / own, passed.weight, piece.samples)
            if weight:
                (passed.loss * weight).backward()  # type: ignore[no-untyped-call]
                total += passed.loss.item() * weight
        of_batch = own / len(self._epochs.batch(step))
        self._losses.append(total * of_batch)
        self._weights.append(weights.weight * of_batch)
        if own:
            total = divide(total, weights.tail, self._gradients)
            if self._job.clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), self._job.clip_norm)
            self._replica.step()
        self._end_step(took=own > 0)
        return total if own else None

    def _gradients(self) -> list[torch.Tensor]:
        return [p.grad for p in self._replica.model.parameters() if p.grad is not None]

    def skip(self, step: int) -> None:
        """Pass over a step whose round's mean is in the message log: only schedules move on."""
        self._end_step(took=False)

    def contribute(self, first: int, wishes: Wishes) -> None:
        """Write this replica's part of the mean of the round that began with step `first`."""
        steps = self._rounds.steps(first)
        own = sum(self._own(step) for step in steps)
        every = sum(len(self._epochs.batch(step)) for step in steps)
        losses = self._losses
        if self._weighting.own:  # each in its half
            unused = [0.0] * (self._rounds.longest - len(losses))
            losses = [*losses, *unused, *self._weights]
        self.averaging.contribute(own / every, losses, wishes)

    def adopt(self, first: int) -> tuple[Sequence[float], Wishes]:
        """Become the mean; returns the mean loss of each batch of the round, and what to do."""
        sums, wishes = self.averaging.adopt()
        losses = sums[: len(self._rounds.steps(first))]
        if self._weighting.own:
            weights = sums[self._rounds.longest :]
            losses = [
                loss / weight if weight else math.nan
                for loss, weight in zip(losses, weights, strict=False)
            ]
        return losses, wishes

    def state(self) -> tuple[Any, Tensors]:
        """State within a round, as JSON and tensors: this replica's alone."""
        tree, tensors = self._replica.state()
        start = {f"start.{n}": tensor for n, tensor in enumerate(self.averaging.start)}
        own = {"losses": self._losses, "weights": self._weights}
        kept = {name: encode(values, name, {}) for name, values in own.items()}
        return {"replica": tree, **kept}, {**tensors, **start}

    def load_state(self, tree: Any, tensors: Tensors) -> None:
        """Go on within a round, as the replica whose `state` this is."""
        self._replica.load_state(tree["replica"], tensors)
        self._losses = decode(tree["losses"], {})
        self._weights = decode(tree["weights"], {})
        count = sum(name.startswith("start.") for name in tensors)
        self.averaging.start = [tensors[f"start.{n}"] for n in range(count)]

    def _end_step(self, *, took: bool) -> None:
        with warnings.catch_warnings():
            if not took:  # torch warns of a scheduler that goes on without its optimizer
                warnings.simplefilter("ignore", UserWarning)
            self._replica.end_step()

    def _own(self, step: int) -> int:
        return len(share(len(self._epochs.batch(step)), self._rank, self._world_size))
