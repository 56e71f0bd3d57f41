"""A pipeline by torch.distributed.pipelining: a stack of layers in stages, replicated if asked.

2 stages, 4 processes:      stage 0     stage 1
               replica 0    rank 0  ->  rank 1
               replica 1    rank 2  ->  rank 3
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


class Pipeline:
    """layers: the whole stack, cut evenly. x (B, ...), y (B,): the samples of this replica."""

    def __init__(
        self,
        layers: list[nn.Module],
        x: torch.Tensor,
        y: torch.Tensor,
        lr: float,
        *,
        schedule: Literal["gpipe", "1f1b"],
        stages: int,
        microbatches: int,
    ) -> None:
        # Takes longer than the rest together.
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

        schedules = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
        mesh = init_device_mesh(
            "cpu", (dist.get_world_size() // stages, stages), mesh_dim_names=("dp", "pp")
        )
        number = mesh.get_local_rank("pp")
        each = len(layers) // stages
        module: nn.Module = nn.Sequential(*layers[number * each : (number + 1) * each])
        if mesh.size(0) > 1:
            module = DistributedDataParallel(module, process_group=mesh.get_group("dp"))
        stage = PipelineStage(
            module, number, stages, torch.device("cpu"), group=mesh.get_group("pp")
        )
        self._schedule = schedules[schedule](
            stage, microbatches, loss_fn=nn.functional.cross_entropy
        )
        self._optimizer = torch.optim.SGD(module.parameters(), lr=lr)
        self._first, self._last = number == 0, number == stages - 1
        self._x, self._y = x, y

    def step(self) -> float | None:
        self._optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        self._schedule.step(
            *([self._x] if self._first else []),
            target=self._y if self._last else None,
            losses=losses if self._last else None,
        )
        self._optimizer.step()
        return torch.stack(losses).mean().item() if self._last else None
