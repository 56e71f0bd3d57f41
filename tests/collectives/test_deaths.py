"""A worker dies after any of its operations and starts again; nobody's result changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dayfly.wire.collectives.conformance import CollectiveCase
from dayfly.wire.collectives.conformance_world import (
    OPERATION,
    SOON_S,
    World,
    same_bits,
    world,
)
from dayfly.wire.schedule import Op
from tests.collectives.algorithms import REPLAYED, TREES

pytestmark = pytest.mark.long

#: Two chunks a split, for those that have chunks.
SIZE, LENGTH, CHUNK = 3, 20, 3


class Death(Exception):
    """Injected."""


def _with_a_death(
    here: World, algorithm: CollectiveCase, dying: int, after: int, inputs: list[torch.Tensor]
) -> int:
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
    step, buffers = here.step, [algorithm.buffer(rank, SIZE, inputs) for rank in range(SIZE)]

    def work(rank: int) -> None:
        if rank != dying:
            return here.engines[rank].all_reduce(buffers[rank], step, OPERATION)
        _, doomed = here.worker(rank, observe)
        try:
            doomed.all_reduce(buffers[rank], step, OPERATION)
        except Death:
            _, successor = here.worker(rank)
            buffers[rank] = algorithm.buffer(rank, SIZE, inputs)
            successor.all_reduce(
                buffers[rank],
                step,
                OPERATION,
                successor.stored_sums(buffers[rank], step, OPERATION),
            )

    with ThreadPoolExecutor(SIZE) as pool:
        for call in [pool.submit(work, rank) for rank in range(SIZE)]:
            call.result(2 * SOON_S)
    expected = algorithm.expected(inputs)
    for rank, buffer in enumerate(buffers):
        assert same_bits(buffer[0:LENGTH], expected), f"rank {rank}, dying {dying} after {after}"
    assert here.left() == here.sums(LENGTH), "the log is the sums alone"
    return len(deaths)


@pytest.mark.parametrize("algorithm", [*REPLAYED, *TREES], ids=str)
@pytest.mark.parametrize("dying", range(SIZE))
def test_a_death_after_any_operation_changes_nothing(algorithm: CollectiveCase, dying: int) -> None:
    with world(algorithm.of(SIZE), SIZE, CHUNK) as here:
        after = 0
        inputs = algorithm.inputs(SIZE, LENGTH, 0)
        while _with_a_death(here, algorithm, dying, after, inputs):
            after += 1
            inputs = algorithm.inputs(SIZE, LENGTH, after)
        assert after == len(here.engines[dying].schedule(inputs[dying]))


@pytest.mark.parametrize("algorithm", [*REPLAYED, *TREES], ids=str)
@pytest.mark.parametrize("rank", range(SIZE))
def test_a_worker_taken_for_dead_may_finish_before_its_successor(
    algorithm: CollectiveCase, rank: int
) -> None:
    """The successor looked for sums before there were any, and waits for contributions that are
    dropped by now: it finds the sums that they were for."""
    inputs = algorithm.inputs(SIZE, LENGTH, 5)
    with world(algorithm.of(SIZE), SIZE, CHUNK) as here:
        here.sum_up([algorithm.buffer(one, SIZE, inputs) for one in range(SIZE)])
        _, successor = here.worker(rank)
        buffer = algorithm.buffer(rank, SIZE, inputs)
        successor.all_reduce(buffer, here.step, OPERATION)
        assert same_bits(buffer[0:LENGTH], algorithm.expected(inputs))
