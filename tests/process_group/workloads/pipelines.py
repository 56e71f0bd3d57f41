"""Schedules of torch.distributed.pipelining over a stack of layers; with DDP and FSDP2."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import filled
from tests.process_group.workloads.networks import sgd

WIDTH, MICRO_BATCHES, STEPS = 6, 8, 2


def _layers(stage: int) -> nn.Module:
    torch.manual_seed(100 + stage)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


def _loss(found: Tensor, wanted: Tensor) -> Tensor:
    return ((found - wanted) ** 2).mean()


def _run(
    schedule: Any, modules: dict[int, nn.Module], stages: int, replica: int = 0
) -> dict[str, Tensor]:
    """Training steps; the parameters of this rank's stages and, if it has the last, losses."""
    optimizers = [sgd(module.parameters()) for module in modules.values()]
    losses: list[Tensor] = []
    for i in range(STEPS):
        whole = (filled(10 * i + replica, (16, WIDTH)),) if 0 in modules else ()
        if stages - 1 in modules:
            schedule.step(*whole, target=filled(i + replica, (16, WIDTH)), losses=losses)
        else:
            schedule.step(*whole)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    results = {"losses": torch.stack(losses).detach()} if losses else {}
    for stage, module in modules.items():
        for name, value in module.state_dict().items():
            whole_value = value.full_tensor() if isinstance(value, DTensor) else value
            results[f"{stage} {name}"] = whole_value.detach().clone()
    return results


def _single(rank: int, world_size: int, schedule: Any) -> dict[str, Tensor]:
    module = _layers(rank)
    stage = PipelineStage(module, rank, world_size, torch.device("cpu"))
    return _run(
        schedule(stage, n_microbatches=MICRO_BATCHES, loss_fn=_loss), {rank: module}, world_size
    )


def _several(
    rank: int, world_size: int, schedule: Any, *, v_shaped: bool = False, **options: Any
) -> dict[str, Tensor]:
    """Two stages a rank: r and r + n, or in a V r and 2n - 1 - r."""
    count = 2 * world_size
    mine = [rank, count - 1 - rank if v_shaped else rank + world_size]
    modules = {stage: _layers(stage) for stage in mine}
    stages = [
        PipelineStage(module, stage, count, torch.device("cpu"))
        for stage, module in modules.items()
    ]
    return _run(
        schedule(stages, n_microbatches=MICRO_BATCHES, loss_fn=_loss, **options), modules, count
    )


@workload(2, 4, exact=True)
def gpipe(rank: int, world_size: int) -> dict[str, Tensor]:
    return _single(rank, world_size, ScheduleGPipe)


@workload(2, 4, exact=True)
def one_forward_one_backward(rank: int, world_size: int) -> dict[str, Tensor]:
    return _single(rank, world_size, Schedule1F1B)


@workload(2, 4, exact=True)
def interleaved(rank: int, world_size: int) -> dict[str, Tensor]:
    return _several(rank, world_size, ScheduleInterleaved1F1B)


@workload(2, exact=True)
def looped_breadth_first(rank: int, world_size: int) -> dict[str, Tensor]:
    return _several(rank, world_size, ScheduleLoopedBFS)


@workload(2, 4, exact=True)
def interleaved_zero_bubble(rank: int, world_size: int) -> dict[str, Tensor]:
    return _several(rank, world_size, ScheduleInterleavedZeroBubble)


@workload(2, 4, exact=True)
def v_zero_bubble(rank: int, world_size: int) -> dict[str, Tensor]:
    return _several(rank, world_size, ScheduleZBVZeroBubble, v_shaped=True)


@workload(2, exact=True)
def dual_pipe(rank: int, world_size: int) -> dict[str, Tensor]:
    return _several(rank, world_size, ScheduleDualPipeV, v_shaped=True)


@workload(4, exact=True)
def replicated(rank: int, world_size: int) -> dict[str, Tensor]:
    """DDP x pipeline: two replicas of two stages."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "stages"))
    replica, place = mesh.get_local_rank("data"), mesh.get_local_rank("stages")
    module = DistributedDataParallel(_layers(place), process_group=mesh["data"].get_group())
    stage = PipelineStage(module, place, 2, torch.device("cpu"), group=mesh["stages"].get_group())
    schedule = Schedule1F1B(stage, n_microbatches=MICRO_BATCHES, loss_fn=_loss)
    return _run(schedule, {place: module}, 2, replica)


@workload(4, exact=True)
def sharded(rank: int, world_size: int) -> dict[str, Tensor]:
    """FSDP2 x pipeline."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "stages"))
    replica, place = mesh.get_local_rank("data"), mesh.get_local_rank("stages")
    module = fully_shard(_layers(place), mesh=mesh["data"])
    stage = PipelineStage(module, place, 2, torch.device("cpu"), group=mesh["stages"].get_group())
    schedule = ScheduleGPipe(stage, n_microbatches=MICRO_BATCHES, loss_fn=_loss)
    return _run(schedule, {place: module}, 2, replica)


@workload(2, exact=True)
def evaluated(rank: int, world_size: int) -> dict[str, Tensor]:
    """Forward alone."""
    stage = PipelineStage(_layers(rank), rank, world_size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=MICRO_BATCHES, loss_fn=_loss)
    inputs = (filled(0, (16, WIDTH)),) if rank == 0 else ()
    losses: list[Tensor] = []
    if rank == world_size - 1:
        found = schedule.eval(*inputs, target=filled(1, (16, WIDTH)), losses=losses)
        assert found is not None
        return {"found": found.detach(), "losses": torch.stack(losses)}
    schedule.eval(*inputs)
    dist.get_rank()
    return {}
