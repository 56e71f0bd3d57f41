"""What gloo cannot do, held against the formula: each program checks itself."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import COMPLEX, filled, short, transposed, views


def _equal(found: Tensor, expected: Tensor, what: str) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, msg=lambda text: what + text)


def _terms(world_size: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.stack([filled(i, shape, dtype) for i in range(world_size)])


@workload(2, 4)
def short_integers(rank: int, world_size: int) -> dict[str, Tensor]:
    """gloo: Invalid scalar type."""
    terms = torch.arange(world_size * 6, dtype=torch.int16).reshape(world_size, 6)
    for op, expected in (
        (ReduceOp.SUM, terms.sum(0, dtype=torch.int16)),
        (ReduceOp.PRODUCT, terms.prod(0, dtype=torch.int16)),
        (ReduceOp.MAX, terms.amax(0)),
    ):
        value = terms[rank].clone()
        dist.all_reduce(value, op)
        _equal(value, expected, f"{op} ")
    value = terms[rank].clone()
    dist.broadcast(value, 1)
    _equal(value, terms[1], "broadcast ")
    gathered = torch.zeros(world_size * 6, dtype=torch.int16)
    dist.all_gather_into_tensor(gathered, terms[rank])
    _equal(gathered, terms.flatten(), "all_gather ")
    return {}


@workload(2, 4)
def gathered_complex_numbers(rank: int, world_size: int) -> dict[str, Tensor]:
    """gloo: Invalid scalar type."""
    for dtype in COMPLEX:
        outputs = [torch.zeros(3, 5, dtype=dtype) for _ in range(world_size)]
        dist.gather(filled(rank, (3, 5), dtype), outputs if rank == 0 else None, 0)
        if rank == 0:
            _equal(torch.stack(outputs), _terms(world_size, (3, 5), dtype), short(dtype))
    return {}


@workload(2, 4)
def stacked(rank: int, world_size: int) -> dict[str, Tensor]:
    """gloo takes results one after another alone, not stacked."""
    output = torch.zeros(world_size, 2, 3)
    dist.all_gather_into_tensor(output, filled(rank, (2, 3)))
    _equal(output, _terms(world_size, (2, 3), torch.float32), "")
    part = torch.zeros(2, 3)
    dist.reduce_scatter_tensor(part, _terms(world_size, (2, 3), torch.float32))
    _equal(part, filled(rank, (2, 3)) * world_size, "")
    return {}


@workload(2, 4)
def uneven_lists(rank: int, world_size: int) -> dict[str, Tensor]:
    """gloo: invalid tensor size. Rank r sends 2 r + i + 1 elements to rank i."""
    inputs = [filled(rank * 7 + i, (2 * rank + i + 1,)) for i in range(world_size)]
    outputs = [torch.zeros(2 * i + rank + 1) for i in range(world_size)]
    dist.all_to_all(outputs, inputs)
    for i, output in enumerate(outputs):
        _equal(output, filled(i * 7 + rank, (2 * i + rank + 1,)), f"from {i} ")
    gathered = [torch.zeros(i + 1) for i in range(world_size)]
    dist.all_gather(gathered, filled(rank, (rank + 1,)))
    for i, output in enumerate(gathered):
        _equal(output, filled(i, (i + 1,)), f"gathered from {i} ")
    return {}


@workload(2, 4)
def scaled_sums(rank: int, world_size: int) -> dict[str, Tensor]:
    """gloo: Cannot use ReduceOp.PREMUL_SUM. FSDP2 does, where a divisor is set."""
    value = filled(rank)
    dist.all_reduce(value, ReduceOp.PREMUL_SUM(0.25))
    _equal(value, _terms(world_size, (7,), torch.float32).sum(0) / 4, "all_reduce ")
    part = torch.zeros(3)
    dist.reduce_scatter_tensor(part, filled(rank, (world_size * 3,)), ReduceOp.PREMUL_SUM(0.5))
    whole = _terms(world_size, (world_size * 3,), torch.float32).sum(0) / 2
    _equal(part, whole[rank * 3 : rank * 3 + 3], "reduce_scatter ")
    return {}


@workload(2, 4)
def booleans(rank: int, world_size: int) -> dict[str, Tensor]:
    """gloo sums them as bytes, and two is then neither true nor false."""
    terms = _terms(world_size, (9,), torch.bool)
    for op, expected in ((ReduceOp.SUM, terms.any(0)), (ReduceOp.PRODUCT, terms.all(0))):
        value = terms[rank].clone()
        dist.all_reduce(value, op)
        _equal(value.view(torch.uint8), expected.view(torch.uint8), f"{op} ")
    return {}


@workload(2, 4)
def views_in_place(rank: int, world_size: int) -> dict[str, Tensor]:
    """gloo takes memory as it lies, and so changes what stands between a view's elements."""
    for name, view in views(rank).items():
        dist.all_reduce(view)
        expected = torch.stack([views(i)[name] for i in range(world_size)]).sum(0)
        _equal(view, expected, f"all_reduce {name} ")
        told = views(rank)[name]
        dist.broadcast(told, 1)
        _equal(told, views(1)[name], f"broadcast {name} ")
        part = torch.zeros(view.shape)
        inputs = [views(i)[name] for i in range(world_size)]
        dist.scatter(part, inputs if rank == 1 else None, 1)
        _equal(part, inputs[rank], f"scatter {name} ")
        dist.reduce_scatter(part, inputs)
        _equal(part, inputs[rank] * world_size, f"reduce_scatter {name} ")
    whole = filled(rank, (6, 6))
    expected = whole.clone()
    dist.all_reduce(whole[1:3, ::2])
    expected[1:3, ::2] = _terms(world_size, (6, 6), torch.float32).sum(0)[1:3, ::2]
    _equal(whole, expected, "beside it ")
    return {}


@workload(2)
def sent_views(rank: int, world_size: int) -> dict[str, Tensor]:
    """torch itself refuses some of them for gloo."""
    if rank == 0:
        dist.send(filled(0, (12,))[::2], 1)
        dist.send(transposed(0), 1)
    else:
        whole = torch.zeros(12)
        dist.recv(whole[1::2], 0)
        _equal(whole[1::2], filled(0, (12,))[::2], "strided ")
        assert not whole[::2].any()
        turned = torch.zeros(3, 4).t()
        dist.recv(turned, 0)
        _equal(turned, transposed(0), "transposed ")
    return {}
