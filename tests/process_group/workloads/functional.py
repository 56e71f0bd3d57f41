"""Functional collectives, as compiled programs and DTensor use them."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch import Tensor

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import filled


@workload(2, 4)
def plain(rank: int, world_size: int) -> dict[str, Tensor]:
    group = dist.group.WORLD
    assert group is not None
    value = filled(rank, (world_size * 2, 3))
    results = {
        "sum": functional.all_reduce(value, "sum", group),
        "average": functional.all_reduce(value, "avg", group),
        "largest": functional.all_reduce(value, "max", group),
        "gathered": functional.all_gather_tensor(value, 0, group),
        "gathered along 1": functional.all_gather_tensor(value, 1, group),
        "scattered": functional.reduce_scatter_tensor(value, "sum", 0, group),
        "exchanged": functional.all_to_all_single(value, None, None, group),
        "told": functional.broadcast(value, 1, group),
        "unchanged": value,
    }
    pair = [filled(rank, (3,)), filled(rank + 1, (2, 2))]
    for i, found in enumerate(functional.all_reduce_coalesced(pair, "sum", group)):
        results[f"coalesced {i}"] = found
    for i, found in enumerate(functional.all_gather_into_tensor_coalesced(pair, group)):
        results[f"gathered coalesced {i}"] = found
    wide = [filled(rank, (world_size * 3,)), filled(rank, (world_size, 2))]
    scattered = functional.reduce_scatter_tensor_coalesced(wide, "sum", [0, 0], group)
    for i, found in enumerate(scattered):
        results[f"scattered coalesced {i}"] = found
    return {name: functional.wait_tensor(found).clone() for name, found in results.items()}


@workload(2)
def traced(rank: int, world_size: int) -> dict[str, Tensor]:
    """The graph that torch.compile makes of them."""
    group = dist.group.WORLD
    assert group is not None

    @torch.compile(backend="eager", fullgraph=True)
    def program(value: Tensor) -> Tensor:
        total = functional.all_reduce(value * 2, "sum", group)
        return functional.all_gather_tensor(total + rank, 0, group).cos()

    found = program(filled(rank, (3, 2)))
    torch._dynamo.reset()
    return {"found": found}


@workload(2, 4)
def differentiated(rank: int, world_size: int) -> dict[str, Tensor]:
    value = filled(rank, (world_size, 2)).requires_grad_()
    total = differentiable.all_reduce(value * (rank + 1))
    parts = differentiable.all_gather(value)
    loss = (total**2).sum() + sum(((i + 1) * part).sum() for i, part in enumerate(parts))
    loss.backward()
    assert value.grad is not None
    return {"loss": loss.detach(), "gradient": value.grad}


@workload(2)
def traced_through(rank: int, world_size: int) -> dict[str, Tensor]:
    """What a compiled program calls in place, it calls as it would without the compiler."""

    @torch.compile(backend="eager")
    def program(value: Tensor) -> list[Tensor]:
        told, total, summed = value * 2, value + 1, value - 1
        dist.broadcast(told, 1)
        dist.reduce(total, 0)
        work = dist.all_reduce(summed, async_op=True)
        work.wait()
        parts = [torch.zeros_like(value) for _ in range(2)] if rank == 0 else None
        dist.gather(value.cos(), parts, 0)
        own = torch.zeros_like(value)
        dist.scatter(own, [value, value + 3] if rank == 0 else None, 0)
        return [told, summed, own * 2, *([total, *parts] if parts else [])]

    found = program(filled(rank, (3, 2)))
    torch._dynamo.reset()
    return {f"{number}": one for number, one in enumerate(found)}


@workload(2)
def gathered_in_place(rank: int, world_size: int) -> dict[str, Tensor]:
    """As Inductor has FSDP2 gather its parameters."""
    own, whole = filled(rank, (3, 2)), torch.zeros(6, 2)
    name = dist.group.WORLD.group_name  # type: ignore[union-attr]
    gather = torch.ops._c10d_functional.all_gather_into_tensor_out
    found = torch.ops._c10d_functional.wait_tensor(gather(own, 2, name, out=whole))
    return {"found": found, "whole": whole}
