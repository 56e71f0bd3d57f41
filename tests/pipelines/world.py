"""A pipeline in one process: an engine a rank, each in its own thread, over one channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from dayfly.wire.channels.base import Channel
from dayfly.wire.collectives import SCATTER_REDUCE
from dayfly.wire.engine import Engine
from dayfly.wire.execution import stored_names
from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.pipelines.step import PipelineStep
from dayfly.wire.schedule import Op, Work
from tests.pipelines.kit import Stage, expected

#: Seconds until a test is hung rather than slow; nothing waits that long when all is well.
SOON_S = 120.0
OPERATION = "pipe"


def attempt(
    step: PipelineStep,
    channel: Channel,
    number: int,
    *,
    again: bool = False,
    observe: Callable[[Op], None] | None = None,
    held: Callable[[Work, Slots], None] | None = None,
    ahead: int = 2,
) -> Stage:
    """One rank's work in a step; what it got and made. again: it looks for what is stored."""
    stored = stored_names(channel, number, OPERATION, step.puts()) if again else frozenset()
    schedule = step.schedule(stored, ahead=ahead)
    slots, stage = Slots(step.sizes(), schedule), Stage(step)
    rank = step.layout.rank(step.stage_rank.stage, step.stage_rank.replica)

    def compute(work: Work) -> None:
        stage.on(slots, work)
        if held is not None:
            held(work, slots)

    with Engine(
        channel,
        SCATTER_REDUCE,
        rank,
        step.layout.world_size,
        timeout_s=SOON_S,
        observe=observe,
    ) as engine:
        engine.run(schedule, slots, number, OPERATION, compute=compute)
    assert slots.held_bytes == 0
    return stage


def all_ranks(steps: Sequence[PipelineStep], work: Callable[[int], Stage]) -> list[Stage]:
    """What every rank got and made, each at work in a thread of its own."""
    with ThreadPoolExecutor(len(steps)) as pool:
        calls = [pool.submit(work, rank) for rank in range(len(steps))]
        return [call.result(2 * SOON_S) for call in calls]


def check(stages: Sequence[Stage]) -> None:
    """Every pass of every rank got and made the bytes that were computed by hand."""
    for stage, other in zip(stages, expected([stage.step for stage in stages]), strict=True):
        for mine, right in ((stage.came, other.came), (stage.made, other.made)):
            assert mine.keys() == right.keys()
            for work, values in mine.items():
                assert torch.equal(values, right[work]), f"{work} at {stage.step.stage_rank}"
