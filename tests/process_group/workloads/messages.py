"""Point to point: blocking or not, with tags, from anybody, in batches."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import ALL, SHAPES, filled, short, transposed


@workload(2, 4)
def send_and_recv(rank: int, world_size: int) -> dict[str, Tensor]:
    """Round a ring: even ranks send first."""
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    inputs = {short(dtype): filled(rank, (3, 5), dtype) for dtype in ALL}
    inputs |= {str(shape): filled(rank, shape) for shape in SHAPES}
    results = {}
    for name, value in inputs.items():
        results[name] = output = torch.zeros(value.shape, dtype=value.dtype)
        if rank % 2 == 0:
            dist.send(value, after)
            assert dist.recv(output, before) == before
        else:
            dist.recv(output, before)
            dist.send(value, after)
    return results


@workload(2, 4)
def many_in_flight(rank: int, world_size: int) -> dict[str, Tensor]:
    """All receives are posted before the first send, and waited for in the other order."""
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    outputs = [torch.zeros(4, i + 1) for i in range(6)]
    receives = [dist.irecv(output, before) for output in outputs]
    sends = [dist.isend(filled(rank + i, (4, i + 1)), after) for i in range(6)]
    for work in [*reversed(receives), *sends]:
        assert work is not None
        work.wait()
    return {str(i): output for i, output in enumerate(outputs)}


@workload(2)
def tags(rank: int, world_size: int) -> dict[str, Tensor]:
    """Tags say which message is whose, whatever was sent first."""
    outputs = [torch.zeros(3) for _ in range(4)]
    if rank == 0:
        works = [dist.isend(filled(10 * tag, (3,)), 1, tag=tag) for tag in (3, 1, 0, 2)]
    else:
        works = [dist.irecv(outputs[tag], 0, tag=tag) for tag in range(4)]
    for work in works:
        assert work is not None
        work.wait()
    return {str(tag): output for tag, output in enumerate(outputs)}


@workload(2, 4)
def one_tag_keeps_its_order(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    if rank == 0:
        for i in range(5):
            for peer in range(1, world_size):
                dist.send(filled(peer * 5 + i, (2,)), peer)
    else:
        for i in range(5):
            results[str(i)] = output = torch.zeros(2)
            dist.recv(output, 0)
    return results


@workload(2, 4)
def from_anybody(rank: int, world_size: int) -> dict[str, Tensor]:
    """Who was first is chance: the results are by sender."""
    if rank != 0:
        dist.send(filled(rank, (4,)), 0, tag=5)
        return {}
    results = {}
    for _ in range(world_size - 1):
        output = torch.zeros(4)
        results[str(dist.recv(output, tag=5))] = output
    return results


@workload(2, 4)
def batches(rank: int, world_size: int) -> dict[str, Tensor]:
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    outputs = [torch.zeros(3), torch.zeros(2, 2)]
    operations = [
        dist.P2POp(dist.isend, filled(rank, (3,)), after),
        dist.P2POp(dist.isend, filled(rank, (2, 2)), after, tag=1),
        dist.P2POp(dist.irecv, outputs[0], before),
        dist.P2POp(dist.irecv, outputs[1], before, tag=1),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return {str(i): output for i, output in enumerate(outputs)}


@workload(2)
def a_sent_view(rank: int, world_size: int) -> dict[str, Tensor]:
    """A view that is not contiguous may be received in; gloo sends contiguous ones alone."""
    whole = filled(rank, (4, 6))
    if rank == 0:
        dist.send(transposed(0).contiguous(), 1)
        dist.send(whole[1], 1)
    else:
        output = torch.zeros(4, 3)
        dist.recv(output, 0)
        dist.recv(whole[2], 0)
        return {"transposed": output, "whole": whole}
    return {"whole": whole}


@workload(2)
def large_messages(rank: int, world_size: int) -> dict[str, Tensor]:
    value = torch.randn(600_000, generator=torch.Generator().manual_seed(rank))
    output = torch.zeros(600_000)
    peer = 1 - rank
    works = [dist.isend(value, peer), dist.irecv(output, peer)]
    for work in works:
        assert work is not None
        work.wait()
    return {"received": output}
