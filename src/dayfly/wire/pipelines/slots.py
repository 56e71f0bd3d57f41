"""A buffer whose parts take memory only while they are used.

    parts      |0: 4 bytes|1: 6 bytes|2: 3 bytes|      bytes 4 to 10 of the buffer are part 1
    memory     |          |x x x x x x|         |      which is there alone

A message that comes in makes its part, and `take` empties it. One that was computed is given to
`put`, and forgotten as soon as all of it that is to be sent was handed to the uplink.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import torch

from dayfly.wire.schedule import Kind, Schedule, Span


class Slots:
    """Parts of so many bytes, one after another: the buffer to run `schedule` on, once.

    A `pieces.Buffer` of uint8; any thread may use it. Each span of the schedule lies in one part.
    """

    dtype = torch.uint8
    itemsize = 1

    def __init__(self, sizes: Sequence[int], schedule: Schedule) -> None:
        self._starts = [0, *accumulate(sizes)]
        self._lock = threading.Lock()
        self._parts: dict[int, torch.Tensor] = {}
        self._unsent: dict[int, int] = {}  # bytes of a part that PUTs have still to read
        for op in schedule:
            if op.kind is Kind.PUT and len(op.span):
                number = self._number(op.span.start, op.span.stop)
                self._unsent[number] = self._unsent.get(number, 0) + len(op.span)

    def numel(self) -> int:
        """Bytes of all parts, whether they are there or not."""
        return self._starts[-1]

    @property
    def held_bytes(self) -> int:
        """Bytes of the parts that are there now."""
        with self._lock:
            return sum(part.nbytes for part in self._parts.values())

    def span(self, number: int) -> Span:
        """Where a part lies."""
        return Span(self._starts[number], self._starts[number + 1])

    def __getitem__(self, span: slice) -> torch.Tensor:
        """A span of a part, as a view; the part is made, its bytes undefined, if it is not there.

        Raises ValueError if it lies in several parts, or the slice has a step.
        """
        start, stop, step = span.indices(self.numel())
        if step != 1:
            raise ValueError(f"every {step}th byte of slots: only spans are views")
        if start >= stop:
            return torch.empty(0, dtype=self.dtype)
        number = self._number(start, stop)
        whole = self.span(number)
        with self._lock:
            part = self._parts.get(number)
            if part is None:
                part = self._parts[number] = torch.empty(len(whole), dtype=self.dtype)
            if number in self._unsent:
                self._unsent[number] -= stop - start
                if not self._unsent[number]:
                    del self._parts[number], self._unsent[number]
        return part[start - whole.start : stop - whole.start]

    def put(self, number: int, bytes_N: torch.Tensor) -> None:
        """Make a computed message a part, without a copy; nothing if none of it is to be sent.

        Args:
            bytes_N: flat, contiguous, uint8, on the CPU, as long as the part; ValueError otherwise.
                It must not change any more.
        """
        size = len(self.span(number))
        fits = bytes_N.dtype is self.dtype and bytes_N.shape == (size,)
        if not (fits and bytes_N.is_contiguous() and bytes_N.is_cpu):
            raise ValueError(
                f"part {number} is {size} bytes of uint8 in a row on the CPU, not {bytes_N.dtype}"
                f"{list(bytes_N.shape)} on {bytes_N.device} with strides {list(bytes_N.stride())}"
            )
        with self._lock:
            if number in self._unsent:
                self._parts[number] = bytes_N

    def take(self, number: int) -> torch.Tensor:
        """All of a part, which is the caller's now: memory of its own, to be viewed as any type.

        Raises ValueError if nothing of it is there.
        """
        with self._lock:
            if number not in self._parts:
                raise ValueError(f"part {number} is taken while nothing of it is there")
            return self._parts.pop(number)

    def drop(self, number: int) -> None:
        """Forget a part; nothing if it is not there."""
        with self._lock:
            self._parts.pop(number, None)

    def _number(self, start: int, stop: int) -> int:
        number = bisect_right(self._starts, start) - 1
        if stop > self._starts[number + 1]:
            whole = self.span(number)
            raise ValueError(
                f"bytes {start} to {stop} lie in several parts: one has {whole.start} to "
                f"{whole.stop}"
            )
        return number
