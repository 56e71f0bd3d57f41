"""torch.distributed.checkpoint: saved, loaded, into other shards too, saved in the background."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, zeros

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import filled
from tests.process_group.workloads.networks import network, sgd, step


def _whole(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in model.state_dict().items()
    }


@workload(2, 4)
def saved_and_loaded(rank: int, world_size: int) -> dict[str, Tensor]:
    """Model and optimizer, into ones that began otherwise; both go on to the same."""
    mesh = init_device_mesh("cpu", (world_size,))
    model = fully_shard(network(), mesh=mesh)
    optimizer = sgd(model.parameters())
    step(model, optimizer, rank, 0)
    parts = get_state_dict(model, optimizer)
    dcp.save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id="kept")
    step(model, optimizer, rank, 1)

    other = fully_shard(network(), mesh=mesh)
    its = sgd(other.parameters())
    begun = get_state_dict(other, its)
    state = {"model": begun[0], "optimizer": begun[1]}
    dcp.load(state, checkpoint_id="kept")
    set_state_dict(other, its, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    step(other, its, rank, 1)
    expected = _whole(model)
    for name, value in _whole(other).items():
        assert torch.equal(value, expected[name]), name
    return expected


@workload(2, 4)
def into_other_shards(rank: int, world_size: int) -> dict[str, Tensor]:
    mesh = init_device_mesh("cpu", (world_size,))
    whole = filled(3, (2 * world_size + 1, 6))
    dcp.save({"value": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id="kept")
    results = {}
    for name, placement in (("columns", Shard(1)), ("whole", Replicate())):
        value = zeros(whole.shape, device_mesh=mesh, placements=[placement])
        dcp.load({"value": value}, checkpoint_id="kept")
        results[name] = value.to_local()
    return results


@workload(2)
def in_the_background(rank: int, world_size: int) -> dict[str, Tensor]:
    """The save has its own group, and goes on beside the training's collectives."""
    beside = dist.new_group()
    state = {"replicated": filled(9, (50,)), "own": {f"of {rank}": filled(rank, (20,))}}
    saving = dcp.async_save(state, checkpoint_id="kept", process_group=beside)
    value = filled(rank)
    for _ in range(5):
        dist.all_reduce(value)
    saving.result()
    found = {"replicated": torch.zeros(50), "own": {f"of {rank}": torch.zeros(20)}}
    dcp.load(found, checkpoint_id="kept")
    own = found["own"]
    assert isinstance(own, dict)
    return {"sum": value, "replicated": state["replicated"], "own": own[f"of {rank}"]}
