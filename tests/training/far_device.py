"""A device that is not the CPU, for machines that have no other: `far`.

Its tensors hold CPU tensors that nothing else can see. What torch does to them it does to these, so
with the same bits. As on a GPU, an operation that mixes devices is refused: only copies, and
numbers of no dimension, may cross. The kernels are torch's "PrivateUse1" by way of Python.

Registered for the whole process, for good: import it only in a process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "far"
_aten = torch.ops.aten
#: Operations that may go from one device to another.
_COPIES = {_aten._to_copy.default, _aten.copy_.default, _aten._foreach_copy_.default}


class Far(torch.Tensor):
    """A tensor on the far device. near: the CPU tensor that has its elements."""

    near: torch.Tensor

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> Far:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            near.size(),
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=f"{NAME}:0",
        )
        made.near = near
        return made  # type: ignore[no-any-return]

    def __init__(self, near: torch.Tensor) -> None:
        pass

    def data_ptr(self) -> int:
        return self.near.data_ptr()

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _run(func, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl


def _run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Do it to the CPU tensors; what comes out is far, unless another device was asked for."""
    given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    crossing = [x for x in given if not isinstance(x, Far) and x.dim()]
    if crossing and func not in _COPIES:
        raise RuntimeError(f"{func}: all tensors must be on one device, not on far:0 and the CPU")
    asked = kwargs.get("device")
    stays = asked is None or torch.device(asked).type == NAME
    kwargs = {**kwargs, "device": torch.device("cpu")} if asked is not None else kwargs
    given_near = {id(x.near if isinstance(x, Far) else x): x for x in given}

    def far(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in given_near:  # in place
            return given_near[id(value)]
        return Far(value) if stays else value

    args, kwargs = pytree.tree_map_only(Far, lambda one: one.near, (args, kwargs))
    return pytree.tree_map(far, func(*args, **kwargs))


def _fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    return _run(op, args, kwargs)


_setup_privateuseone_for_python_backend(NAME)
_library = torch.library.Library("_", "IMPL")
_library.fallback(_fallback, "PrivateUse1")
