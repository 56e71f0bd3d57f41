"""Several operations in flight, futures, and what a group is told of its work."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from tests.process_group.workloads import workload
from tests.process_group.workloads.data import filled


@workload(2, 4)
def waited_in_another_order(rank: int, world_size: int) -> dict[str, Tensor]:
    values = [filled(rank + i, (100 * i + 1,)) for i in range(9)]
    works = [dist.all_reduce(value, async_op=True) for value in values]
    for i in (4, 8, 0, 2, 1, 7, 3, 6, 5):
        work = works[i]
        assert work is not None
        assert work.wait()
        assert work.is_completed()
    return {str(i): value for i, value in enumerate(values)}


@workload(2, 4)
def different_ones_at_once(rank: int, world_size: int) -> dict[str, Tensor]:
    total, told = filled(rank, (50,)), filled(rank, (60,))
    gathered = torch.zeros(8 * world_size)
    part = torch.zeros(5)
    exchanged = torch.zeros(3 * world_size)
    works = [
        dist.all_reduce(total, async_op=True),
        dist.broadcast(told, 1, async_op=True),
        dist.all_gather_into_tensor(gathered, filled(rank, (8,)), async_op=True),
        dist.reduce_scatter_tensor(part, filled(rank, (5 * world_size,)), async_op=True),
        dist.all_to_all_single(exchanged, filled(rank, (3 * world_size,)), async_op=True),
        dist.barrier(async_op=True),
    ]
    for work in reversed(works):
        assert work is not None
        work.wait(timedelta(seconds=20))
    return {"total": total, "told": told, "gathered": gathered, "part": part, "all": exchanged}


@workload(2, 4)
def futures(rank: int, world_size: int) -> dict[str, Tensor]:
    work = dist.all_reduce(filled(rank, (5,)), async_op=True)
    assert work is not None
    halved = work.get_future().then(lambda done: done.value()[0] / 2)
    value = filled(rank, (3,))
    other = dist.broadcast(value, 0, async_op=True)
    assert other is not None
    shown = other.get_future().then(lambda done: done.value()[0] + 1)
    return {"halved": halved.wait(), "shown": torch.futures.wait_all([shown])[0]}


@workload(2, 4)
def collectives_in_callbacks(rank: int, world_size: int) -> dict[str, Tensor]:
    """A callback may communicate and wait, as PowerSGD's do."""

    def again(done: torch.futures.Future[list[Tensor]]) -> Tensor:
        value = done.value()[0]
        dist.all_reduce(value)
        return value

    work = dist.all_reduce(filled(rank, (5,)), async_op=True)
    assert work is not None
    return {"twice": work.get_future().then(again).wait()}


@workload(2)
def callbacks_that_raise(rank: int, world_size: int) -> dict[str, Tensor]:
    def wrong(done: torch.futures.Future[list[Tensor]]) -> Tensor:
        raise ValueError("as it should")

    work = dist.all_reduce(filled(rank, (5,)), async_op=True)
    assert work is not None
    try:
        work.get_future().then(wrong).wait()
    except Exception as error:
        return {f"raised {'as it should' in str(error)}": torch.ones(1)}
    return {}


class Lingers:
    """Takes long to go."""

    def __del__(self) -> None:
        time.sleep(0.3)


@workload(2)
def callbacks_that_outlive_the_group(rank: int, world_size: int) -> dict[str, Tensor]:
    """A thread lets go of a callback, and so of the group, when that is destroyed already."""

    def called_back(
        done: torch.futures.Future[list[Tensor]],
        # Defaults go last to first.
        group: dist.ProcessGroup | None = dist.group.WORLD,
        lingers: Lingers = Lingers(),  # noqa: B008
    ) -> Tensor:
        return done.value()[0] + 1

    dist.barrier()
    time.sleep(0.1 * rank)  # so that the other rank's is called by a thread
    work = dist.all_reduce(filled(rank, (5,)), async_op=True)
    assert work is not None
    called = work.get_future().then(called_back)
    del called_back
    return {"called": called.wait()}


@workload(2, 4)
def never_waited_for(rank: int, world_size: int) -> dict[str, Tensor]:
    """Work that nobody holds is done all the same."""
    values = [filled(rank, (20,)) for _ in range(5)]
    for value in values:
        dist.all_reduce(value, async_op=True)
    dist.barrier()
    last = filled(rank, (4,))
    dist.all_reduce(last)
    return {"last": last}
