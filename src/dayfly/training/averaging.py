"""Model and optimizer of several replicas become their mean, through one flat buffer.

    | parameters | moves of buffers | optimizer's state | who has state | losses | wishes |

Local SGD averages models; the optimizer's state is averaged with them, as Yu, Jin and Yang do ("On
the linear speedup analysis of communication efficient momentum SGD", 2019). KubeML resets it, and
its figure 4.10 shows the harm: after each merge momentum starts from nothing.

A replica contributes everything times its weight, its share of the samples; the sum is the mean. A
parameter that a replica never used has no state there: the mean is over the replicas that have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import nn

from dayfly.training.moves import Moves
from dayfly.training.replica import Replica, Wishes

#: A mean of equal whole numbers, such as Adam's count of steps, may miss it by this share.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an optimizer keeps a number or tensor: of which parameter, under which key.

    like: a number, or a tensor of that form, which takes no memory.
    """

    parameter: int
    key: str
    like: Any

    @property
    def numel(self) -> int:
        return self.like.numel() if isinstance(self.like, torch.Tensor) else 1


class Averaging:
    """The flat buffer of a replica, (P + B + S + U + losses + 2,), on the CPU wherever that is.

    Make it of a replica whose state is loaded afterwards: it takes a step without gradients, to see
    what the optimizer keeps. losses: the most steps of a round.
    """

    def __init__(self, replica: Replica, losses: int) -> None:
        if replica.optimizer is None:
            raise ValueError("only models with parameters to train are averaged")
        self._optimizer = replica.optimizer
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
        rest = (users, losses, 2)
        whole = [*sizes, *moving, *state, *rest]
        self.data = torch.zeros(
            sum(whole), dtype=reduce(torch.promote_types, dtypes, torch.float32)
        )
        *views, self._has, self._losses, self._wishes = torch.split(self.data, whole)
        self._models = views[:users]
        self._moves = views[users : users + len(moving)]
        self._states = views[users + len(moving) :]

    def begin(self) -> None:
        """A round begins: all replicas are equal. Where the model's buffers are is noted."""
        self._buffer_moves.begin()

    def contribute(self, weight: float, losses: Sequence[float], wishes: Wishes) -> None:
        """Write this replica's part of the mean. losses: of the round's steps, weighted already."""
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
        self._losses[: len(losses)] = torch.tensor(losses, dtype=self.data.dtype)
        self._wishes.copy_(torch.tensor([wishes.checkpoint, wishes.stop]))

    @torch.no_grad()
    def adopt(self) -> tuple[list[float], Wishes]:
        """Become the mean; returns the batches' mean losses and what is to be done now."""
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
        return self._losses.tolist(), Wishes(checkpoint > 0, stop > 0)

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
