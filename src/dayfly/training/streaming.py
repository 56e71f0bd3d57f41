"""Streaming DiLoCo (arXiv 2501.18512): outer gradients by fragments, applied some steps later.

`specs.streaming` has the formulas and the schedule. A worker's flat buffer is cut into exchanges:

    | fragment 0 | fragment 1 | ... | fragment F-1 | moves of buffers | measured | weight, wishes |
    |     0      |     1      |     |                             F-1                             |

If fragments are compressed, what belongs to none travels beside the last one's messages as it is. A
sum that waits is of a fragment, so it goes on to be applied after a resize.
An exchange is taken (`take`), summed by whoever calls, and applied (`apply`); meanwhile nobody else
touches its part of the buffer. Buffers, such as BatchNorm's statistics, are at first where all have
them; to the sum of all moves each worker adds what its own moved by since they were taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from dayfly.errors import RequestError
from dayfly.specs.outer import Outer
from dayfly.specs.streaming import Streaming, sequential
from dayfly.training.outer import OuterGradients
from dayfly.training.replica import Replica, Wishes, weights_in
from dayfly.training.state import Tensors, model_tensors
from dayfly.wire.codec import Codec
from dayfly.wire.packing import Packing

#: How names begin: of a worker's own parameters and buffers, of where buffers were when they were
#: taken, and of sums that wait to be applied: of fragments, by their numbers.
OWN, _TAKEN, _FRAGMENT = "own.", "taken.", "sum.fragment."
#: The sum of all moves of buffers, which waits.
_REST = "sum.rest"
#: Of a state, the model.
_MODEL = "model."


def layers_of(model: nn.Module) -> list[list[nn.Parameter]]:
    """Returns the trainable parameters by layers: those of one module that follow each other."""
    found: list[list[nn.Parameter]] = []
    last: str | None = None
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if (owner := name.rpartition(".")[0]) != last:
            found.append([])
            last = owner
        found[-1].append(parameter)
    return found


def check_fragments(outer: Outer | None, model: nn.Module) -> None:
    """Raise RequestError if a model has fewer layers than fragments.

    Args:
        outer: the run's outer optimizer; None: there is none.
        model: of the job.
    """
    if outer is None or outer.streaming is None:
        return
    layers = len(layers_of(model))
    if outer.streaming.fragments > layers:
        raise RequestError(
            f"--fragments {outer.streaming.fragments} are more than the model's {layers} layers "
            f"with parameters to train, of which each has one at least: give at most {layers}"
        )


class StreamedGradients(OuterGradients):
    """Outer gradients of one worker, fragment by fragment.

    Args:
        replica, numbers, optimizer, codec, feed_back: as of `OuterGradients`.
        streaming: how many fragments, and how late.

    Attributes:
        fragments: parameters of each.
    """

    def __init__(
        self,
        replica: Replica,
        numbers: int,
        optimizer: torch.optim.Optimizer,
        codec: Codec | None = None,
        feed_back: Callable[[torch.Tensor, torch.Tensor], None] | None = None,
        *,
        streaming: Streaming,
    ) -> None:
        super().__init__(replica, numbers, optimizer, codec, feed_back)
        self._streaming = streaming
        layers = layers_of(replica.model)
        sizes = [sum(p.numel() for p in layer) for layer in layers]
        runs = sequential(sizes, streaming.fragments)
        counts = [sum(len(layers[at]) for at in run) for run in runs]
        bounds = [sum(sizes[: run.stop]) for run in runs]
        starts = [0, *bounds[:-1]]
        self._spans = [slice(*pair) for pair in zip(starts, bounds, strict=True)]
        numbers_of = iter(range(len(self._parameters)))
        #: Of each fragment, its parameters' places.
        self._members = [[next(numbers_of) for _ in range(count)] for count in counts]
        self._taken: list[torch.Tensor] = []

    @property
    def fragments(self) -> list[list[nn.Parameter]]:
        """Each fragment's parameters, in the order of exchanges."""
        return [[self._parameters[at] for at in members] for members in self._members]

    @property
    def parts(self) -> tuple[tuple[torch.Tensor, Packing | None], ...]:
        ends = [*(span.stop for span in self._spans[:-1]), len(self.data)]
        pairs = zip(self._spans, ends, strict=True)
        return tuple(self._packed(span.start, span.stop, end) for span, end in pairs)

    @property
    def last(self) -> int:
        """The number of the exchange that has moves of buffers, what was measured, and wishes."""
        return len(self._spans) - 1

    def begin(self) -> None:
        """A round begins; with the first one, all replicas have everything alike."""
        if not self._from:
            super().begin()

    def take_fragment(self, number: int, weight: float) -> None:
        """Write this worker's part of a fragment's outer gradient.

        Args:
            number: of the fragment.
            weight: of the worker's samples among all of the round.
        """
        span = self._spans[number]
        with torch.no_grad():
            for at in self._members[number]:
                moved = (self._from[at] - self._parameters[at].detach()).reshape(-1)
                self._models[at].copy_(moved)
            own = self.data[span]
            own.mul_(weight) if weight else own.zero_()
        if self._feed_back is not None and self._residual_P is not None:
            self._feed_back(own, self._residual_P[span])

    def take_rest(self, weight: float, numbers: Sequence[float], wishes: Wishes) -> None:
        """Write what belongs to no fragment; see `RoundSum.contribute`."""
        self.data[self._spans[-1].stop :].zero_()
        self._buffer_moves.measure(self._moves, weight)
        self._taken = self._buffer_moves.now()
        self._numbers[: len(numbers)] = torch.tensor(numbers, dtype=self.data.dtype)
        self._wishes.copy_(torch.tensor([wishes.checkpoint, wishes.stop]))

    @property
    def told(self) -> tuple[list[float], Wishes]:
        """Of the rest's sum: what was measured, and what to do. Nothing changes by that."""
        checkpoint, stop = self._wishes.tolist()
        return self._numbers.tolist(), Wishes(checkpoint > 0, stop > 0)

    def apply(self, number: int, steps: int) -> None:
        """Go on from an exchange's sum.

        Args:
            number: of the exchange.
            steps: of its round; of the last exchange.
        """
        self.apply_fragment(number)
        if number == self.last:
            self.apply_rest()
            self._replica.follow(steps, self._from)

    @torch.no_grad()
    def apply_fragment(self, number: int) -> None:
        """Take the outer optimizer's step with a fragment's sum, and go on with the mixture."""
        for parameter in self._parameters:
            parameter.grad = None
        alpha, members = self._streaming.alpha, self._members[number]
        own = [self._parameters[at].detach().clone() if alpha else None for at in members]
        for at in members:
            parameter, mean = self._parameters[at], self._models[at]
            parameter.copy_(self._from[at])
            parameter.grad = mean.view_as(parameter).to(parameter.device, parameter.dtype)
        self._optimizer.step()
        for at, before in zip(members, own, strict=True):
            parameter = self._parameters[at]
            parameter.grad = None
            self._from[at].copy_(parameter)
            if before is not None:
                parameter.lerp_(before, alpha)

    @torch.no_grad()
    def apply_rest(self) -> None:
        """Go on with the moves of all workers' buffers."""
        self._buffer_moves.rejoin(self._moves, self._taken)
        self._taken = []

    def in_place(self) -> AbstractContextManager[None]:
        """The model has the outer parameters inside."""
        return weights_in(list(zip(self._parameters, self._from, strict=True)))

    def shared_model(self) -> Tensors:
        """The model as all workers have it alike, by names in a replica's state (not copied)."""
        names = {id(p): name for name, p in self._replica.model.named_parameters()}
        found = {
            f"{_MODEL}{names[id(parameter)]}": start
            for parameter, start in zip(self._parameters, self._from, strict=True)
        }
        for name, buffer in self._buffer_moves.before_by_name().items():
            found[f"{_MODEL}{name}"] = buffer
        return found

    def sums(self, numbers: Sequence[int]) -> Tensors:
        """The sums of exchanges that wait to be applied (not copied), equal at all workers.

        By what they are of, whatever the exchanges. What was measured, and wishes, are told by then
        (`told`), so that a job whose steps log other values may go on.
        """
        sums = {f"{_FRAGMENT}{number}": self.data[self._spans[number]] for number in numbers}
        start = self._spans[-1].stop
        rest = self.data[start : start + sum(self._buffer_moves.sizes)]
        return {**sums, _REST: rest} if self.last in numbers else sums

    def own(self) -> Tensors:
        """What is this worker's alone: parameters and buffers from which it goes on, residual."""
        model = self._replica.model
        shared = self.shared_model().keys()
        mine = {f"{_MODEL}{name}": tensor for name, tensor in model_tensors(model).items()}
        own = {f"{OWN}{name}": tensor for name, tensor in mine.items() if name in shared}
        taken = {f"{_TAKEN}{number}": tensor for number, tensor in enumerate(self._taken)}
        return {**super().own(), **own, **taken}

    def begin_from(self, own: Tensors, tensors: Tensors, waiting: Sequence[int]) -> None:
        """Go on between rounds; the model is the outer one, as a run checkpoint has it.

        Args:
            own: of this worker, or of the one whose part it begins with; empty: it begins with
                the outer model itself.
            tensors: of the checkpoint, with the sums that wait.
            waiting: exchanges whose sums wait to be applied.
        """
        self._from = []
        self.begin()
        for name, buffer in self.sums(waiting).items():
            buffer.copy_(tensors[name])
        with torch.no_grad():
            for name, tensor in model_tensors(self._replica.model).items():
                if (mine := own.get(f"{OWN}{_MODEL}{name}")) is not None:
                    tensor.copy_(mine)
        self._taken = self._buffer_moves.now() if self.last in waiting else []
        for number, at in enumerate(self._taken):
            if (then := own.get(f"{_TAKEN}{number}")) is not None:
                at.copy_(then)

    def state(self) -> tuple[Any, Tensors]:
        raise NotImplementedError("nothing is kept within a round")
