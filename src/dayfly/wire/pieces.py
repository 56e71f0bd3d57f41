"""Several flat tensors used as one buffer, without a copy.

    tensors   |a a a|b b|c c c c|

Elements 3 and 4 of the buffer are those of b.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import torch


class Buffer(Protocol):
    """What a schedule is run on: elements of one type, flat, on the CPU. A tensor is one."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its elements."""
        ...

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        ...

    def numel(self) -> int:
        """Its elements."""
        ...

    def __getitem__(self, span: slice, /) -> torch.Tensor:
        """The elements of a span that an operation names, contiguous, to be read or written."""
        ...


class Pieces:
    """Flat, contiguous tensors of one type, one after another; what is written to a part, they get.

    Raises ValueError if there are none, or they are not flat, contiguous and of one type.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        if not tensors:
            raise ValueError("pieces of a buffer: give one tensor at least")
        self.dtype = tensors[0].dtype
        for tensor in tensors:
            if tensor.dtype is not self.dtype or tensor.dim() != 1 or not tensor.is_contiguous():
                raise ValueError(
                    f"a piece of a buffer of {self.dtype} is {tensor.dtype}{list(tensor.shape)} "
                    f"with strides {list(tensor.stride())}: give flat, contiguous ones of one type"
                )
        self._tensors = tuple(tensors)
        self._starts = [0, *accumulate(len(tensor) for tensor in tensors)]

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.itemsize

    def numel(self) -> int:
        """Elements of all tensors together."""
        return self._starts[-1]

    def __len__(self) -> int:
        return self.numel()

    def __getitem__(self, span: slice) -> torch.Tensor:
        """The elements of a span, as a view; they lie in one tensor. An empty one lies anywhere.

        Raises ValueError if they lie in several, or the slice has a step.
        """
        start, stop, step = span.indices(self.numel())
        if step != 1:
            raise ValueError(f"every {step}th element of pieces: only spans are views")
        if start >= stop:
            return self._tensors[0][:0]
        at = bisect_right(self._starts, start) - 1
        begin = self._starts[at]
        if stop > self._starts[at + 1]:
            raise ValueError(
                f"elements {start} to {stop} lie in several pieces: one has {begin} to "
                f"{self._starts[at + 1]}"
            )
        return self._tensors[at][start - begin : stop - begin]
