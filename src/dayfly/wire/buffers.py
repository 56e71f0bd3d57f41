"""Memory for what comes from a channel, used again and again.

Threads that each allocate what they receive would each keep what they let go of: the C library
gives memory back thread by thread, late. What is used again is also not new to the kernel.
"""

from __future__ import annotations

import threading

import torch

#: A block serves a request of this share of it, at least; else too much of it would lie idle.
_LEAST_SHARE = 0.5


class Buffers:
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
