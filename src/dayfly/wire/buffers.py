"""Memory of messages: buffers that schedules run on, and memory that is used again.

    tensors        |a a a|b b|c c c c|
    JoinedBuffer   |0 1 2|3 4|5 6 7 8|      elements 3 and 4 are those of b, without a copy

    tensors        |a a a|b b b|c c c|
    TermsBuffer    |0 1 2|3 4 5|6 7 8|      to a sum of three elements: a rank brings three terms

`BufferPool` keeps the memory of what a channel delivers. If each thread allocated what it receives,
the C library would give the memory back late, thread by thread; and pages that are used again cost
no page faults.
"""

from __future__ import annotations

import threading
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


class JoinedBuffer:
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


class TermsBuffer:
    """The terms of one rank in a sum of P elements: element k P + i is element i of the k-th.

    `numel` is that of the sum, which takes the place of the first term.

    Args:
        tensors: flat, contiguous, of one type and length (P,).

    Raises:
        ValueError: there are none, or they are not like that.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        whole = JoinedBuffer(tensors)
        if len({len(tensor) for tensor in tensors}) > 1:
            raise ValueError(f"terms of {[len(one) for one in tensors]} elements: give equal ones")
        self.dtype, self.itemsize = whole.dtype, whole.itemsize
        self._tensors = tuple(tensors)

    def numel(self) -> int:
        """Elements of the sum."""
        return len(self._tensors[0])

    def __getitem__(self, span: slice) -> torch.Tensor:
        """The elements of a span, as a view; they lie in one term. An empty one lies anywhere."""
        if span.start >= span.stop:
            return self._tensors[0][:0]
        number, start = divmod(span.start, self.numel())
        term: torch.Tensor = self._tensors[number]
        return term[start : start + span.stop - span.start]


#: A block serves a request of this share of it, at least; else too much of it would lie idle.
_LEAST_SHARE = 0.5


class BufferPool:
    """Flat CPU tensors, lent and given back; for several threads.

    What lies idle, with what is lent, is never more than the most that was lent at once.
    """

    def __init__(self) -> None:
        self._idle: list[torch.Tensor] = []  # the longest idle first
        self._lent: dict[int, torch.Tensor] = {}  # blocks, by their address
        self._lent_bytes = 0
        self._most_bytes = 0
        self._lock = threading.Lock()
        self._own = threading.local()

    @property
    def held_bytes(self) -> int:
        """All that it holds now, idle and lent."""
        with self._lock:
            return self._lent_bytes + sum(block.nbytes for block in self._idle)

    def take(self, dtype: torch.dtype, length: int) -> torch.Tensor:
        """A tensor (length,), of any content."""
        nbytes = length * dtype.itemsize
        if not nbytes:
            return torch.empty(0, dtype=dtype)
        with self._lock:
            fitting = [
                (block.nbytes, place)
                for place, block in enumerate(self._idle)
                if _LEAST_SHARE * block.nbytes <= nbytes <= block.nbytes
            ]
            block = self._idle.pop(min(fitting)[1]) if fitting else None
            if block is None:
                block = torch.empty(nbytes, dtype=torch.uint8)
            self._lent[block.data_ptr()] = block
            self._lent_bytes += block.nbytes
            self._most_bytes = max(self._most_bytes, self._lent_bytes)
            self._let_go()
        return block[:nbytes].view(dtype)

    def give(self, tensor: torch.Tensor) -> None:
        """Back, to be lent again; the caller keeps no part of it."""
        if not tensor.nbytes:
            return
        with self._lock:
            block = self._lent.pop(tensor.data_ptr())
            self._lent_bytes -= block.nbytes
            self._idle.append(block)
            self._let_go()

    def scratch(self, like: torch.Tensor) -> torch.Tensor:
        """Memory like a flat tensor's (n,), the same at a thread's every call."""
        kept: torch.Tensor | None = getattr(self._own, "kept", None)
        if kept is None or kept.nbytes < like.nbytes:
            kept = self._own.kept = torch.empty(like.nbytes, dtype=torch.uint8)
        return kept[: like.nbytes].view(like.dtype)

    def _let_go(self) -> None:
        idle = sum(block.nbytes for block in self._idle)
        while self._idle and idle + self._lent_bytes > self._most_bytes:
            idle -= self._idle.pop(0).nbytes
