"""Tensors of any place and layout as flat CPU memory, for the time of an operation.

contiguous, on the CPU    its own memory
other strides             a copy, and back
on a GPU                  pinned memory: copied there and back by a stream of its own, so that
                          neither the caller nor other kernels wait
"""

from __future__ import annotations

import torch


class Staged:
    """A tensor staged. Made in the caller's thread; the rest may be called in another.

    read: whether the operation needs what the tensor holds. write: whether it changes it. Raises
    TypeError for layouts that have no flat memory.
    """

    def __init__(self, tensor: torch.Tensor, *, read: bool = True, write: bool = True) -> None:
        if tensor.layout is not torch.strided:
            raise TypeError(
                f"a tensor of layout {tensor.layout}: only strided ones travel; use to_dense()"
            )
        self.tensor = tensor = _writable(tensor)
        self._read, self._write = read, write
        # Its bytes are its elements, in their order.
        self._plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
        self._flat: torch.Tensor | None = None
        self._stream: torch.cuda.Stream | None = None
        if tensor.is_cuda:
            self._stage_out(tensor)
        elif not tensor.is_cpu:
            raise TypeError(f"a tensor on {tensor.device}: only CPU and CUDA tensors travel")
        elif self._plain:
            self._flat = tensor.detach().view(-1)

    def flat(self) -> torch.Tensor:
        """The elements (P,), contiguous on the CPU; the same memory at every call."""
        if self._stream is not None:
            if self._read:
                self._stream.synchronize()
        elif self._flat is None:
            self._flat = _memory(self.tensor)
            if self._read:
                self._flat.view(self.tensor.shape).copy_(self.tensor.detach())
        assert self._flat is not None
        return self._flat

    def put_back(self) -> None:
        """Once the operation is over: the tensor holds what the flat memory does."""
        if not self._write or self._flat is None:
            return
        with torch.no_grad():
            if self._stream is not None:
                with torch.cuda.stream(self._stream):
                    self.tensor.copy_(self._flat.view(self.tensor.shape), non_blocking=True)
                self._stream.synchronize()
            elif not self._plain:
                self.tensor.copy_(self._flat.view(self.tensor.shape))

    def _stage_out(self, tensor: torch.Tensor) -> None:
        stream = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        # What was asked of the tensor before comes first.
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        self._flat = _memory(tensor, pinned=True)
        if self._read:
            with torch.cuda.stream(stream):
                self._flat.view(tensor.shape).copy_(tensor.detach(), non_blocking=True)
        # Its memory is not to be given to others before the stream is done with it.
        tensor.record_stream(stream)
        self._stream = stream


def _memory(like: torch.Tensor, *, pinned: bool = False) -> torch.Tensor:
    """Room for the elements of a tensor, to which other threads may write; see `_writable`."""
    with torch.inference_mode(False):
        return torch.empty(like.numel(), dtype=like.dtype, pin_memory=pinned)


def _writable(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory for other threads: `torch.inference_mode` is the caller's thread's alone."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )
    alias = alias.conj() if tensor.is_conj() else alias
    return alias._neg_view() if tensor.is_neg() else alias
