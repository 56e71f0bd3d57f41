"""Every collective operation, of every type, shape and layout."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    SHAPES,
    dense,
    filled,
    short,
    views,
)

ORDERED = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX)
BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
#: What gloo reduces; it sums booleans as bytes.
REDUCTIONS = [
    *[(op, dtype) for op in (*ORDERED, ReduceOp.AVG) for dtype in FLOATS],
    *[(op, dtype) for op in (*ORDERED, *BITS) for dtype in INTEGERS],
    *[(op, torch.bool) for op in (ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR)],
    *[(ReduceOp.SUM, dtype) for dtype in COMPLEX],
]
#: Of more ranks than two the order of a sum matters; the rest of the product is the same code.
OF_MANY = [(op, torch.float32) for op in (*ORDERED, ReduceOp.AVG)] + [
    (ReduceOp.SUM, dtype) for dtype in ALL if dtype not in (torch.bool, torch.float32)
]


def _reductions(world_size: int) -> list[tuple[ReduceOp.RedOpType, torch.dtype]]:
    return REDUCTIONS if world_size == 2 else OF_MANY


def _named(op: object, *what: object) -> str:
    return " ".join(str(word).rpartition(".")[2] for word in (op, *what))


@workload(2, 4)
def all_reduce(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    for op, dtype in _reductions(world_size):
        results[_named(op, dtype)] = value = filled(rank, (3, 5), dtype)
        dist.all_reduce(value, op)
    return results


@workload(2, 4)
def all_reduce_shapes(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {str(shape): filled(rank, shape) for shape in SHAPES} | dense(rank)
    for value in results.values():
        dist.all_reduce(value)
    return results


@workload(2, 4)
def all_reduce_large(rank: int, world_size: int) -> dict[str, Tensor]:
    """More than one chunk of any channel."""
    value = torch.randn(700_001, generator=torch.Generator().manual_seed(rank))
    dist.all_reduce(value)
    return {"sum": value}


@workload(2, 4)
def reduce(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    root = world_size - 1
    for op, dtype in _reductions(world_size):
        value = filled(rank, (3, 5), dtype)
        dist.reduce(value, root, op)
        if rank == root:
            results[_named(op, dtype)] = value
    for shape in SHAPES:
        value = filled(rank, shape)
        dist.reduce(value, 0)
        if rank == 0:
            results[str(shape)] = value
    return results


@workload(4)
def broadcast(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    for root in range(world_size):
        for dtype in ALL:
            results[f"{root} {short(dtype)}"] = value = filled(rank, (3, 5), dtype)
            dist.broadcast(value, root)
        for shape in SHAPES:
            results[f"{root} {shape}"] = value = filled(rank, shape)
            dist.broadcast(value, root)
        for name, value in dense(rank).items():
            results[f"{root} {name}"] = value
            dist.broadcast(value, root)
    return results


@workload(4)
def all_gather(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    inputs = {short(dtype): filled(rank, (3, 5), dtype) for dtype in ALL}
    inputs |= {str(shape): filled(rank, shape) for shape in SHAPES} | views(rank)
    for name, value in inputs.items():
        outputs = [torch.zeros(value.shape, dtype=value.dtype) for _ in range(world_size)]
        dist.all_gather(outputs, value)
        results |= {f"{name} {i}": output for i, output in enumerate(outputs)}
    return results


@workload(4)
def all_gather_into_tensor(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    for dtype in ALL:
        results[short(dtype)] = output = torch.zeros(2 * world_size, 3, dtype=dtype)
        dist.all_gather_into_tensor(output, filled(rank, (2, 3), dtype))
    results["empty"] = output = torch.zeros(0, 3)
    dist.all_gather_into_tensor(output, filled(rank, (0, 3)))
    results["in place"] = output = torch.zeros(world_size * 4)
    mine = output[rank * 4 : rank * 4 + 4]
    mine.copy_(filled(rank, (4,)))
    dist.all_gather_into_tensor(output, mine)
    return results


@workload(4)
def gather(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    inputs = {short(dtype): filled(rank, (3, 5), dtype) for dtype in ALL if dtype not in COMPLEX}
    inputs |= {str(shape): filled(rank, shape) for shape in SHAPES} | views(rank)
    for i, (name, value) in enumerate(inputs.items()):
        root = i % world_size
        outputs = [torch.zeros(value.shape, dtype=value.dtype) for _ in range(world_size)]
        dist.gather(value, outputs if rank == root else None, root)
        results |= {f"{name} {i}": output for i, output in enumerate(outputs)}
    return results


@workload(4)
def scatter(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    peers = range(world_size)
    inputs = {short(dtype): [filled(i, (3, 5), dtype) for i in peers] for dtype in ALL}
    inputs |= {str(shape): [filled(i, shape) for i in peers] for shape in SHAPES}
    for i, (name, values) in enumerate(inputs.items()):
        root = i % world_size
        results[name] = output = torch.zeros(values[0].shape, dtype=values[0].dtype)
        dist.scatter(output, values if rank == root else None, root)
    return results


@workload(2, 4)
def reduce_scatter(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    for op, dtype in _reductions(world_size):
        results[_named(op, dtype)] = output = torch.zeros(3, 5, dtype=dtype)
        dist.reduce_scatter(
            output, [filled(rank + i, (3, 5), dtype) for i in range(world_size)], op
        )
    for shape in SHAPES:
        results[str(shape)] = output = torch.zeros(shape)
        dist.reduce_scatter(output, [filled(rank + i, shape) for i in range(world_size)])
    return results


@workload(2, 4)
def reduce_scatter_tensor(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    for op, dtype in _reductions(world_size):
        results[_named(op, dtype)] = output = torch.zeros(2, 3, dtype=dtype)
        dist.reduce_scatter_tensor(output, filled(rank, (2 * world_size, 3), dtype), op)
    results["empty"] = output = torch.zeros(0, 3)
    dist.reduce_scatter_tensor(output, filled(rank, (0, 3)))
    results["in place"] = whole = filled(rank, (4 * world_size,))
    dist.reduce_scatter_tensor(whole[rank * 4 : rank * 4 + 4], whole.clone())
    return results


@workload(4)
def all_to_all(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    for dtype in ALL:
        inputs = [filled(rank * 7 + i, (2, 3), dtype) for i in range(world_size)]
        outputs = [torch.zeros(2, 3, dtype=dtype) for _ in range(world_size)]
        dist.all_to_all(outputs, inputs)
        results |= {f"{short(dtype)} {i}": output for i, output in enumerate(outputs)}
    return results


@workload(4)
def all_to_all_single(rank: int, world_size: int) -> dict[str, Tensor]:
    results = {}
    for dtype in ALL:
        results[short(dtype)] = output = torch.zeros(2 * world_size, 3, dtype=dtype)
        dist.all_to_all_single(output, filled(rank, (2 * world_size, 3), dtype))
    sends = [(rank + i) % 3 for i in range(world_size)]  # some of them nothing
    results["uneven"] = output = torch.zeros(sum(sends), 2)
    dist.all_to_all_single(output, filled(rank, (sum(sends), 2)), sends, sends)
    results["none at all"] = output = torch.zeros(0)
    dist.all_to_all_single(output, torch.zeros(0), [0] * world_size, [0] * world_size)
    return results


@workload(4)
def barriers(rank: int, world_size: int) -> dict[str, Tensor]:
    for _ in range(3):
        dist.barrier()
    work = dist.barrier(async_op=True)
    assert work is not None
    work.wait()
    return {}


@workload(2, 4)
def coalesced(rank: int, world_size: int) -> dict[str, Tensor]:
    sums = [filled(rank + i, (i + 2,)) for i in range(3)]
    dist.all_reduce_coalesced(sums)
    more = [filled(rank * 3 + i, (4, i + 1)) for i in range(3)]
    with dist._coalescing_manager():
        for value in more:
            dist.all_reduce(value)
    gathered = [torch.zeros(world_size * 3) for _ in range(2)]
    with dist._coalescing_manager(async_ops=True) as works:
        for i, value in enumerate(gathered):
            dist.all_gather_into_tensor(value, filled(rank + i, (3,)))
    works.wait()
    scattered = [torch.zeros(3) for _ in range(2)]
    with dist._coalescing_manager():
        for i, value in enumerate(scattered):
            dist.reduce_scatter_tensor(value, filled(rank + i, (3 * world_size,)))
    lists = [[torch.zeros(2), torch.zeros(3, 1)] for _ in range(world_size)]
    dist.all_gather_coalesced(lists, [filled(rank, (2,)), filled(rank, (3, 1))])
    named = {"sums": sums, "more": more, "gathered": gathered, "scattered": scattered}
    named |= {f"list {i}": values for i, values in enumerate(lists)}
    return {
        f"{name} {i}": value for name, values in named.items() for i, value in enumerate(values)
    }


@workload(2, 4)
def sparse_sums(rank: int, world_size: int) -> dict[str, Tensor]:
    """Of entries that some members have, one twice; of one dense dimension, and of none at all."""
    found = {}
    for name, rows in (("numbers", ()), ("rows", (3,))):
        indices = torch.tensor([[0, rank, rank], [1, 2, 2]])
        values = filled(rank, (3, *rows))
        tensor = torch.sparse_coo_tensor(indices, values, (world_size, 4, *rows))
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        work.wait()
        found[name] = tensor.to_dense()
    nothing = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), [], (5,))
    dist.all_reduce(nothing)
    return {**found, "nothing": nothing.to_dense()}
