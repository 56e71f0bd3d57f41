"""How far a model's buffers moved, such as the statistics of BatchNorm: what replicas sum of them.

A buffer starts from the same value on all replicas, each moves its own by its own samples, and all
go on with the start plus the weighted mean of the moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Moves:
    """The buffers of a model.

    sizes: elements that each one's move has, in order. before: where they were at `begin`.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # By name: a forward pass may put another tensor in a buffer's place.
        self._names = [name for name, buffer in model.named_buffers() if buffer.numel()]
        self.before: list[torch.Tensor] = []
        self.sizes = [buffer.numel() for buffer in self._buffers()]

    def begin(self) -> None:
        """Note where the buffers are."""
        self.before = [buffer.clone() for buffer in self._buffers()]

    def measure(self, into: Sequence[torch.Tensor], weight: float) -> None:
        """Write `weight` times each move into flat tensors.

        A weight of 0 writes zeros, wherever the buffers are.
        """
        for buffer, before, move in zip(self._buffers(), self.before, into, strict=True):
            if weight:
                now = buffer if buffer.dtype.is_floating_point else buffer.to(torch.int64)
                move.copy_((now - _start(before)).reshape(-1)).mul_(weight)
            else:
                move.zero_()

    def rewind(self) -> None:
        """Put the buffers back to where they were at `begin`."""
        for buffer, before in zip(self._buffers(), self.before, strict=True):
            buffer.copy_(before)

    def apply(self, moves: Sequence[torch.Tensor]) -> None:
        """Move the buffers from where they are."""
        for buffer, move in zip(self._buffers(), moves, strict=True):
            whole = move if buffer.dtype.is_floating_point else move.round()
            start = _start(buffer)
            buffer.copy_(start + whole.view_as(start).to(start.dtype))

    def _buffers(self) -> list[torch.Tensor]:
        """As they are now; complex ones as pairs of real numbers."""
        buffers = [self._model.get_buffer(name).detach() for name in self._names]
        return [torch.view_as_real(b) if b.is_complex() else b for b in buffers]


def _start(buffer: torch.Tensor) -> torch.Tensor:
    """What a buffer moves from: itself, but 0 where it is infinite or no number.

    A mask of -inf, or a maximum that starts there, has no difference to be summed.
    """
    wide = buffer if buffer.dtype.is_floating_point else buffer.to(torch.int64)
    return torch.where(wide.isfinite(), wide, 0)
