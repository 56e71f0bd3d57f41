"""Rank 0's engine; tests play the other ranks by hand on its channel."""

from __future__ import annotations

import torch

from dayfly.wire.channels.base import Channel
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.engine import Engine
from dayfly.wire.keys import EVERYONE, Key
from dayfly.wire.message import Header, as_bytes

#: Far longer than any test takes: who waits for it was not ended.
LONG_S = 600.0
SCATTER_REDUCE = COLLECTIVES["scatter-reduce"]


def engine(channel: Channel, size: int = 2, **more: object) -> Engine:
    """Rank 0's engine."""
    return Engine(channel, SCATTER_REDUCE, 0, size, **{"timeout_s": LONG_S, **more})  # type: ignore[arg-type]


def put(channel: Channel, step: int, phase: str, source: int, value: torch.Tensor) -> None:
    """A message of another rank: its part for rank 0, or its sum for everyone."""
    key = Key(step, f"grad-{phase}", source, 0 if phase == "part" else EVERYONE)
    assert channel.put(key, Header(key.operation, value.dtype, tuple(value.shape)), as_bytes(value))


def play_rank_1(channel: Channel, step: int, dtype: torch.dtype = torch.float32) -> None:
    """What rank 1 of 2 sends when both hold (1, 2, 3, 4)."""
    put(channel, step, "part", 1, torch.tensor([1, 2], dtype=dtype))
    put(channel, step, "sum", 1, torch.tensor([6, 8], dtype=dtype))


def four(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor([1, 2, 3, 4], dtype=dtype)
