"""Local SGD (KubeML section 3.5): replicas train by themselves and are averaged every k steps.

In each step a replica computes the gradient of its own slice of the global batch, the mean over its
own samples, and takes the step alone. After a round of k steps, or of an epoch, model and optimizer
become the mean of the replicas', weighted by their samples; or an outer optimizer takes a step by
what the parameters moved by (`training.outer`), and each replica keeps its own optimizer's state.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import nn

from dayfly.job import Job
from dayfly.training.averaging import Averaging, RoundSum
from dayfly.training.devices import to_device
from dayfly.training.forward import SAMPLES, Weighting, Weights, divide, forward
from dayfly.training.logged import NUMBERS, Sums, added, by_name, numbers_of
from dayfly.training.order import Epochs, Rounds, share
from dayfly.training.randomness import DROPOUT, seed_generators
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Piece
from dayfly.training.state import Tensors, decode, encode


class LocalSgd:
    """The steps of a replica between two exchanges, of which `round_sum` has what is summed.

    Make it of a replica whose state is loaded afterwards (see `Averaging`). What a step measures is
    a row, in shares of its batch:

        | loss | its weight, if it has one of its own | two numbers of each value that is logged |

    Args:
        make: of the replica, and of room for so many numbers, what a round sums.

    Attributes:
        logged: sums of each step of the round that was adopted last, as shares of its batch.
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
        make: Callable[[Replica, int], RoundSum] = Averaging,
    ) -> None:
        self._job = job
        self._replica = replica
        self._epochs = epochs
        self._rounds = rounds
        self._rank = rank
        self._world_size = world_size
        self._weighting = weighting
        self._rows: list[list[float]] = []
        self._own_weights = 1 if weighting.own else 0
        self._width = 1 + self._own_weights + NUMBERS * len(weighting.logged)
        self.round_sum = make(replica, rounds.longest * self._width)
        self.logged: list[Sums] = []

    @property
    def done(self) -> int:
        """Steps of the round that this replica has taken."""
        return len(self._rows)

    @property
    def finite(self) -> bool:
        """Whether the losses of these steps are."""
        return all(math.isfinite(row[0]) for row in self._rows)

    def begin_round(self) -> None:
        """All replicas are equal."""
        self.round_sum.begin()
        self._rows = []

    @property
    def own_logged(self) -> Sums:
        """Values that the latest step logged, of the worker's own slice."""
        return by_name(self._weighting.logged, self._rows[-1][1 + self._own_weights :])

    def step(self, pieces: Iterable[Piece], step: int) -> float | None:
        """Take a step alone; returns the mean loss of the own slice, None if it is empty."""
        model, own = self._replica.model, self._own(step)
        model.train()
        for parameter in model.parameters():
            parameter.grad = None
        total = 0.0
        names = self._weighting.logged
        logged: list[list[float]] = []
        weights = Weights(self._weighting)
        for piece in pieces:
            seed_generators(DROPOUT, self._job.seed, step, self._rank, piece.number)
            batch = to_device(piece.batch, self._replica.device)
            passed = forward(self._job, model, batch, self._weighting, self._replica.precision)
            weight = weights.part(piece.samples / own, passed.weight, piece.samples)
            if weight:
                (passed.loss * weight).backward()  # type: ignore[no-untyped-call]
                total += passed.loss.item() * weight
            logged.append(numbers_of(names, passed.logged, piece.samples))
        batch = len(self._epochs.batch(step))
        row = [total, weights.weight][: 1 + self._own_weights]
        sums = added(logged, names)
        self._rows.append([*(own / batch * one for one in row), *(one / batch for one in sums)])
        if own:
            total = divide(total, weights.tail, self._gradients)
            if self._job.clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), cast("float", self._job.clip_norm))
            self._replica.step()
        self._end_step(took=own > 0)
        return total if own else None

    def _gradients(self) -> list[torch.Tensor]:
        return [p.grad for p in self._replica.model.parameters() if p.grad is not None]

    def skip(self, step: int) -> None:
        """Pass over a step whose round's mean is in the message log: only schedules move on."""
        self._end_step(took=False)

    def weight(self, first: int) -> float:
        """Returns this replica's share of the samples of the round that begins with a step."""
        steps = self._rounds.steps(first)
        own = sum(self._own(step) for step in steps)
        return own / sum(len(self._epochs.batch(step)) for step in steps)

    @property
    def numbers(self) -> list[float]:
        """What the round's steps measured so far, weighted."""
        return [number for row in self._rows for number in row]

    def contribute(self, first: int, wishes: Wishes) -> None:
        """Write this replica's part of the sum of the round that began with step `first`."""
        self.round_sum.contribute(self.weight(first), self.numbers, wishes)

    def adopt(self, first: int) -> tuple[Sequence[float], Wishes]:
        """Go on from the sum; returns the mean loss of each batch of the round, and what to do."""
        numbers, wishes = self.round_sum.adopt()
        self._replica.follow(len(self._rounds.steps(first)))
        return self.losses(first, numbers), wishes

    def losses(self, first: int, numbers: Sequence[float]) -> Sequence[float]:
        """Returns the mean loss of each batch of a round, and notes what its steps logged.

        Args:
            first: step of the round.
            numbers: summed over the replicas.
        """
        steps, width = len(self._rounds.steps(first)), self._width
        rows = [numbers[width * step : width * (step + 1)] for step in range(steps)]
        measured = 1 + self._own_weights
        self.logged = [by_name(self._weighting.logged, row[measured:]) for row in rows]
        losses = [row[0] for row in rows]
        if self._weighting.own:
            losses = [
                loss / row[1] if row[1] else math.nan
                for loss, row in zip(losses, rows, strict=True)
            ]
        return losses

    def state(self) -> tuple[Any, Tensors]:
        """State within a round, as JSON and tensors: this replica's alone."""
        tree, tensors = self._replica.state()
        summed, more = self.round_sum.state()
        rows = encode(self._rows, "rows", {})
        return {"replica": tree, "rows": rows, "sum": summed}, {**tensors, **more}

    def load_state(self, tree: Any, tensors: Tensors) -> None:
        """Go on within a round, as the replica whose `state` this is."""
        self._replica.load_state(tree["replica"], tensors)
        self._rows = decode(tree["rows"], {})
        self.round_sum.load_state(tree["sum"], tensors)

    def _end_step(self, *, took: bool) -> None:
        with warnings.catch_warnings():
            if not took:  # torch warns of a scheduler that goes on without its optimizer
                warnings.simplefilter("ignore", UserWarning)
            self._replica.end_step(alone=True)

    def _own(self, step: int) -> int:
        return len(share(len(self._epochs.batch(step)), self._rank, self._world_size))
