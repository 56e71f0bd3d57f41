"""Where a worker computes: on the CPU, or on the part of a GPU that its function has.

    data, wire, store, checkpoints     on the CPU, always
    model, optimizer, gradients        on the worker's device
    flat buffer                        on both: see `mirror`

A function that has a GPU sees that one alone, as its first (the platform sets CUDA_VISIBLE_DEVICES
before torch looks for devices), so the device is cuda:0 in all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from dayfly.errors import RunFailed

CPU = torch.device("cpu")
#: What cuBLAS needs in the environment, before it is first used, to sum in one order always.
_CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def device_of_function(gpu_share: float | None) -> torch.device:
    """The device of a function with this share of a GPU, None: of no GPU; to be asked for once.

    On a GPU, torch is told to compute the same bits again wherever it has a way to, and to warn
    where it has none. Raises RunFailed if torch cannot use the GPU that the function was given.
    """
    if gpu_share is None:
        return CPU
    for name, value in _CUBLAS.items():
        os.environ.setdefault(name, value)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # It would also fill each new tensor, to show who reads what nobody wrote: time for nothing.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        device = torch.empty(0, device="cuda:0").device
    except (RuntimeError, AssertionError) as error:  # a build without CUDA asserts
        raise RunFailed(
            f"this function has {gpu_share:g} of a GPU, and torch cannot use it: {error}"
        ) from error
    return device


def device_of(model: nn.Module) -> torch.device:
    """Where a model is, by its first parameter or buffer; the CPU for one that has neither."""
    for named in (model.parameters(), model.buffers()):
        for tensor in named:
            return tensor.device
    return CPU


def to_device(values: Any, device: torch.device) -> Any:
    """A batch, or another tree of tensors, on a device; on the CPU it is left as it is.

    Asks whatever has a method `to`, and goes into mappings, lists and tuples; the rest is left
    alone. A copy to a GPU begins at once, and nobody waits for it: what the GPU is asked to do
    next is done after it.
    """
    if device.type == "cpu":
        return values
    if isinstance(values, torch.Tensor):
        if device.type == "cuda" and values.is_cpu:
            return values.pin_memory().to(device, non_blocking=True)
        return values.to(device)
    if hasattr(values, "to"):
        return values.to(device)
    if isinstance(values, Mapping):
        moved = {key: to_device(value, device) for key, value in values.items()}
        try:
            return type(values)(moved)  # type: ignore[call-arg]  # as default_collate makes them
        except TypeError:
            return moved
    if isinstance(values, tuple):
        items = [to_device(value, device) for value in values]
        return type(values)(*items) if hasattr(values, "_fields") else tuple(items)
    if isinstance(values, list):
        return [to_device(value, device) for value in values]
    return values


def to_wire(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as the wire takes it: contiguous, on the CPU, detached; a copy only if need be.

    Waits until a GPU has computed it.
    """
    return tensor.detach().to(CPU).contiguous()
