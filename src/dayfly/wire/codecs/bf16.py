"""bfloat16: half the bytes of float32, its whole range, 8 bits of mantissa.

A number is rounded to the nearest, by 1/256 of itself at most; what is no number stays none. The
sums are added up in the buffer's own type, and rounded once more on their way back.
"""

from __future__ import annotations

import torch

from dayfly.wire.codec import Codec
from dayfly.wire.schedule import Span


class Bf16(Codec):
    """2 bytes an element."""

    def form(self, length: int) -> tuple[torch.dtype, tuple[int, ...]]:
        return torch.bfloat16, (length,)

    def encode(self, values_P: torch.Tensor, span: Span, *, total: bool) -> torch.Tensor:
        return values_P.to(torch.bfloat16)

    def decode(self, travelled: torch.Tensor, into_P: torch.Tensor) -> None:
        into_P.copy_(travelled)
