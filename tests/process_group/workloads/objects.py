"""Objects instead of tensors."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import filled


def _of(rank: int) -> dict[str, Any]:
    return {"rank": rank, "text": "é" * rank * 50, "tensor": filled(rank), "none": None}


def _check(found: Any, rank: int) -> None:
    expected = _of(rank)
    assert torch.equal(found.pop("tensor"), expected.pop("tensor"))
    assert found == expected


@workload(2, 4)
def gathered(rank: int, world_size: int) -> dict[str, Tensor]:
    everywhere: list[Any] = [None] * world_size
    dist.all_gather_object(everywhere, _of(rank))
    for peer, found in enumerate(everywhere):
        _check(found, peer)
    here: list[Any] | None = [None] * world_size if rank == 1 else None
    dist.gather_object(_of(rank), here, 1)
    for peer, found in enumerate(here or []):
        _check(found, peer)
    return {}


@workload(2, 4)
def told(rank: int, world_size: int) -> dict[str, Tensor]:
    values: list[Any] = [_of(7), "second", [3]] if rank == 1 else [None] * 3
    dist.broadcast_object_list(values, 1)
    _check(values[0], 7)
    assert values[1:] == ["second", [3]]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [_of(i) for i in range(world_size)] if rank == 0 else None, 0)
    _check(mine[0], rank)
    return {}


@workload(2, 4)
def sent(rank: int, world_size: int) -> dict[str, Tensor]:
    if rank == 0:
        for peer in range(1, world_size):
            dist.send_object_list([_of(peer), peer], peer)
    else:
        values: list[Any] = [None, None]
        dist.recv_object_list(values, 0)
        _check(values[0], rank)
        assert values[1] == rank
    return {}
