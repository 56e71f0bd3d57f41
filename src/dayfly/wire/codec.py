"""What compression has to offer the engine: another form of a span's elements on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dayfly.wire.schedule import Span

if TYPE_CHECKING:
    import torch


class Codec(Protocol):
    """Turns elements into what travels, and back. One for each buffer; for several threads."""

    def form(self, length: int) -> tuple[torch.dtype, tuple[int, ...]]:
        """Type and shape of what travels for `length` elements."""

    def encode(self, values_P: torch.Tensor, span: Span, *, total: bool) -> torch.Tensor:
        """What travels for the elements at a span: of a contribution, or of a sum (`total`)."""

    def decode(self, travelled: torch.Tensor, into_P: torch.Tensor) -> None:
        """The elements again, or what is left of them: the same bits for every reader."""
