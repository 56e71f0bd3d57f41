"""FSDP2, and FSDP1 where it works on a CPU; tensors that are shared out; tensor parallel layers."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import filled
from tests.process_group.workloads.networks import CLASSES, FEATURES, batch, network, sgd, step

STEPS = 3


def _sharded(mesh: DeviceMesh, policy: MixedPrecisionPolicy | None = None) -> nn.Sequential:
    """Layer by layer; some are not to be divided evenly."""
    model = network(width=18)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    fully_shard(model, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    return model


def _whole(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: value.full_tensor().detach() if isinstance(value, DTensor) else value.detach().clone()
        for name, value in model.state_dict().items()
    }


def _trained(model: nn.Module, rank: int) -> dict[str, Tensor]:
    optimizer = sgd(model.parameters())
    losses = [step(model, optimizer, rank, i) for i in range(STEPS)]
    return {"losses": torch.stack(losses), **_whole(model)}


@workload(2, 4)
def plain(rank: int, world_size: int) -> dict[str, Tensor]:
    return _trained(_sharded(init_device_mesh("cpu", (world_size,))), rank)


@workload(2)
def mixed_precision(rank: int, world_size: int) -> dict[str, Tensor]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return _trained(_sharded(init_device_mesh("cpu", (world_size,)), policy), rank)


@workload(2)
def reduced_in_half_precision(rank: int, world_size: int) -> dict[str, Tensor]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    return _trained(_sharded(init_device_mesh("cpu", (world_size,)), policy), rank)


@workload(4)
def hybrid(rank: int, world_size: int) -> dict[str, Tensor]:
    """Shards within rows, replicas across them."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    return _trained(_sharded(mesh), rank)


@workload(2, 4)
def clipped(rank: int, world_size: int) -> dict[str, Tensor]:
    model = _sharded(init_device_mesh("cpu", (world_size,)))
    optimizer = sgd(model.parameters())
    norms = []
    for i in range(STEPS):
        inputs, classes = batch(rank, i)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), classes).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        assert isinstance(norm, DTensor)
        norms.append(norm.full_tensor())
        optimizer.step()
    return {"norms": torch.stack(norms), **_whole(model)}


@workload(2)
def accumulated(rank: int, world_size: int) -> dict[str, Tensor]:
    model = _sharded(init_device_mesh("cpu", (world_size,)))
    optimizer = sgd(model.parameters())
    for i in range(4):
        model.set_requires_gradient_sync(i % 2 == 1)
        inputs, classes = batch(rank, i)
        nn.functional.cross_entropy(model(inputs), classes).backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
    return _whole(model)


@workload(2, 4)
def full_state(rank: int, world_size: int) -> dict[str, Tensor]:
    """Gathered on rank 0, and told from there to a model that began otherwise."""
    mesh = init_device_mesh("cpu", (world_size,))
    model = _sharded(mesh)
    optimizer = sgd(model.parameters())
    step(model, optimizer, rank, 0)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    full = get_model_state_dict(model, options=options)
    state = get_optimizer_state_dict(model, optimizer, options=options)
    other = _sharded(mesh)
    told = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, full if rank == 0 else {}, options=told)
    momenta = {
        f"momentum of {name}": values["momentum_buffer"]
        for name, values in state.get("state", {}).items()
    }
    return {**_whole(other), **momenta}


@workload(2)
def first_kind(rank: int, world_size: int) -> dict[str, Tensor]:
    """FSDP1."""
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = sgd(model.parameters())
    losses = [step(model, optimizer, rank, i) for i in range(STEPS)]
    with FullyShardedDataParallel.summon_full_params(model):
        whole = {name: value.detach().clone() for name, value in model.named_parameters()}
    return {"losses": torch.stack(losses), **whole}


@workload(2)
def first_kind_gradients_alone(rank: int, world_size: int) -> dict[str, Tensor]:
    model = FullyShardedDataParallel(
        network(),
        device_id=torch.device("cpu"),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    )
    optimizer = sgd(model.parameters())
    return {"losses": torch.stack([step(model, optimizer, rank, i) for i in range(STEPS)])}


@workload(2, 4)
def redistributed(rank: int, world_size: int) -> dict[str, Tensor]:
    mesh = init_device_mesh("cpu", (world_size,))
    whole = filled(0, (4 * world_size + 1, 6))
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    again = columns.redistribute(mesh, [Replicate()])
    partial = DTensor.from_local(filled(rank, (2 * world_size, 3)), mesh, [Partial()])
    product = distribute_tensor(filled(0, (6, 8)), mesh, [Shard(1)]) @ distribute_tensor(
        filled(1, (8, 3)), mesh, [Shard(0)]
    )
    return {
        "rows": rows.to_local(),
        "columns": columns.to_local(),
        "again": again.to_local(),
        "sum": partial.redistribute(mesh, [Replicate()]).to_local(),
        "part of the sum": partial.redistribute(mesh, [Shard(0)]).to_local(),
        "product": product.full_tensor(),
    }


@workload(4)
def redistributed_in_a_plane(rank: int, world_size: int) -> dict[str, Tensor]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    spread = distribute_tensor(filled(0, (6, 8)), mesh, [Shard(0), Shard(1)])
    turned = spread.redistribute(mesh, [Shard(1), Replicate()])
    return {"local": turned.to_local(), "whole": spread.full_tensor()}


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.up = nn.Linear(FEATURES, 16)
        self.down = nn.Linear(16, FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.head(inputs + self.down(self.up(self.norm(inputs)).relu()))
        return found


@workload(2, 4)
def tensor_parallel(rank: int, world_size: int) -> dict[str, Tensor]:
    """Every rank has the same batch, and a part of each layer."""
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (world_size,))
    model = parallelize_module(_Block(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = sgd(model.parameters())
    losses = [step(model, optimizer, 0, i) for i in range(STEPS)]
    return {"losses": torch.stack(losses), **_whole(model)}


@workload(2)
def sequence_parallel(rank: int, world_size: int) -> dict[str, Tensor]:
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (world_size,))
    norm = parallelize_module(nn.LayerNorm(6), mesh, SequenceParallel())
    inputs = filled(0, (1, 4 * world_size, 6)).requires_grad_()
    found = norm(inputs)
    assert isinstance(found, DTensor)
    found.full_tensor().square().sum().backward()
    weight = norm.weight.grad
    assert isinstance(weight, DTensor)
    return {"found": found.full_tensor().detach(), "weight": weight.full_tensor()}


@workload(4)
def shards_of_tensor_parallel_layers(rank: int, world_size: int) -> dict[str, Tensor]:
    """2 x 2: FSDP2 over what tensor parallel layers hold."""
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = parallelize_module(_Block(), mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["data"])
    optimizer = sgd(model.parameters())
    replica = dist.get_rank(mesh["data"].get_group())
    losses = [step(model, optimizer, replica, i) for i in range(STEPS)]
    return {"losses": torch.stack(losses), **_whole(model)}


@workload(2)
def compiled(rank: int, world_size: int) -> dict[str, Tensor]:
    """FSDP2 of layers that torch.compile has traced."""
    model = _sharded(init_device_mesh("cpu", (world_size,)))
    for layer in model:
        layer.compile(backend="aot_eager")
    found = _trained(model, rank)
    torch._dynamo.reset()
    return found
