"""What a message between two stages takes, and a pass among such messages more than alone.

    rank 0    | pass | pass | pass | pass |                | pass | ...      4 micro-batches,
    rank 1           | pass | pass | pass | pass | pass | pass | ...         fill-drain

The two functions that send each other messages (see `exchange`) are stages of a pipeline whose
every pass, forward or backward, is one of the whole job. All CPU time of a step that is no pass's
is its messages': of storing, waiting and being woken, after passes that have driven code and memory
out of the processor's caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from dayfly.runs.task import Task
from dayfly.wire.channels.base import Channel
from dayfly.wire.collectives import collective
from dayfly.wire.engine import Engine
from dayfly.wire.execution import message_key
from dayfly.wire.pipelines.orders import fill_drain
from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.pipelines.step import Layout, PipelineStep, StageBoundary, output_part
from dayfly.wire.schedule import CompiledSchedule, Work

#: Of a step.
MICRO_BATCHES = 4
#: What a pass sends.
PASSED_BYTES = 2**16
#: Passes to tell what one takes alone.
_ALONE = 8


def pipeline_steps(
    task: Task, channel: Channel, run: Callable[[], None], times: int
) -> list[Sequence[float]]:
    """Take steps of a pipeline of two, as one of its ranks.

    Args:
        task: the rank's.
        channel: to the other one.
        run: a pass of the job.
        times: steps, beside a first one that does not count.

    Returns:
        Of each step, CPU seconds of a pass alone, of a pass in the step, and of each message that
        is sent or read, of all that is no pass.
    """
    step = _step(task.rank)
    plan, sizes = CompiledSchedule(step.schedule()), step.sizes()
    messages = len(step.gets()) + len(step.puts())
    passed = torch.zeros(PASSED_BYTES, dtype=torch.uint8)
    found = []
    summing = collective(task.collective, task.aggregators, 2)
    with Engine(channel, summing, task.rank, 2, timeout_s=task.wait_timeout_s) as engine:
        for number in range(1 + times):
            slots, passes = Slots(sizes, plan.schedule), list[float]()

            def compute(work: Work, slots: Slots = slots, passes: list[float] = passes) -> None:
                passes.append(_cpu_s(run))
                if sizes[output_part(work)]:
                    slots.put(output_part(work), passed.clone())

            began = time.process_time()
            engine.run(plan, slots, number, "pipe", compute=compute)
            beside_s = time.process_time() - began - sum(passes)
            found.append((median(passes), beside_s / messages))
            channel.drop([message_key(number, "pipe", name) for name in step.gets()])
    alone_s = median(_cpu_s(run) for _ in range(_ALONE))
    return [(alone_s, *one) for one in found[1:]]


def _step(rank: int) -> PipelineStep:
    layout, micros = Layout(2, 1), range(MICRO_BATCHES)
    boundary = StageBoundary(activation_bytes=PASSED_BYTES, gradient_bytes=PASSED_BYTES)
    boundaries = dict.fromkeys(micros, boundary)
    return PipelineStep(
        layout=layout,
        stage_rank=layout.stage_rank(rank),
        order=fill_drain(rank, 2, micros),
        before=boundaries if rank else {},
        behind={} if rank else boundaries,
        chunk_bytes=PASSED_BYTES,
    )


def _cpu_s(run: Callable[[], None]) -> float:
    """CPU seconds of this thread."""
    began = time.thread_time()
    run()
    return time.thread_time() - began
