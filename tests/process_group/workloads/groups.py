"""Groups of some of the ranks, meshes of them, and making the world anew."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import filled


@workload(4)
def overlapping(rank: int, world_size: int) -> dict[str, Tensor]:
    """Pairs round a ring: every rank is in two groups, and in the world."""
    groups = [dist.new_group([i, (i + 1) % 4]) for i in range(4)]
    results = {}
    for i, group in enumerate(groups):
        if rank in (i, (i + 1) % 4):
            results[f"pair {i}"] = value = filled(rank, (4,))
            dist.all_reduce(value, group=group)
            results[f"told {i}"] = value = filled(rank, (4,))
            dist.broadcast(value, (i + 1) % 4, group=group)
    results["world"] = value = filled(rank, (4,))
    dist.all_reduce(value)
    return results


@workload(4)
def in_another_order(rank: int, world_size: int) -> dict[str, Tensor]:
    """A group's ranks are as it names them."""
    group = dist.new_group([3, 1, 2])
    results = {}
    if rank != 0:
        gathered = torch.zeros(6)
        dist.all_gather_into_tensor(gathered, filled(rank, (2,)), group=group)
        results["gathered"] = gathered
        results["group rank"] = torch.tensor(dist.get_rank(group))
        value = filled(rank, (3,))
        if rank == 1:
            dist.send(value, 3, group=group)
        if rank == 3:
            dist.recv(value, 1, group=group)
        results["sent"] = value
        results["of the group"] = part = filled(rank, (3,))
        dist.broadcast(part, group=group, group_src=2)
    return results


@workload(4)
def local_synchronization(rank: int, world_size: int) -> dict[str, Tensor]:
    """Each half makes its own group, without the other."""
    mine = [0, 1] if rank < 2 else [2, 3]
    group = dist.new_group(mine, use_local_synchronization=True)
    value = filled(rank, (4,))
    dist.all_reduce(value, group=group)
    pair = dist.new_group([rank % 2, rank % 2 + 2], use_local_synchronization=True)
    other = filled(rank, (4,))
    dist.all_reduce(other, group=pair)
    return {"half": value, "pair": other}


@workload(4)
def subgroups(rank: int, world_size: int) -> dict[str, Tensor]:
    mine, _ = dist.new_subgroups(2)
    value = filled(rank, (4,))
    dist.all_reduce(value, group=mine)
    other, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
    second = filled(rank, (4,))
    dist.all_reduce(second, group=other)
    return {"half": value, "other": second}


@workload(2, 4)
def of_one_rank(rank: int, world_size: int) -> dict[str, Tensor]:
    groups = [dist.new_group([i]) for i in range(world_size)]
    value = filled(rank, (4,))
    dist.all_reduce(value, group=groups[rank])
    gathered = torch.zeros(4)
    dist.all_gather_into_tensor(gathered, value, group=groups[rank])
    part = torch.zeros(4)
    dist.reduce_scatter_tensor(part, value, dist.ReduceOp.AVG, group=groups[rank])
    dist.barrier(groups[rank])
    return {"sum": value, "gathered": gathered, "part": part}


@workload(2, 4)
def at_once(rank: int, world_size: int) -> dict[str, Tensor]:
    """Two groups of the same ranks do not mix up their messages."""
    first, second = dist.new_group(), dist.new_group(timeout=timedelta(seconds=20))
    values = [filled(rank + i, (30,)) for i in range(6)]
    order = range(6) if rank % 2 else [1, 3, 5, 0, 2, 4]  # in each group the same on all ranks
    works = {
        i: dist.all_reduce(values[i], group=second if i % 2 else first, async_op=True)
        for i in order
    }
    for work in works.values():
        assert work is not None
        work.wait()
    return {str(i): value for i, value in enumerate(values)}


@workload(2, 4)
def destroyed_and_made_again(rank: int, world_size: int) -> dict[str, Tensor]:
    """A group is let go of; others of the same ranks are made after it."""
    results = {}
    for i in range(3):
        group = dist.new_group()
        results[str(i)] = value = filled(rank + i, (5,))
        dist.all_reduce(value, group=group)
        dist.destroy_process_group(group)
    return results


@workload(4)
def meshes(rank: int, world_size: int) -> dict[str, Tensor]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    results = {"place": torch.tensor(mesh.get_coordinate())}
    for name in ("rows", "columns"):
        results[name] = value = filled(rank, (4,))
        dist.all_reduce(value, group=mesh[name].get_group())
        assert mesh[name].size() == 2
    flat = mesh._flatten("flat")
    results["flat"] = value = filled(rank, (4,))
    dist.all_reduce(value, group=flat.get_group())
    return results


@workload(2)
def who_and_where(rank: int, world_size: int) -> dict[str, Tensor]:
    group = dist.new_group([0, 1])
    assert dist.is_initialized()
    assert dist.get_process_group_ranks(group) == [0, 1]
    assert dist.get_global_rank(group, 1) == 1
    assert dist.get_group_rank(group, 0) == 0
    return {"rank": torch.tensor([dist.get_rank(), dist.get_world_size()])}
