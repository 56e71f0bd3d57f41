"""Pipelines on real bytes: over files, as in memory and as over a link, and between workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dayfly.wire.channels import direct
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.channels.files import FileChannel
from dayfly.wire.channels.kinds import Direct
from dayfly.wire.collectives.conformance_world import LinkedChannel as Distant
from dayfly.wire.keys import HEADER_BYTES, Key
from dayfly.wire.pipelines.orders import BACKWARD, ORDERS, MakeOrder, fill_drain, forward_only
from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary
from dayfly.wire.schedule import Work
from tests.channels.kit import eventually, plan, site
from tests.pipelines.kit import Boundaries, Stage, pipeline
from tests.pipelines.world import OPERATION, all_ranks, attempt, check

CHUNK = 3


@pytest.fixture(params=[FileChannel, Distant, Direct], ids=["immediate", "distant", "tcp"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Channel]]:
    """The channel's end of each of eight ranks."""
    with ExitStack() as stack:
        if request.param is Direct:
            kind, where = Direct(), site(tmp_path, "tcp://")
            made = stack.enter_context(kind.create(where, plan(8)))
            yield [stack.enter_context(kind.open(where, rank)) for rank in range(8)]
            made.destroy()  # nobody waits for readers of last messages
            return
        names = Namespace("run", 0)
        stack.enter_context(
            FileChannel.make(tmp_path, names, senders=8, budget_bytes=2**24, ahead_bytes=2**18)
        )
        yield [stack.enter_context(request.param(tmp_path, names)) for _ in range(8)]


def ragged(layout: Layout, micro_batches: list[int]) -> list[Boundaries]:
    """Messages of different sizes, some of one chunk and some of several."""
    return [
        [
            {
                number: StageBoundary(
                    activation_bytes=5 + 3 * number + at + 2 * replica,
                    gradient_bytes=4 + number + at,
                )
                for number in micro_batches
            }
            for at in range(layout.stages - 1)
        ]
        for replica in range(layout.replicas)
    ]


def one_step(steps: list[PipelineStep], ends: list[Channel], number: int, rank: int) -> Stage:
    return attempt(steps[rank], ends[rank], number)


@pytest.mark.parametrize("layout", [Layout(2, 1), Layout(3, 2), Layout(4, 1)], ids=str)
@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS)
def test_the_right_bytes_come(ends: list[Channel], layout: Layout, make: MakeOrder) -> None:
    micro_batches = [0, 1, 3, 4]
    steps = pipeline(layout, make, micro_batches, ragged(layout, micro_batches), CHUNK)
    for number in range(2):
        check(all_ranks(steps, partial(one_step, steps, ends, number)))


def test_forward_alone(ends: list[Channel]) -> None:
    layout = Layout(3, 1)
    steps = pipeline(layout, forward_only, [0, 1], ragged(layout, [0, 1]), CHUNK)
    check(all_ranks(steps, partial(one_step, steps, ends, 0)))


def test_what_is_read_is_dropped_in_one_go(ends: list[Channel]) -> None:
    layout = Layout(3, 2)
    steps = pipeline(layout, fill_drain, [0, 1], ragged(layout, [0, 1]), CHUNK)
    all_ranks(steps, partial(one_step, steps, ends, 0))
    if ends[0].abilities.replays:
        assert sum(len(ends[0].waiting(rank)) for rank in range(6)) == sum(
            len(step.puts()) for step in steps
        )
    for rank, step in enumerate(steps):
        ends[rank].drop(
            Key(0, f"{OPERATION}-{name.phase}", name.source, name.destination)
            for name in step.gets()
        )

    def gone() -> bool:
        return [ends[0].waiting(rank) for rank in range(6)] == [[]] * 6

    if ends[0].abilities.direct:  # its source hears after the reader has it that it arrived
        eventually(gone, "what was read is dropped")
    assert gone()


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_parts_take_memory_only_while_they_are_used(ends: list[Channel], ahead: int) -> None:
    """While a pass is computed: the inputs of the next few, the outputs of the last few."""
    layout, micro_batches = Layout(3, 1), list(range(6))
    size = 30
    one = StageBoundary(activation_bytes=size, gradient_bytes=size)
    boundaries: list[Boundaries] = [[dict.fromkeys(micro_batches, one)] * 2]
    steps = pipeline(layout, fill_drain, micro_batches, boundaries, CHUNK)
    most = [0] * 3

    def run(rank: int) -> Stage:
        def held(work: Work, slots: Slots) -> None:
            most[rank] = max(most[rank], slots.held_bytes)

        return attempt(steps[rank], ends[rank], 0, held=held, ahead=ahead)

    check(all_ranks(steps, run))
    if ends[0].immediate:  # one operation at a time: an output alone
        assert most == [size] * 3
    assert max(most) <= (2 * ahead + 1) * size


def test_a_stage_may_learn_nothing(ends: list[Channel]) -> None:
    """No gradients go back to the first of three stages."""
    layout = Layout(3, 1)
    boundaries = ragged(layout, [0, 1])
    frozen = {number: replace(one, gradient_bytes=0) for number, one in boundaries[0][0].items()}
    steps = pipeline(layout, fill_drain, [0, 1], [[frozen, boundaries[0][1]]], CHUNK)
    stages = all_ranks(steps, partial(one_step, steps, ends, 0))
    check(stages)
    assert not [name for step in steps for name in step.puts() if name.destination == 0]
    assert all(not len(stages[0].came[Work(BACKWARD, number)]) for number in (0, 1))


@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS)
def test_an_outbox_may_be_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: MakeOrder
) -> None:
    """It holds as many chunks as are in flight; a put waits for readers."""
    chunk, layout, micro_batches = 1000, Layout(3, 1), list(range(4))
    monkeypatch.setattr(direct, "_LEAST_OUTBOX_BYTES", 0)
    one = StageBoundary(activation_bytes=3 * chunk, gradient_bytes=3 * chunk)
    steps = pipeline(layout, make, micro_batches, [[dict.fromkeys(micro_batches, one)] * 2], chunk)
    kind, where = Direct(), site(tmp_path, "tcp://")
    outbox_bytes = kind.abilities.in_flight * (chunk + HEADER_BYTES)
    with (
        kind.create(where, plan(3, ahead_bytes=outbox_bytes // 2)) as made,
        ExitStack() as stack,
    ):
        ends = [stack.enter_context(kind.open(where, rank)) for rank in range(3)]
        check(all_ranks(steps, partial(one_step, steps, ends, 0)))
        made.destroy()
