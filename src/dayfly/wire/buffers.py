"""Memory for what comes from a channel, used again and again.

Threads that each allocate what they receive would each keep what they let go of: the C library
gives memory back thread by thread, late. What is used again is also not new to the kernel.
"""

from __future__ import annotations

import threading
from collections import defaultdict

import torch


class Buffers:
    """Flat CPU tensors, lent and given back; for several threads.

    It keeps no more than was lent at once.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[torch.Tensor]] = defaultdict(list)
        self._lock = threading.Lock()
        self._own = threading.local()

    def take(self, dtype: torch.dtype, length: int) -> torch.Tensor:
        """A tensor (length,), of any content."""
        nbytes = length * dtype.itemsize
        with self._lock:
            kept = self._free[nbytes].pop() if self._free[nbytes] else None
        if kept is None:
            kept = torch.empty(nbytes, dtype=torch.uint8)
        return kept.view(dtype)

    def give(self, tensor: torch.Tensor) -> None:
        """Back, to be lent again; the caller keeps no part of it."""
        with self._lock:
            self._free[tensor.nbytes].append(tensor.view(torch.uint8))

    def scratch(self, like: torch.Tensor) -> torch.Tensor:
        """Memory like a flat tensor's (n,), the same at a thread's every call."""
        kept: torch.Tensor | None = getattr(self._own, "kept", None)
        if kept is None or kept.nbytes < like.nbytes:
            kept = self._own.kept = torch.empty(like.nbytes, dtype=torch.uint8)
        return kept[: like.nbytes].view(like.dtype)
