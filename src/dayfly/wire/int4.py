"""Codec int4: half a byte an element, and a scale for each block.

    | scales (B,) float32 | numbers (ceil(P / 2),) uint8, two a byte |     B = ceil(P / 128)

An element is rounded to the nearest of 15 multiples of its block's scale, the greatest of the block
over 7: it is off by half a scale at most, a fourteenth of that greatest. That is 0.53 bytes an
element. The first of two elements is in the lower bits of their byte, as the number plus 8. Blocks
start with the span. A block with an infinite element or a NaN comes out as NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dayfly.wire.codec import Codec
from dayfly.wire.schedule import Span

#: Elements that share a scale.
BLOCK = 128
#: Blocks that are worked on at once: what is between values and numbers stays in the cache.
_AT_ONCE = 1024
_MOST, _ZERO = 7, 8
_SCALE_BYTES = 4


class Int4(Codec):
    """Half a byte an element, and 4 a block."""

    def form(self, length: int) -> tuple[torch.dtype, tuple[int, ...]]:
        return torch.uint8, (_SCALE_BYTES * _blocks(length) + -(-length // 2),)

    def encode(self, values_P: torch.Tensor, span: Span, *, total: bool) -> torch.Tensor:
        dtype, shape = self.form(len(values_P))
        travelling = torch.empty(shape, dtype=dtype)
        for values, scale, numbers in _rows(travelling, values_P):
            torch.div(values.abs().amax(1, keepdim=True), _MOST, out=scale)
            # A block of zeros, or of elements too small to have a scale, is zeros.
            whole = (values / torch.where(scale == 0, torch.inf, scale)).round_()
            whole = whole.clamp_(-_MOST, _MOST).nan_to_num_().add_(_ZERO).to(torch.uint8)
            numbers.copy_(whole[:, 0::2])
            second = whole[:, 1::2]
            numbers[:, : second.shape[1]] |= second << 4
        return travelling

    def decode(self, travelled: torch.Tensor, into_P: torch.Tensor) -> None:
        for values, scale, numbers in _rows(travelled, into_P):
            both = (numbers & 15, (numbers >> 4)[:, : values.shape[1] // 2])
            for first, part in enumerate(both):
                values[:, first::2] = (part.to(scale.dtype) - _ZERO) * scale


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def _rows(
    travelling: torch.Tensor, values_P: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Values, scales (rows, 1) and bytes as rows of blocks: some whole ones, then the last."""
    blocks, whole = _blocks(len(values_P)), len(values_P) // BLOCK
    scales = travelling[: _SCALE_BYTES * blocks].view(torch.float32).view(-1, 1)
    numbers = travelling[_SCALE_BYTES * blocks :]
    for first in range(0, whole, _AT_ONCE):
        last = min(whole, first + _AT_ONCE)
        some, bytes_of = (slice(first * size, last * size) for size in (BLOCK, BLOCK // 2))
        yield (
            values_P[some].view(-1, BLOCK),
            scales[first:last],
            numbers[bytes_of].view(-1, BLOCK // 2),
        )
    if whole < blocks:
        cut = whole * BLOCK
        yield values_P[cut:].view(1, -1), scales[whole:], numbers[cut // 2 :].view(1, -1)
