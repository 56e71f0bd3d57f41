"""One flat buffer for all that a step's all-reduce sums.

    | gradients, one parameter after another | moves of the model's buffers | tail |

The gradients of parameters are views of it, so the backward pass writes where the wire reads. The
tail carries the loss and the workers' wishes, so that every worker learns them in the same step,
now and when it replays the step from the message log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import torch
from torch import nn


class FlatBuffer:
    """The buffer of a model, (G + M + tail,) with G gradient elements and M buffer elements.

    Its dtype is the widest of the trainable parameters', at least float32. Gradients of another
    dtype are copied in and out.
    """

    def __init__(self, model: nn.Module, tail: int) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._moving = [b for b in model.buffers() if b.dtype is not torch.bool and b.numel()]
        dtype = reduce(torch.promote_types, (p.dtype for p in self._parameters), torch.float32)
        sizes = [tensor.numel() for tensor in (*self._parameters, *self._moving)]
        self.data = torch.zeros(sum(sizes) + tail, dtype=dtype)
        *views, self.tail = torch.split(self.data, [*sizes, tail])
        self._gradients = views[: len(self._parameters)]
        self._moves = views[len(self._parameters) :]
        self._before: list[torch.Tensor] = []

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """The trainable parameters."""
        return self._parameters

    def begin(self) -> None:
        """Before the forward pass: gradients and moves are zero, the model's buffers are noted."""
        self.data.zero_()
        self._before = [buffer.clone() for buffer in self._moving]
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            same = parameter.dtype is gradient.dtype
            parameter.grad = gradient.view_as(parameter) if same else None

    def end(self, weight: float) -> None:
        """After the backward pass, of a slice that is `weight` of the batch: all is in `data`.

        The slice's loss was weighted by then; a buffer moves by the weighted mean of its moves.
        """
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            found = parameter.grad
            if found is not None and found.data_ptr() != gradient.data_ptr():
                gradient.copy_(found.reshape(-1))
        for buffer, before, move in zip(self._moving, self._before, self._moves, strict=True):
            move.copy_((buffer - before).reshape(-1)).mul_(weight)
            buffer.copy_(before)

    def spread(self) -> None:
        """After the all-reduce: every worker's gradients and buffers are the sums'."""
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype)
        for buffer, move in zip(self._moving, self._moves, strict=True):
            whole = move if buffer.dtype.is_floating_point else move.round()
            buffer.add_(whole.view_as(buffer).to(buffer.dtype))


def sparse(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether any gradient is sparse, which a flat buffer cannot hold."""
    return any(p.grad is not None and p.grad.is_sparse for p in parameters)
