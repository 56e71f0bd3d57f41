"""Local SGD (KubeML section 3.5): replicas train by themselves and are averaged every k steps.

In each step a replica computes the gradient of its own slice of the global batch, the mean over its
own samples, and takes the step alone. After a round of k steps, or of an epoch, model and optimizer
become the mean of the replicas', weighted by their samples.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import torch
from torch import nn

from dayfly.job import Job
from dayfly.training.devices import to_device
from dayfly.training.forward import SAMPLES, Weighting, Weights, divide, forward
from dayfly.training.logged import NUMBERS, Sums, added, by_name, numbers_of
from dayfly.training.moves import Moves
from dayfly.training.order import Epochs, Rounds, share
from dayfly.training.randomness import DROPOUT, seed_generators
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Piece
from dayfly.training.state import Tensors, decode, encode

#: A mean of equal whole numbers, such as Adam's count of steps, may miss it by this share.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an optimizer keeps a number or tensor: of which parameter, under which key.

    Args:
        like: a number, or a tensor of that form, which takes no memory.
    """

    parameter: int
    key: str
    like: Any

    @property
    def numel(self) -> int:
        return self.like.numel() if isinstance(self.like, torch.Tensor) else 1


class Averaging:
    """The flat buffer of a replica, on the CPU wherever that is.

        shape (P + B + S + U + numbers + 2,)
        P parameters | B moves of buffers | S numbers of the optimizer's state
        U one number a parameter: the weight of the ranks that have state of it
        what a round's steps measured | the weight of the samples, and two wishes

    Make it of a replica whose state is loaded afterwards: it takes a step without gradients, to see
    what the optimizer keeps.

    Args:
        numbers: room for what a round's steps measured.
    """

    def __init__(self, replica: Replica, numbers: int) -> None:
        if list(replica.optimizers) != [""]:
            raise ValueError("only models with one optimizer are averaged")
        self._optimizer = replica.optimizers[""]
        self._parameters = [p for p in replica.model.parameters() if p.requires_grad]
        self._buffer_moves = Moves(replica.model)
        self._places = list(_places(self._optimizer, self._parameters))
        dtypes = [p.dtype for p in self._parameters]
        kept = [place.like for place in self._places if isinstance(place.like, torch.Tensor)]
        dtypes += [tensor.dtype for tensor in kept if tensor.dtype.is_floating_point]
        sizes = [p.numel() for p in self._parameters]
        moving = self._buffer_moves.sizes
        state = [place.numel for place in self._places]
        users = len(self._parameters)
        rest = (users, numbers, 2)
        whole = [*sizes, *moving, *state, *rest]
        self.data = torch.zeros(
            sum(whole), dtype=reduce(torch.promote_types, dtypes, torch.float32)
        )
        *views, self._has, self._numbers, self._wishes = torch.split(self.data, whole)
        self._models = views[:users]
        self._moves = views[users : users + len(moving)]
        self._states = views[users + len(moving) :]

    def begin(self) -> None:
        """A round begins: all replicas are equal. Where the model's buffers are is noted."""
        self._buffer_moves.begin()

    def contribute(self, weight: float, numbers: Sequence[float], wishes: Wishes) -> None:
        """Write this replica's part of the mean.

        Args:
            numbers: what the round's steps measured, weighted already.
        """
        self.data.zero_()
        self._buffer_moves.measure(self._moves, weight)
        if weight:
            for parameter, into in zip(self._parameters, self._models, strict=True):
                into.copy_(parameter.detach().reshape(-1)).mul_(weight)
            for place, into in zip(self._places, self._states, strict=True):
                state = self._optimizer.state.get(self._parameters[place.parameter], {})
                value = state.get(place.key)
                if value is not None:
                    into.copy_(torch.as_tensor(value).reshape(-1)).mul_(weight)
                    self._has[place.parameter] = weight
        self._numbers[: len(numbers)] = torch.tensor(numbers, dtype=self.data.dtype)
        self._wishes.copy_(torch.tensor([wishes.checkpoint, wishes.stop]))

    @torch.no_grad()
    def adopt(self) -> tuple[list[float], Wishes]:
        """Become the mean; returns the numbers summed over the replicas, and what to do now."""
        for parameter, mean in zip(self._parameters, self._models, strict=True):
            parameter.grad = None
            parameter.copy_(mean.view_as(parameter))
        self._buffer_moves.rewind()
        self._buffer_moves.apply(self._moves)
        has = self._has.tolist()
        for place, mean in zip(self._places, self._states, strict=True):
            if has[place.parameter]:
                mean.div_(has[place.parameter])
                state = self._optimizer.state[self._parameters[place.parameter]]
                state[place.key] = _like(place.like, mean)
        # In the parameters' order on all replicas, whichever had state first: equal to the letter.
        for parameter in self._parameters:
            if parameter in self._optimizer.state:
                self._optimizer.state[parameter] = self._optimizer.state.pop(parameter)
        checkpoint, stop = self._wishes.tolist()
        return self._numbers.tolist(), Wishes(checkpoint > 0, stop > 0)

    @property
    def start(self) -> list[torch.Tensor]:
        """Where the model's buffers were when the round began."""
        return self._buffer_moves.before

    @start.setter
    def start(self, before: list[torch.Tensor]) -> None:
        """Go on in a round that began there."""
        self._buffer_moves.began_at(before)


def _places(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]
) -> Iterator[_Place]:
    """What an optimizer keeps of each parameter once it has taken a step."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for number, parameter in enumerate(parameters):
        parameter.grad = None
        for key, value in optimizer.state.get(parameter, {}).items():
            number_like = isinstance(value, (int, float, torch.Tensor))
            if number_like and not isinstance(value, bool):
                tensor = isinstance(value, torch.Tensor)
                like = value.new_zeros(()).expand(value.shape) if tensor else value
                yield _Place(number, key, like)


def _like(like: Any, mean: torch.Tensor) -> Any:
    """A mean as the optimizer keeps it; a mean of equal whole numbers is that number."""
    if mean.numel() == 1:
        nearest = mean.round()
        if (mean - nearest).abs() <= _ROUNDING * nearest.abs():
            mean = nearest
    if isinstance(like, torch.Tensor):
        whole = mean if like.dtype.is_floating_point else mean.round()
        return whole.to(like.device, like.dtype, copy=True).view(like.shape)
    return type(like)(mean.round().item() if isinstance(like, int) else mean.item())


class LocalSgd:
    """The steps of a replica between two averages; `averaging.data` is what the all-reduce sums.

    Make it of a replica whose state is loaded afterwards (see `Averaging`). What a step measures is
    a row, in shares of its batch:

        | loss | its weight, if it has one of its own | two numbers of each value that is logged |

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
        self.averaging = Averaging(replica, rounds.longest * self._width)
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
        self.averaging.begin()
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

    def contribute(self, first: int, wishes: Wishes) -> None:
        """Write this replica's part of the mean of the round that began with step `first`."""
        steps = self._rounds.steps(first)
        own = sum(self._own(step) for step in steps)
        every = sum(len(self._epochs.batch(step)) for step in steps)
        numbers = [number for row in self._rows for number in row]
        self.averaging.contribute(own / every, numbers, wishes)

    def adopt(self, first: int) -> tuple[Sequence[float], Wishes]:
        """Become the mean; returns the mean loss of each batch of the round, and what to do."""
        numbers, wishes = self.averaging.adopt()
        steps, width = len(self._rounds.steps(first)), self._width
        self._replica.follow(steps)
        rows = [numbers[width * step : width * (step + 1)] for step in range(steps)]
        measured = 1 + self._own_weights
        self.logged = [by_name(self._weighting.logged, row[measured:]) for row in rows]
        losses = [row[0] for row in rows]
        if self._weighting.own:
            losses = [
                loss / row[1] if row[1] else math.nan
                for loss, row in zip(losses, rows, strict=True)
            ]
        return losses, wishes

    def state(self) -> tuple[Any, Tensors]:
        """State within a round, as JSON and tensors: this replica's alone."""
        tree, tensors = self._replica.state()
        start = {f"start.{n}": tensor for n, tensor in enumerate(self.averaging.start)}
        return {"replica": tree, "rows": encode(self._rows, "rows", {})}, {**tensors, **start}

    def load_state(self, tree: Any, tensors: Tensors) -> None:
        """Go on within a round, as the replica whose `state` this is."""
        self._replica.load_state(tree["replica"], tensors)
        self._rows = decode(tree["rows"], {})
        count = sum(name.startswith("start.") for name in tensors)
        self.averaging.start = [tensors[f"start.{n}"] for n in range(count)]

    def _end_step(self, *, took: bool) -> None:
        with warnings.catch_warnings():
            if not took:  # torch warns of a scheduler that goes on without its optimizer
                warnings.simplefilter("ignore", UserWarning)
            self._replica.end_step(alone=True)

    def _own(self, step: int) -> int:
        return len(share(len(self._epochs.batch(step)), self._rank, self._world_size))
