"""Codecs: bf16, int8 and int4.

bf16     half the bytes of float32, its whole range, 8 bits of mantissa. A number is rounded to the
         nearest, by 1/256 of itself at most; NaN stays NaN. Sums are added up in the type of the
         buffer, and rounded once more on their way back.
int8     | scales (B,) float32 | numbers (P,) int8 |      B = ceil(P / 256), 1.016 bytes an element
         An element is rounded to the nearest multiple of its block's scale, the greatest of the
         block over 127: it is off by half a scale at most. Blocks start with the span, so a span
         has the same form whatever is around it. A block with an infinite element or a NaN comes
         out as NaN, so that a failure is seen.
int4     | scales (B,) float32 | numbers (ceil(P / 2),) uint8, two a byte |      B = ceil(P / 128)
         The same with 15 multiples of a scale, the greatest of the block over 7: 0.53 bytes an
         element. The first of two elements is in the lower bits of their byte, as its number
         plus 8.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

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


#: Elements of int8 that share a scale.
BLOCK = 256
#: Blocks that are worked on at once: what is between values and numbers stays in the cache.
_AT_ONCE = 1024
_SCALE_BYTES = 4


class _Scaled(Codec):
    """Whole numbers from -most to most, and a scale for each block of elements.

    Attributes:
        block: elements of a block.
        most: the greatest number; a block's greatest element has it.
        in_byte: numbers in a byte.
    """

    block: ClassVar[int]
    most: ClassVar[int]
    in_byte: ClassVar[int]

    @abstractmethod
    def pack(self, whole: torch.Tensor, into: torch.Tensor) -> None:
        """Writes numbers (rows, elements), which are whole, into bytes (rows, bytes) uint8."""

    @abstractmethod
    def unpack(self, packed: torch.Tensor, elements: int) -> torch.Tensor:
        """Returns the numbers of such bytes as (rows, elements) int8."""

    def form(self, length: int) -> tuple[torch.dtype, tuple[int, ...]]:
        blocks = -(-length // self.block)
        return torch.uint8, (_SCALE_BYTES * blocks + -(-length // self.in_byte),)

    def encode(self, values_P: torch.Tensor, span: Span, *, total: bool) -> torch.Tensor:
        dtype, shape = self.form(len(values_P))
        travelling = torch.empty(shape, dtype=dtype)
        for values, scale, packed in self._rows(travelling, values_P):
            torch.div(values.abs().amax(1, keepdim=True), self.most, out=scale)
            # A block of zeros, or of elements too small to have a scale, is zeros.
            whole = (values / torch.where(scale == 0, torch.inf, scale)).round_()
            self.pack(whole.clamp_(-self.most, self.most).nan_to_num_(), packed)
        return travelling

    def decode(self, travelled: torch.Tensor, into_P: torch.Tensor) -> None:
        for values, scale, packed in self._rows(travelled, into_P):
            torch.mul(self.unpack(packed, values.shape[1]), scale, out=values)

    def _rows(
        self, travelling: torch.Tensor, values_P: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Values, scales (rows, 1) and bytes as rows of blocks: some whole ones, then the last."""
        blocks, whole = -(-len(values_P) // self.block), len(values_P) // self.block
        scales = travelling[: _SCALE_BYTES * blocks].view(torch.float32).view(-1, 1)
        packed = travelling[_SCALE_BYTES * blocks :]
        row_bytes = self.block // self.in_byte
        for first in range(0, whole, _AT_ONCE):
            last = min(whole, first + _AT_ONCE)
            yield (
                values_P[first * self.block : last * self.block].view(-1, self.block),
                scales[first:last],
                packed[first * row_bytes : last * row_bytes].view(-1, row_bytes),
            )
        if whole < blocks:
            values = values_P[whole * self.block :].view(1, -1)
            yield values, scales[whole:], packed[whole * row_bytes :].view(1, -1)


class Int8(_Scaled):
    """A byte an element, and 4 a block."""

    block, most, in_byte = BLOCK, 127, 1

    def pack(self, whole: torch.Tensor, into: torch.Tensor) -> None:
        into.view(torch.int8).copy_(whole)

    def unpack(self, packed: torch.Tensor, elements: int) -> torch.Tensor:
        return packed.view(torch.int8)


class Int4(_Scaled):
    """Half a byte an element, and 4 a block."""

    block, most, in_byte = 128, 7, 2
    _zero = 8

    def pack(self, whole: torch.Tensor, into: torch.Tensor) -> None:
        half_bytes = whole.add_(self._zero).to(torch.uint8)
        into.copy_(half_bytes[:, 0::2])
        second = half_bytes[:, 1::2]
        into[:, : second.shape[1]] |= second << 4

    def unpack(self, packed: torch.Tensor, elements: int) -> torch.Tensor:
        whole = torch.empty(len(packed), elements, dtype=torch.int8)
        torch.sub((packed & 15).view(torch.int8), self._zero, out=whole[:, 0::2])
        second = (packed >> 4).view(torch.int8)[:, : elements // 2]
        torch.sub(second, self._zero, out=whole[:, 1::2])
        return whole
