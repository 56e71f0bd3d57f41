"""Training in which the last rank is killed in the middle of a step; the others go on."""

from __future__ import annotations

import os
import signal

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import filled
from tests.process_group.workloads.networks import network, sgd, step

STEPS = 50


class _Fatal(nn.Module):
    """Kills its process in the backward pass of its n-th use; its input is its output."""

    def __init__(self, n: int | None) -> None:
        super().__init__()
        self._left = n

    def forward(self, inputs: Tensor) -> Tensor:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                found = inputs.clone()
                found.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))
                return found
        return inputs


def _network(rank: int, world_size: int) -> nn.Sequential:
    fatal = _Fatal(3 if rank == world_size - 1 else None)
    return nn.Sequential(network(width=16, layers=3)[:4], fatal, network(width=16, layers=3)[4:])


def _train(model: nn.Module, rank: int) -> dict[str, Tensor]:
    optimizer = sgd(model.parameters())
    for i in range(STEPS):
        step(model, optimizer, rank, i)
    return {}


@workload(2, 4)
def ddp(rank: int, world_size: int) -> dict[str, Tensor]:
    """Some of the buckets of the step have gone out already."""
    return _train(DistributedDataParallel(_network(rank, world_size), bucket_cap_mb=0.0005), rank)


@workload(2, 4)
def fsdp(rank: int, world_size: int) -> dict[str, Tensor]:
    mesh = init_device_mesh("cpu", (world_size,))
    model = _network(rank, world_size)
    for part in (model[0], model[2]):
        fully_shard(part, mesh=mesh)
    return _train(fully_shard(model, mesh=mesh), rank)


def _pipeline(rank: int, world_size: int, kind: type) -> dict[str, Tensor]:
    torch.manual_seed(rank)
    module = nn.Sequential(
        nn.Linear(6, 6), _Fatal(11 if rank == world_size - 1 else None), nn.Linear(6, 6)
    )
    stage = PipelineStage(module, rank, world_size, torch.device("cpu"))
    schedule = kind(stage, n_microbatches=8, loss_fn=nn.functional.mse_loss)
    for i in range(STEPS):
        whole = (filled(i, (16, 6)),) if rank == 0 else ()
        if rank == world_size - 1:
            schedule.step(*whole, target=filled(i, (16, 6)))
        else:
            schedule.step(*whole)
    return {}


@workload(2, 4)
def gpipe(rank: int, world_size: int) -> dict[str, Tensor]:
    return _pipeline(rank, world_size, ScheduleGPipe)


@workload(2)
def one_forward_one_backward(rank: int, world_size: int) -> dict[str, Tensor]:
    return _pipeline(rank, world_size, Schedule1F1B)
