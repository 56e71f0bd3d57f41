"""Tensors as the bytes that travel."""

from __future__ import annotations

import torch


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy; writing to them writes the tensor."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"bytes of a tensor on {tensor.device}, strides {tensor.stride()}")
    flat = tensor.detach().view(-1).view(torch.uint8)
    return memoryview(flat.numpy().data)
