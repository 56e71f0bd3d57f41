"""A stage's worker dies after any of its operations and starts again; nobody's bytes change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.collectives.conformance_world import LinkedChannel as Distant
from dayfly.wire.keys import Key
from dayfly.wire.pipelines.orders import ORDERS, MakeOrder
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary, output_part
from dayfly.wire.schedule import Kind, Op
from tests.pipelines.kit import Stage, pipeline
from tests.pipelines.world import OPERATION, SOON_S, all_ranks, attempt, check

pytestmark = pytest.mark.long

LAYOUT, MICRO_BATCHES, CHUNK = Layout(3, 1), range(2), 4


class Death(Exception):
    """Injected."""


class World:
    """Ranks of one pipeline, whose workers may be replaced."""

    def __init__(self, stack: ExitStack, root: Path, kind: type[FileChannel]) -> None:
        self._stack, self._root, self._kind = stack, root, kind
        self._names = Namespace("run", 0)
        stack.enter_context(
            FileChannel.make(root, self._names, senders=3, budget_bytes=2**24, ahead_bytes=2**18)
        )
        self.ends = [self.end() for _ in range(3)]

    def end(self) -> Channel:
        """A worker's end of the channel."""
        return self._stack.enter_context(self._kind(self._root, self._names))


@pytest.fixture(params=[FileChannel, Distant], ids=["immediate", "distant"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack, tmp_path, request.param)


def steps_of(make: MakeOrder) -> list[PipelineStep]:
    """Messages of two chunks, but for one."""
    between = {
        0: StageBoundary(activation_bytes=8, gradient_bytes=9),
        1: StageBoundary(activation_bytes=10, gradient_bytes=5),
    }
    return pipeline(LAYOUT, make, MICRO_BATCHES, [[between] * 2], CHUNK)


def with_a_death(
    here: World, steps: list[PipelineStep], number: int, dying: int, after: int
) -> tuple[list[Stage], list[Op], list[Op]]:
    """What ranks got and made; what was done by `dying` up to its death, and by its successor."""
    done: list[Op] = []
    again: list[Op] = []

    def observe(op: Op) -> None:
        done.append(op)
        if len(done) > after:
            raise Death(str(op))

    def work(rank: int) -> Stage:
        if rank != dying:
            return attempt(steps[rank], here.ends[rank], number)
        try:
            return attempt(steps[rank], here.end(), number, observe=observe)
        except Death:
            return attempt(steps[rank], here.end(), number, again=True, observe=again.append)

    return all_ranks(steps, work), done, again


@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("dying", range(3))
def test_a_death_after_any_operation_changes_nothing(
    here: World, make: MakeOrder, dying: int
) -> None:
    steps = steps_of(make)
    count = len(steps[dying].schedule())
    for after in range(count + 1):
        stages, done, again = with_a_death(here, steps, after, dying, after)
        check(stages)
        assert bool(again) == (after < count)
        _check_the_log(here, stages, after)
        # What it had put by then, its successor does not put again.
        put = {op.name for op in done[: after + 1] if op.kind is Kind.PUT}
        if again:
            assert not put & {op.name for op in again if op.kind is Kind.PUT}


def _check_the_log(here: World, stages: list[Stage], number: int) -> None:
    """All messages of the step are there, each as it was computed by whoever put it first."""
    for stage in stages:
        for work, made in stage.made.items():
            names = [
                name
                for name in stage.step.puts()
                if name.phase.startswith(f"{work.what[0]}{work.micro_batch}-")
            ]
            assert bool(names) == bool(stage.step.sizes()[output_part(work)])
            found = []
            for name in names:
                key = Key(number, f"{OPERATION}-{name.phase}", name.source, name.destination)
                found.append(torch.frombuffer(bytearray(_read(here, key)), dtype=torch.uint8))
            assert torch.equal(torch.cat([*found, torch.empty(0, dtype=torch.uint8)]), made)


def _read(here: World, key: Key) -> bytes:
    return here.ends[0].get_bytes(key, SOON_S)


@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("rank", range(3))
def test_a_step_that_is_over_may_be_computed_again(here: World, make: MakeOrder, rank: int) -> None:
    """As by a worker that goes back to the run checkpoint: it puts nothing, and gets the same."""
    steps = steps_of(make)
    stages = all_ranks(steps, lambda one: attempt(steps[one], here.ends[one], 0))
    done: list[Op] = []
    stages[rank] = attempt(steps[rank], here.end(), 0, again=True, observe=done.append)
    check(stages)
    assert not [op for op in done if op.kind is Kind.PUT]


@pytest.mark.parametrize("rank", range(3))
def test_a_worker_taken_for_dead_may_go_on(here: World, rank: int) -> None:
    """Its successor puts all of it once more, having looked before anything was stored."""
    steps = steps_of(ORDERS["1f1b"])
    stages = all_ranks(steps, lambda one: attempt(steps[one], here.ends[one], 0))
    stages[rank] = attempt(steps[rank], here.end(), 0)
    check(stages)
    _check_the_log(here, stages, 0)
