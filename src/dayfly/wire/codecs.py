"""Codecs: bf16 and int8.

bf16     half the bytes of float32, its whole range, 8 bits of mantissa. A number is rounded to the
         nearest, by 1/256 of itself at most; NaN stays NaN. Sums are added up in the type of the
         buffer, and rounded once more on their way back.
int8     | scales (B,) float32 | numbers (P,) int8 |      B = ceil(P / 256), 1.016 bytes an element
         An element is rounded to the nearest multiple of its block's scale, the greatest of the
         block over 127: it is off by half a scale at most. Blocks start with the span, so a span
         has the same form whatever is around it. A block with an infinite element or a NaN comes
         out as NaN, so that a failure is seen.
"""

from __future__ import annotations

from collections.abc import Iterator

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


#: Elements that share a scale.
BLOCK = 256
#: Blocks that are worked on at once: what is between values and numbers stays in the cache.
_AT_ONCE = 1024
_MOST = 127
_SCALE_BYTES = 4


class Int8(Codec):
    """A byte an element, and 4 a block."""

    def form(self, length: int) -> tuple[torch.dtype, tuple[int, ...]]:
        return torch.uint8, (length + _SCALE_BYTES * _blocks(length),)

    def encode(self, values_P: torch.Tensor, span: Span, *, total: bool) -> torch.Tensor:
        dtype, shape = self.form(len(values_P))
        travelling = torch.empty(shape, dtype=dtype)
        for values, scale, numbers in _rows(travelling, values_P):
            torch.div(values.abs().amax(1, keepdim=True), _MOST, out=scale)
            # A block of zeros, or of elements too small to have a scale, is zeros.
            whole = (values / torch.where(scale == 0, torch.inf, scale)).round_()
            numbers.copy_(whole.clamp_(-_MOST, _MOST).nan_to_num_())
        return travelling

    def decode(self, travelled: torch.Tensor, into_P: torch.Tensor) -> None:
        for values, scale, numbers in _rows(travelled, into_P):
            torch.mul(numbers, scale, out=values)


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def _rows(
    travelling: torch.Tensor, values_P: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Values, scales (rows, 1) and numbers as rows of blocks: some whole ones, then the last."""
    blocks = _blocks(len(values_P))
    whole = len(values_P) // BLOCK
    scales = travelling[: _SCALE_BYTES * blocks].view(torch.float32).view(-1, 1)
    numbers = travelling[_SCALE_BYTES * blocks :].view(torch.int8)
    for first in range(0, whole, _AT_ONCE):
        last = min(whole, first + _AT_ONCE)
        some = slice(first * BLOCK, last * BLOCK)
        yield values_P[some].view(-1, BLOCK), scales[first:last], numbers[some].view(-1, BLOCK)
    if whole < blocks:
        cut = whole * BLOCK
        yield values_P[cut:].view(1, -1), scales[whole:], numbers[cut:].view(1, -1)
