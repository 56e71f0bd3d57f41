"""Programs that are wrong: ranks out of step, or that leave the others alone."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.process_group.workloads import workload


@workload(2)
def different_operations(rank: int, world_size: int) -> dict[str, Tensor]:
    """Rank 0 reduces where rank 1 gathers."""
    value = torch.ones(4)
    dist.all_reduce(value)
    if rank == 0:
        dist.all_reduce(value)
    else:
        dist.all_gather_into_tensor(torch.zeros(8), value)
    return {}


@workload(2)
def reduced_and_told(rank: int, world_size: int) -> dict[str, Tensor]:
    value = torch.ones(4)
    if rank == 0:
        dist.broadcast(value, 0)
        dist.barrier()
    else:
        dist.all_reduce(value)
    return {}


@workload(2)
def different_shapes(rank: int, world_size: int) -> dict[str, Tensor]:
    dist.all_reduce(torch.ones(4 + rank))
    return {}


@workload(2)
def different_types(rank: int, world_size: int) -> dict[str, Tensor]:
    dist.all_reduce(torch.ones(4, dtype=torch.float64 if rank else torch.float32))
    return {}


@workload(2)
def a_letter_of_another_shape(rank: int, world_size: int) -> dict[str, Tensor]:
    if rank == 0:
        dist.send(torch.ones(5), 1)
        dist.barrier()
    else:
        dist.recv(torch.zeros(3), 0)
    return {}


@workload(2)
def nobody_sends(rank: int, world_size: int) -> dict[str, Tensor]:
    if rank == 0:
        dist.recv(torch.zeros(3), 1, tag=7)
    else:
        dist.barrier()
    return {}


@workload(4)
def one_raises(rank: int, world_size: int) -> dict[str, Tensor]:
    dist.barrier()
    if rank == 2:
        raise ZeroDivisionError("the user's own")
    dist.all_reduce(torch.ones(4))
    return {}


@workload(2)
def refused_before_it_begins(rank: int, world_size: int) -> dict[str, Tensor]:
    """What is wrong on all ranks is refused, and the group goes on."""
    for call in (
        lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.BXOR),
        lambda: dist.all_reduce(torch.ones(4, 4).to_sparse_csr()),
        lambda: dist.all_reduce(torch.ones(4).to_sparse_coo(), dist.ReduceOp.MAX),
        lambda: dist.broadcast(torch.ones(4).to_sparse_coo(), 0),
        lambda: dist.all_to_all_single(torch.zeros(3), torch.zeros(3)),
    ):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            call()
    value = torch.ones(3)
    dist.all_reduce(value)
    return {"sum": value}


@workload(2)
def waited_for_briefly(rank: int, world_size: int) -> dict[str, Tensor]:
    """A wait that ends too early changes nothing: the work goes on, and is waited for again."""
    value = torch.ones(3)
    go = Path("go")
    if rank == 0:
        work = dist.all_reduce(value, async_op=True)
        assert work is not None
        with pytest.raises(Exception, match=r"0\.2 s"):
            work.wait(timedelta(seconds=0.2))
        go.touch()
        work.wait()
    else:
        while not go.exists():
            time.sleep(0.01)
        dist.all_reduce(value)
    return {"sum": value}
