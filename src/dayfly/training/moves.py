"""By what a model's buffers, such as BatchNorm's statistics, move in a forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn


class Moves:
    """The buffers of a model.

    Attributes:
        sizes: elements that the move of each type has, in order.
        before: where the buffers were at `begin`, a flat tensor a type.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # By name: a forward pass may put another tensor in a buffer's place.
        self._names: dict[torch.dtype, list[str]] = {}
        for name, buffer in model.named_buffers():
            if buffer.numel():
                self._names.setdefault(buffer.dtype, []).append(name)
        self._lent: list[tuple[dict[str, torch.Tensor | None], str, torch.Tensor]] = []
        self.before: list[torch.Tensor] = []
        self.sizes = [len(_flat(buffers)) for buffers in self._buffers()]

    def begin(self) -> None:
        """Note where the buffers are."""
        self.before = [_flat(buffers) for buffers in self._buffers()]

    def began_at(self, before: Sequence[torch.Tensor]) -> None:
        """As `begin`, when the buffers were there; from tensors on any device."""
        self.before = [
            start.to(buffers[0].device)
            for start, buffers in zip(before, self._buffers(), strict=True)
        ]

    def measure(self, into: Sequence[torch.Tensor], weight: float) -> None:
        """Write `weight` times each move into flat tensors.

        A weight of 0 writes zeros, wherever the buffers are.
        """
        for buffers, before, move in zip(self._buffers(), self.before, into, strict=True):
            if weight:
                now = _wide(_flat(buffers))
                move.copy_(now - _start(before)).mul_(weight)
            else:
                move.zero_()

    def rewind(self) -> None:
        """Put the buffers back to where they were at `begin`."""
        for buffers, before in zip(self._buffers(), self.before, strict=True):
            _fill(buffers, before)

    def lend(self) -> None:
        """Put copies in the buffers' places: what a forward pass keeps of them for its backward
        pass stays as it is, whatever follows in between."""
        self.begin()
        places = [
            (module._buffers, name, buffer)
            for module in self._model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        copies = {id(buffer): buffer.clone() for _, _, buffer in places}
        for buffers, name, buffer in places:
            buffers[name] = copies[id(buffer)]
        self._lent = places

    def take_back(self) -> None:
        """Put the buffers themselves back, as they were."""
        for buffers, name, buffer in self._lent:
            buffers[name] = buffer
        self._lent = []

    def apply(self, moves: Sequence[torch.Tensor]) -> None:
        """Move the buffers from where they are."""
        for buffers, move in zip(self._buffers(), moves, strict=True):
            start = _start(_flat(buffers))
            whole = move if start.dtype.is_floating_point else move.round()
            _fill(buffers, start + whole.to(start))

    def now(self) -> list[torch.Tensor]:
        """Where the buffers are: copies, a flat tensor a type."""
        return [_flat(buffers) for buffers in self._buffers()]

    def rejoin(self, moves: Sequence[torch.Tensor], taken: Sequence[torch.Tensor]) -> None:
        """Begin anew from where `moves` bring the buffers from `begin` on, and there add what they
        moved by since they were at `taken`."""
        later = [
            torch.where(now == then, 0, _wide(now) - _wide(then))
            for now, then in zip(self.now(), taken, strict=True)
        ]
        self.rewind()
        self.apply(moves)
        self.begin()
        for buffers, start, more in zip(self._buffers(), self.before, later, strict=True):
            _fill(buffers, (_wide(start) + more).to(start.dtype))

    def before_by_name(self) -> dict[str, torch.Tensor]:
        """Where the buffers were at `begin`, each by its name and in its form."""
        found: dict[str, torch.Tensor] = {}
        rows = zip(self._names.values(), self._buffers(), self.before, strict=True)
        for names, buffers, before in rows:
            parts = torch.split(before, [buffer.numel() for buffer in buffers])
            for name, buffer, part in zip(names, buffers, parts, strict=True):
                shaped = part.view(buffer.shape)
                whole = self._model.get_buffer(name)
                found[name] = torch.view_as_complex(shaped) if whole.is_complex() else shaped
        return found

    def _buffers(self) -> list[list[torch.Tensor]]:
        """As they are now, by type; complex ones as pairs of real numbers."""
        return [
            [_real(self._model.get_buffer(name).detach()) for name in names]
            for names in self._names.values()
        ]


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """What is done to the model's buffers inside is undone, such as by a block of validation.

    Workers validate different blocks, and go on with equal buffers.
    """
    places = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    values = [(one, one.clone()) for one in model.buffers()]
    try:
        yield
    finally:
        for buffers, named in places:
            buffers.clear()
            buffers.update(named)
        for buffer, before in values:
            buffer.detach().copy_(before)


def _real(buffer: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(buffer) if buffer.is_complex() else buffer


def _flat(buffers: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([buffer.reshape(-1) for buffer in buffers])


def _fill(buffers: Sequence[torch.Tensor], flat: torch.Tensor) -> None:
    parts = torch.split(flat, [buffer.numel() for buffer in buffers])
    shaped = [part.view(buffer.shape) for part, buffer in zip(parts, buffers, strict=True)]
    torch._foreach_copy_(list(buffers), shaped)


def _wide(flat: torch.Tensor) -> torch.Tensor:
    return flat if flat.dtype.is_floating_point else flat.to(torch.int64)


def _start(flat: torch.Tensor) -> torch.Tensor:
    """What buffers move from: themselves, but 0 where they are infinite or no number.

    A mask of -inf, or a maximum that starts there, has no difference to be summed.
    """
    wide = _wide(flat)
    return torch.where(wide.isfinite(), wide, 0)
