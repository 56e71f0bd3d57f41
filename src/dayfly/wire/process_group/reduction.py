"""Reductions of torch.distributed: how two terms become one, and what is done to the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from dayfly.wire.folds import ADD, Fold

_Type: Any = dist.ReduceOp.RedOpType
_FOLDS: dict[Any, Fold] = {
    _Type.SUM: ADD,
    _Type.AVG: ADD,
    _Type.PREMUL_SUM: ADD,
    _Type.PRODUCT: torch.mul,
    _Type.MIN: torch.minimum,
    _Type.MAX: torch.maximum,
    _Type.BAND: torch.bitwise_and,
    _Type.BOR: torch.bitwise_or,
    _Type.BXOR: torch.bitwise_xor,
}
_BITWISE = (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor)
#: Types without arithmetic of their own in torch: sums, products and bits are those of the signed.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


@dataclass(frozen=True, slots=True)
class Reduction:
    """name: such as SUM. fold: two terms become one. finish: on the result, in place."""

    name: str
    fold: Fold
    finish: Callable[[torch.Tensor], object]

    def check(self, dtype: torch.dtype) -> None:
        """Raise TypeError for a type that cannot be reduced so."""
        exact = not dtype.is_floating_point and not dtype.is_complex
        ordered = self.fold in (torch.minimum, torch.maximum)
        if dtype.is_floating_point and dtype.itemsize == 1:
            raise TypeError(f"{self.name} of {dtype}: it has no arithmetic; reduce in another type")
        if ordered and (dtype.is_complex or dtype in _SIGNED):
            raise TypeError(f"{self.name} of {dtype}: torch has no order for it")
        if self.fold in _BITWISE and not exact:
            raise TypeError(f"{self.name} of {dtype}: only integers and bool have bits to combine")

    def view(self, flat_P: torch.Tensor) -> torch.Tensor:
        """The same memory (P,), as a type that torch can reduce."""
        return flat_P.view(_SIGNED.get(flat_P.dtype, flat_P.dtype))


def reduction(asked: Any, size: int) -> Reduction:
    """What a `ReduceOp` means in a group of `size` members.

    PREMUL_SUM multiplies the sum instead of its terms, which is the same but for rounding.
    """
    kind, factor = asked.__getstate__()
    if kind not in _FOLDS:
        raise ValueError(f"{kind} is no reduction that dayfly knows")

    def divide(total: torch.Tensor) -> None:
        exact = total.dtype.is_floating_point or total.dtype.is_complex
        total.div_(size, rounding_mode=None if exact else "trunc")

    def multiply(total: torch.Tensor) -> None:
        total.mul_(factor)

    finish = {_Type.AVG: divide, _Type.PREMUL_SUM: multiply}.get(kind, _nothing)
    return Reduction(kind.name, _FOLDS[kind], finish)


def _nothing(total: torch.Tensor) -> None:
    return None
