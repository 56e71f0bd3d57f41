"""DistributedDataParallel, in its variants and with its hooks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from tests.process_group.workloads import workload
from tests.process_group.workloads.networks import (
    CLASSES,
    FEATURES,
    batch,
    held,
    network,
    sgd,
    step,
)

STEPS = 4


def _trained(rank: int, model: nn.Module | None = None, **options: Any) -> dict[str, Tensor]:
    ddp = DistributedDataParallel(model or network(), **options)
    optimizer = sgd(ddp.parameters())
    losses = [step(ddp, optimizer, rank, i) for i in range(STEPS)]
    return {"losses": torch.stack(losses), **held(ddp)}


@workload(2, 4)
def plain(rank: int, world_size: int) -> dict[str, Tensor]:
    return _trained(rank)


@workload(2, 4)
def small_buckets(rank: int, world_size: int) -> dict[str, Tensor]:
    return _trained(rank, network(layers=4), bucket_cap_mb=0.001)


@workload(2, 4)
def bucket_views(rank: int, world_size: int) -> dict[str, Tensor]:
    return _trained(rank, gradient_as_bucket_view=True)


@workload(2, 4)
def static_graph(rank: int, world_size: int) -> dict[str, Tensor]:
    return _trained(rank, static_graph=True)


@workload(2)
def one_model_for_all(rank: int, world_size: int) -> dict[str, Tensor]:
    """Replicas begin as rank 0's, however they were made."""
    model = network()
    with torch.no_grad():
        model[0].weight.add_(rank)
    return _trained(rank, model)


@workload(2, 4)
def accumulated(rank: int, world_size: int) -> dict[str, Tensor]:
    """no_sync: three backward passes, and the sum of the last alone travels."""
    ddp = DistributedDataParallel(network(), bucket_cap_mb=0.001)
    optimizer = sgd(ddp.parameters())
    for i in range(2):
        optimizer.zero_grad()
        with ddp.no_sync():
            for part in range(2):
                inputs, classes = batch(rank, 10 * i + part)
                nn.functional.cross_entropy(ddp(inputs), classes).backward()
        inputs, classes = batch(rank, 10 * i + 2)
        nn.functional.cross_entropy(ddp(inputs), classes).backward()
        optimizer.step()
    return held(ddp)


class _Branches(nn.Module):
    """Rank and step say which branch is used; one is never."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.calls = rank, 0
        self.first = nn.Linear(FEATURES, 8)
        self.branches = nn.ModuleList(nn.Linear(8, CLASSES) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        found: Tensor = self.branches[(self.rank + self.calls) % 2](self.first(inputs).relu())
        return found


@workload(2, 4)
def unused_parameters(rank: int, world_size: int) -> dict[str, Tensor]:
    return _trained(rank, _Branches(rank), find_unused_parameters=True)


class _Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)
        self.body = network(width=8)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.body(self.norm(inputs))
        return found


@workload(2, 4)
def buffers(rank: int, world_size: int) -> dict[str, Tensor]:
    """Rank 0's running statistics are told before each step."""
    return _trained(rank, _Normalised())


@workload(2, 4)
def uneven_inputs(rank: int, world_size: int) -> dict[str, Tensor]:
    """Join: rank r has r + 1 batches."""
    ddp = DistributedDataParallel(network())
    optimizer = sgd(ddp.parameters())
    with Join([ddp]):
        for i in range(rank + 1):
            step(ddp, optimizer, rank, i)
    return held(ddp)


@workload(2, 4)
def uneven_inputs_of_those_that_are_left(rank: int, world_size: int) -> dict[str, Tensor]:
    """Join, where gradients are divided by the ranks that still have a batch."""
    ddp = DistributedDataParallel(network())
    optimizer = sgd(ddp.parameters())
    with ddp.join(divide_by_initial_world_size=False):
        for i in range(2 * rank + 1):
            step(ddp, optimizer, rank, i)
    return held(ddp)


@workload(2)
def mixed_precision(rank: int, world_size: int) -> dict[str, Tensor]:
    """Passes in bfloat16, parameters and their sums in float32."""
    ddp = DistributedDataParallel(network())
    optimizer = sgd(ddp.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        losses = [step(ddp, optimizer, rank, i) for i in range(STEPS)]
    return {"losses": torch.stack(losses), **held(ddp)}


@workload(2, 4)
def sharded_optimizer(rank: int, world_size: int) -> dict[str, Tensor]:
    ddp = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(
        ddp.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9, parameters_as_bucket_view=True
    )
    for i in range(STEPS):
        step(ddp, optimizer, rank, i)
    optimizer.consolidate_state_dict(0)
    return held(ddp)


def _hooked(
    rank: int, state: Any, hook: Any, steps: int = STEPS, bucket_cap_mb: float | None = 0.001
) -> dict[str, Tensor]:
    ddp = DistributedDataParallel(network(), bucket_cap_mb=bucket_cap_mb)
    ddp.register_comm_hook(state, hook)
    optimizer = sgd(ddp.parameters())
    for i in range(steps):
        step(ddp, optimizer, rank, i)
    return held(ddp)


@workload(2, 4)
def all_reduce_hook(rank: int, world_size: int) -> dict[str, Tensor]:
    return _hooked(rank, None, default_hooks.allreduce_hook)


@workload(2)
def half_precision_hook(rank: int, world_size: int) -> dict[str, Tensor]:
    return _hooked(rank, None, default_hooks.fp16_compress_hook)


@workload(2)
def power_sgd_hook(rank: int, world_size: int) -> dict[str, Tensor]:
    """Communicates in callbacks of other collectives. In which order they run is chance, torch's
    own too (gloo aborts), so it has one bucket.
    """
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    return _hooked(rank, state, powerSGD_hook.powerSGD_hook, 6, None)


@workload(2, 4)
def local_sgd(rank: int, world_size: int) -> dict[str, Tensor]:
    """Averages within pairs, and of all models every other step."""
    pair, _ = dist.new_subgroups(2)
    ddp = DistributedDataParallel(network())
    ddp.register_comm_hook(PostLocalSGDState(None, pair, start_localSGD_iter=2), post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=2)
    optimizer = PostLocalSGDOptimizer(optim=sgd(ddp.parameters()), averager=averager)
    for i in range(6):
        step(ddp, optimizer, rank, i)
    return held(ddp)


@workload(2)
def own_hook(rank: int, world_size: int) -> dict[str, Tensor]:
    """A user's hook: a future of a future's work."""

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP does not know postponed ones
        work = dist.all_reduce(bucket.buffer().div_(world_size), async_op=True)
        assert work is not None
        return work.get_future().then(lambda done: done.value()[0].mul_(0.5))

    return _hooked(rank, None, hook)
