"""Tensors that tell their rank, of every type and shape."""

from __future__ import annotations

import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
ALL = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
SHAPES = ((7,), (3, 5), (), (0,), (2, 0, 3))


def filled(
    rank: int, shape: tuple[int, ...] = (7,), dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Elements that differ by rank and place; sums and products of four stay exact in integers."""
    count = torch.Size(shape).numel()
    elements = (torch.arange(count) * (rank + 3) + rank) % 5
    if dtype == torch.bool:
        return (elements > 1).reshape(shape)
    if dtype in INTEGERS:
        return (elements % 3 + 1).to(dtype).reshape(shape)
    if dtype in COMPLEX:
        return torch.complex(elements / 3, (elements - 2) / 7).to(dtype).reshape(shape)
    return ((elements + 1) / 3 + 0.01 * rank).to(dtype).reshape(shape)  # nothing cancels


def transposed(rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """(4, 3), its rows beside each other in memory."""
    return filled(rank, (3, 4), dtype).t()


def strided(rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """(6,), every other element of a longer one."""
    return filled(rank, (12,), dtype)[::2]


def views(rank: int) -> dict[str, torch.Tensor]:
    """Tensors whose elements do not stand side by side, with others between them."""
    return {
        "transposed": transposed(rank),
        "strided": strided(rank),
        "column": filled(rank, (4, 5))[:, 2],
        "narrow": filled(rank, (4, 6))[1:3, 1:4],
        "offset": filled(rank, (9,))[4:],
    }


def dense(rank: int) -> dict[str, torch.Tensor]:
    """Those of them without others' elements between theirs: gloo reduces just these in place."""
    return {name: views(rank)[name] for name in ("transposed", "offset")}


def short(dtype: torch.dtype) -> str:
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")
