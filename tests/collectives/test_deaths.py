"""A worker dies after any of its operations and starts again; nobody's result changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import torch

from dayfly.wire.buffers import Buffer
from dayfly.wire.codec import CODECS
from dayfly.wire.collectives.conformance import CollectiveCase
from dayfly.wire.collectives.conformance_world import (
    OPERATION,
    SOON_S,
    World,
    same_bits,
    world,
)
from dayfly.wire.packing import Packing
from dayfly.wire.schedule import Op
from tests.collectives.algorithms import REPLAYED, TREES

pytestmark = pytest.mark.long

#: Two chunks a split, for those that have chunks.
SIZE, LENGTH, CHUNK = 3, 20, 3
#: Those that sum in the order of ranks, as codecs need.
PACKED = [one for one in REPLAYED if one.name != "ring"]


class Death(Exception):
    """Injected."""


@dataclass
class Buffers:
    """What ranks bring to a sum: as it is, or by a codec and with a tail.

    Args:
        inputs: of all ranks.
        tails: beside them; none: nothing is compressed.
    """

    algorithm: CollectiveCase
    inputs: list[torch.Tensor]
    tails: list[torch.Tensor] = field(default_factory=list)

    def of(self, rank: int) -> tuple[Buffer, Packing | None]:
        """A rank's, anew."""
        buffer = self.algorithm.buffer(rank, SIZE, self.inputs)
        if not self.tails:
            return buffer, None
        return buffer, Packing(CODECS["int8"](), self.tails[rank].clone())

    def expected(self, here: World) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The sums with nothing in the way, in a step of its own."""
        if not self.tails:
            return self.algorithm.expected(self.inputs), None
        here.step += 1
        found = [self.of(rank) for rank in range(SIZE)]
        with ThreadPoolExecutor(SIZE) as pool:
            calls = [
                pool.submit(engine.all_reduce, *(buffer, here.step, OPERATION), packing=packing)
                for engine, (buffer, packing) in zip(here.engines, found, strict=True)
            ]
            for call in calls:
                call.result(SOON_S)
        return found[0][0][0:LENGTH], self.algorithm.expected(self.tails)


def _with_a_death(here: World, dying: int, after: int, given: Buffers) -> int:
    """One step in which `dying` dies after its `after`-th operation; how many deaths there were.

    Its successor knows nothing but what is in the channel, and has a new engine and channel.
    """
    expected, tail = given.expected(here)
    deaths, done = [], []

    def observe(op: Op) -> None:
        done.append(op)
        if len(done) > after:
            deaths.append(op)
            raise Death(str(op))

    here.step += 1
    step, found = here.step, [given.of(rank) for rank in range(SIZE)]

    def work(rank: int) -> None:
        buffer, packing = found[rank]
        if rank != dying:
            return here.engines[rank].all_reduce(buffer, step, OPERATION, packing=packing)
        _, doomed = here.worker(rank, observe)
        try:
            doomed.all_reduce(buffer, step, OPERATION, packing=packing)
        except Death:
            _, successor = here.worker(rank)
            buffer, packing = found[rank] = given.of(rank)
            stored = successor.stored_sums(buffer, step, OPERATION)
            successor.all_reduce(buffer, step, OPERATION, stored, packing)

    with ThreadPoolExecutor(SIZE) as pool:
        for call in [pool.submit(work, rank) for rank in range(SIZE)]:
            call.result(2 * SOON_S)
    for rank, (buffer, packing) in enumerate(found):
        where = f"rank {rank}, dying {dying} after {after}"
        assert same_bits(buffer[0:LENGTH], expected), where
        if packing is not None and packing.tail is not None and tail is not None:
            assert same_bits(packing.tail, tail), where
    assert here.left() == here.sums(LENGTH), "the log is the sums alone"
    return len(deaths)


@pytest.mark.parametrize("algorithm", [*REPLAYED, *TREES], ids=str)
@pytest.mark.parametrize("dying", range(SIZE))
def test_a_death_after_any_operation_changes_nothing(algorithm: CollectiveCase, dying: int) -> None:
    with world(algorithm.of(SIZE), SIZE, CHUNK) as here:
        after = 0
        inputs = algorithm.inputs(SIZE, LENGTH, 0)
        while _with_a_death(here, dying, after, Buffers(algorithm, inputs)):
            after += 1
            inputs = algorithm.inputs(SIZE, LENGTH, after)
        assert after == len(here.engines[dying].schedule(inputs[dying]))


@pytest.mark.parametrize("algorithm", PACKED, ids=str)
@pytest.mark.parametrize("dying", range(SIZE))
def test_a_death_after_any_operation_changes_nothing_of_a_tail(
    algorithm: CollectiveCase, dying: int
) -> None:
    """Nor of what is compressed."""
    with world(algorithm.of(SIZE), SIZE, CHUNK) as here:
        after, deaths = 0, 1
        while deaths:
            inputs, tails = (algorithm.inputs(SIZE, n, after) for n in (LENGTH, 7))
            deaths = _with_a_death(here, dying, after, Buffers(algorithm, inputs, tails))
            after += deaths
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
