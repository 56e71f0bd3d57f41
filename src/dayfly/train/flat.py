"""One flat buffer for all that a step's all-reduce sums.

    | gradients, one parameter after another | moves of the model's buffers | used | tail |

The gradients of parameters are views of it, so the backward pass writes where the wire reads.
`used` counts, a parameter each, the workers whose backward pass reached it: one that none reached
has no gradient, as in plain PyTorch, and the optimizer leaves it alone. The tail carries the loss
and the workers' wishes, so that every worker learns them in the same step, now and when it replays
the step from the message log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, reduce

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


class FlatBuffer:
    """The buffer of a model, (G + M + U + tail,): G gradient and M buffer elements, U parameters.

    Its dtype is the widest of the trainable parameters', at least float32. Gradients of another
    dtype are copied in and out.
    """

    def __init__(self, model: nn.Module, tail: int) -> None:
        self._model = model
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        # By name: a forward pass may put another tensor in a buffer's place.
        self._moving_names = [name for name, buffer in model.named_buffers() if buffer.numel()]
        dtype = reduce(torch.promote_types, (p.dtype for p in self._parameters), torch.float32)
        sizes = [tensor.numel() for tensor in (*self._parameters, *self._moving())]
        used = len(self._parameters)
        self.data = torch.zeros(sum(sizes) + used + tail, dtype=dtype)
        *views, self._used, self.tail = torch.split(self.data, [*sizes, used, tail])
        self._gradients = views[:used]
        self._moves = views[used:]
        self._before: list[torch.Tensor] = []
        self._hooks: list[RemovableHandle] = []

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """The trainable parameters."""
        return self._parameters

    def begin(self) -> None:
        """Before the forward pass: gradients and moves are zero, the model's buffers are noted."""
        self.data.zero_()
        self._before = [buffer.clone() for buffer in self._moving()]
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            same = parameter.dtype is gradient.dtype
            parameter.grad = gradient.view_as(parameter) if same else None
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._note_use, number))  # type: ignore[no-untyped-call]
            for number, parameter in enumerate(self._parameters)
        ]

    def end(self, weight: float) -> None:
        """After the backward pass, of a slice that is `weight` of the batch: all is in `data`.

        The slice's loss was weighted by then; a buffer moves by the weighted mean of its moves.
        """
        for hook in self._hooks:
            hook.remove()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            found = parameter.grad
            if found is not None and found.data_ptr() != gradient.data_ptr():
                gradient.copy_(found.reshape(-1))
        for buffer, before, move in zip(self._moving(), self._before, self._moves, strict=True):
            if weight:
                now = buffer if buffer.dtype.is_floating_point else buffer.to(torch.int64)
                move.copy_((now - _start(before)).reshape(-1)).mul_(weight)
            buffer.copy_(before)

    def spread(self) -> None:
        """After the all-reduce: every worker's gradients and buffers are the sums'."""
        used = self._used.tolist()
        for parameter, gradient, users in zip(self._parameters, self._gradients, used, strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype) if users else None
        for buffer, move in zip(self._moving(), self._moves, strict=True):
            whole = move if buffer.dtype.is_floating_point else move.round()
            start = _start(buffer)
            buffer.copy_(start + whole.view_as(start).to(start.dtype))

    def _moving(self) -> list[torch.Tensor]:
        """The model's buffers as they are now; complex ones as pairs of real numbers."""
        buffers = [self._model.get_buffer(name).detach() for name in self._moving_names]
        return [torch.view_as_real(b) if b.is_complex() else b for b in buffers]

    def _note_use(self, number: int, parameter: torch.Tensor) -> None:
        self._used[number] = 1


def _start(buffer: torch.Tensor) -> torch.Tensor:
    """What a buffer moves from: itself, but 0 where it is infinite or no number.

    A mask of -inf, or a maximum that starts there, has no difference to be summed.
    """
    wide = buffer if buffer.dtype.is_floating_point else buffer.to(torch.int64)
    return torch.where(wide.isfinite(), wide, 0)


def sparse(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether any gradient is sparse, which a flat buffer cannot hold."""
    return any(p.grad is not None and p.grad.is_sparse for p in parameters)
