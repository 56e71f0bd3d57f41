"""What replicas that trained apart sum at the end of a round: the buffer, and their mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import torch
from torch import nn

from dayfly.training.moves import Moves
from dayfly.training.replica import Replica, Wishes
from dayfly.training.state import Tensors
from dayfly.wire.packing import Packing

#: A mean of equal whole numbers, such as Adam's count of steps, may miss it by this share.
_ROUNDING = 1e-5
#: How the names begin of where the model's buffers were, in a state within a round.
_START = "start."


class RoundSum(ABC):
    """The flat buffer of a replica that a round's end sums, on the CPU wherever the replica is.

        shape (P + B + M + numbers + 2,)
        P as many as parameters | B moves of buffers | M more of a subclass's
        what a round's steps measured | the weight of the samples, and two wishes

    Args:
        replica: with one optimizer.
        numbers: room for what a round's steps measured.
        more: sizes of the subclass's own parts.
        dtypes: that the buffer has to hold beside the parameters'.

    Attributes:
        remembers: whether what a replica contributes depends on its earlier rounds, beside the
            sums; then a worker that catches up has to compute its own.
        data: the buffer.
    """

    remembers: ClassVar[bool] = False

    def __init__(
        self,
        replica: Replica,
        numbers: int,
        more: Sequence[int] = (),
        dtypes: Sequence[torch.dtype] = (),
    ) -> None:
        self._replica = replica
        self._parameters = _trained(replica)
        self._buffer_moves = Moves(replica.model)
        sizes = [p.numel() for p in self._parameters]
        moving = self._buffer_moves.sizes
        whole = [*sizes, *moving, *more, numbers, 2]
        every = [*(p.dtype for p in self._parameters), *dtypes]
        self.data = torch.zeros(sum(whole), dtype=reduce(torch.promote_types, every, torch.float32))
        *views, self._numbers, self._wishes = torch.split(self.data, whole)
        users = len(self._parameters)
        self._models = views[:users]
        self._moves = views[users : users + len(moving)]
        self._more = views[users + len(moving) :]

    @property
    def parts(self) -> tuple[tuple[torch.Tensor, Packing | None], ...]:
        """What is summed, one after another, each with how it travels."""
        return ((self.data, None),)

    def begin(self) -> None:
        """A round begins, with what all replicas have alike: where buffers are is noted."""
        self._buffer_moves.begin()

    def contribute(self, weight: float, numbers: Sequence[float], wishes: Wishes) -> None:
        """Write this replica's part of the sum; the same each time, until `adopt`.

        Args:
            weight: of its samples among all of the round.
            numbers: what the round's steps measured, weighted already.
            wishes: of this worker.
        """
        self.data.zero_()
        self._buffer_moves.measure(self._moves, weight)
        self._contribute(weight)
        self._numbers[: len(numbers)] = torch.tensor(numbers, dtype=self.data.dtype)
        self._wishes.copy_(torch.tensor([wishes.checkpoint, wishes.stop]))

    @torch.no_grad()
    def adopt(self) -> tuple[list[float], Wishes]:
        """Go on from the sum; returns the numbers summed over the replicas, and what to do now."""
        for parameter in self._parameters:
            parameter.grad = None
        self._adopt()
        self._buffer_moves.rewind()
        self._buffer_moves.apply(self._moves)
        checkpoint, stop = self._wishes.tolist()
        return self._numbers.tolist(), Wishes(checkpoint > 0, stop > 0)

    def state(self) -> tuple[Any, Tensors]:
        """What a replica needs beside its own state to go on within a round, as JSON and tensors
        (not copied)."""
        before = self._buffer_moves.before
        return None, {f"{_START}{number}": tensor for number, tensor in enumerate(before)}

    def load_state(self, tree: Any, tensors: Tensors) -> None:
        """Go on within the round in which `state` gave this."""
        count = sum(name.startswith(_START) for name in tensors)
        self._buffer_moves.began_at([tensors[f"{_START}{number}"] for number in range(count)])

    @abstractmethod
    def _contribute(self, weight: float) -> None:
        """Write parameters, and the subclass's own parts; they are zeros."""

    @abstractmethod
    def _adopt(self) -> None:
        """Take parameters, and the subclass's own parts, from the sum."""


def _trained(replica: Replica) -> list[nn.Parameter]:
    return [p for p in replica.model.parameters() if p.requires_grad]


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


class Averaging(RoundSum):
    """Models and optimizers become their mean.

        M: | S numbers of the optimizer's state | U one number a parameter: the weight of the ranks
        that have state of it |

    Make it of a replica whose state is loaded afterwards: it takes a step without gradients, to see
    what the optimizer keeps.
    """

    def __init__(self, replica: Replica, numbers: int) -> None:
        if list(replica.optimizers) != [""]:
            raise ValueError("only models with one optimizer are averaged")
        self._optimizer = replica.optimizers[""]
        parameters = _trained(replica)
        self._places = list(_places(self._optimizer, parameters))
        kept = [place.like for place in self._places if isinstance(place.like, torch.Tensor)]
        super().__init__(
            replica,
            numbers,
            more=[*(place.numel for place in self._places), len(parameters)],
            dtypes=[tensor.dtype for tensor in kept if tensor.dtype.is_floating_point],
        )
        *self._states, self._has = self._more

    def _contribute(self, weight: float) -> None:
        if not weight:
            return
        for parameter, into in zip(self._parameters, self._models, strict=True):
            into.copy_(parameter.detach().reshape(-1)).mul_(weight)
        for place, into in zip(self._places, self._states, strict=True):
            state = self._optimizer.state.get(self._parameters[place.parameter], {})
            value = state.get(place.key)
            if value is not None:
                into.copy_(torch.as_tensor(value).reshape(-1)).mul_(weight)
                self._has[place.parameter] = weight

    def _adopt(self) -> None:
        for parameter, mean in zip(self._parameters, self._models, strict=True):
            parameter.copy_(mean.view_as(parameter))
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
