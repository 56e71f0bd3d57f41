"""A worker dies after any of its operations and starts again; nobody's result changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.schedule import Op
from tests.collectives.world import (
    OPERATION,
    SOON_S,
    World,
    random_inputs,
    same_bits,
    sum_in_rank_order,
    world,
)

SIZE, LENGTH = 3, 20


class Death(Exception):
    """Injected."""


def _with_a_death(here: World, dying: int, after: int, inputs: list[torch.Tensor]) -> int:
    """One step in which `dying` dies after its `after`-th operation; how many deaths there were.

    Its successor knows nothing but what is in the channel, and has a new engine and channel.
    """
    deaths, done = [], []

    def observe(op: Op) -> None:
        done.append(op)
        if len(done) > after:
            deaths.append(op)
            raise Death(str(op))

    here.step += 1
    step, buffers = here.step, [buffer.clone() for buffer in inputs]

    def work(rank: int) -> None:
        if rank != dying:
            return here.engines[rank].all_reduce(buffers[rank], step, OPERATION)
        _, doomed = here.worker(rank, observe)
        try:
            doomed.all_reduce(buffers[rank], step, OPERATION)
        except Death:
            _, successor = here.worker(rank)
            buffers[rank] = inputs[rank].clone()
            successor.all_reduce(
                buffers[rank], step, OPERATION, successor.stored_sums(step, OPERATION)
            )

    with ThreadPoolExecutor(SIZE) as pool:
        for call in [pool.submit(work, rank) for rank in range(SIZE)]:
            call.result(2 * SOON_S)
    expected = sum_in_rank_order(inputs)
    for rank, buffer in enumerate(buffers):
        assert same_bits(buffer, expected), f"rank {rank}, dying {dying} after {after}"
    assert here.left() == set(here.collective.sums(SIZE)), "the log is the sums alone"
    return len(deaths)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
@pytest.mark.parametrize("dying", range(SIZE))
def test_a_death_after_any_operation_changes_nothing(name: str, dying: int) -> None:
    with world(COLLECTIVES[name], SIZE) as here:
        after = 0
        while _with_a_death(here, dying, after, random_inputs(SIZE, LENGTH, after)):
            after += 1
        assert after == len(here.engines[dying].schedule(LENGTH))


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
@pytest.mark.parametrize("rank", range(SIZE))
def test_a_worker_taken_for_dead_may_finish_before_its_successor(name: str, rank: int) -> None:
    """The successor looked for sums before there were any, and waits for contributions that are
    dropped by now: it finds the sum that they were for."""
    inputs = random_inputs(SIZE, LENGTH, 5)
    with world(COLLECTIVES[name], SIZE) as here:
        here.all_reduce(inputs)
        _, successor = here.worker(rank)
        buffer = inputs[rank].clone()
        successor.all_reduce(buffer, here.step, OPERATION)
        assert same_bits(buffer, sum_in_rank_order(inputs))
