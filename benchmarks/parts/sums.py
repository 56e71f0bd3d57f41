"""Buffers whose sums are known without summing, exactly, after any number of all-reduces in a row.

Rank r's buffer repeats r, r+1, ..., modulo a prime, so every element counts, and no chunk can take
another's place unseen. All of it is whole numbers, which float32 adds without rounding in any order
up to 2^24; and an all-reduce of equal buffers is a multiplication by n, exact for powers of 2.
"""

from __future__ import annotations

import torch

_PERIOD = 251
#: Ranks begin so many places apart.
_APART = 83
_EXACT = 2**24
_GREATEST = 2.0**127


def most_exact(world_size: int, operations: int) -> int:
    """So many operations, or as many as are `exact`."""
    return max(number for number in range(1, operations + 1) if exact(world_size, number))


def exact(world_size: int, operations: int) -> bool:
    """Whether the sums of so many all-reduces in a row have no rounding in float32."""
    first, last = (_PERIOD - 1) * world_size, world_size ** (operations - 1)
    return first * last < (_EXACT if world_size & (world_size - 1) else _GREATEST)


def fill(buffer_P: torch.Tensor, rank: int) -> None:
    """Write a rank's contribution into a flat float32 buffer (P,)."""
    _write(buffer_P, _contribution(rank))


def is_sum(buffer_P: torch.Tensor, world_size: int, operations: int) -> bool:
    """Whether the buffer (P,) holds, to the bit, what so many all-reduces in a row give."""
    total = sum(_contribution(rank) for rank in range(world_size))
    assert isinstance(total, torch.Tensor)
    total = total * float(world_size) ** (operations - 1)
    whole = buffer_P.numel() // _PERIOD * _PERIOD
    tail = buffer_P[whole:]
    return torch.equal(buffer_P[:whole].view(-1, _PERIOD), total.expand(whole // _PERIOD, -1)) and (
        torch.equal(tail, total[: tail.numel()])
    )


def _contribution(rank: int) -> torch.Tensor:
    return torch.arange(_PERIOD, dtype=torch.float32).roll(-_APART * rank)


def _write(buffer_P: torch.Tensor, period: torch.Tensor) -> None:
    whole = buffer_P.numel() // _PERIOD * _PERIOD
    buffer_P[:whole].view(-1, _PERIOD).copy_(period.expand(whole // _PERIOD, -1))
    buffer_P[whole:] = period[: buffer_P.numel() - whole]
