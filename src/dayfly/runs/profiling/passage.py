"""What a worker of a pipeline does around the passes of its micro-batches.

    all layers as one stage     | f0 | b0 | f1 | b1 | f2 | b2 | f3 | b3 |
    as many plain passes        |f|b|f|b|f|b|f|b|

The first takes longer: going from one operation of the schedule to the next, seeding layer by
layer, keeping what is under way. One stage has no messages, so they are not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dayfly.job import Job
from dayfly.runs.profiling.layers import Layers
from dayfly.runs.profiling.passes import clock
from dayfly.training.flat import FlatBuffer
from dayfly.training.stages.build import StageModel
from dayfly.training.stages.compute import Micro, Stage
from dayfly.wire.engine import Engine
from dayfly.wire.lanes import Plan
from dayfly.wire.pipelines.layout import Layout
from dayfly.wire.pipelines.orders import FORWARD, one_f_one_b
from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.pipelines.step import PipelineStep
from dayfly.wire.schedule import Work

#: Micro-batches that pass in a row; one is under way at a time, so that it takes no more memory.
MICRO_BATCHES = 4


class OneStage:
    """A model that is a list of layers, as the only stage of a pipeline.

    engine: of a worker alone. flat: takes the gradients.
    """

    def __init__(self, job: Job, layers: Layers, engine: Engine, flat: FlatBuffer) -> None:
        built = StageModel(layers.model, tuple(enumerate(layers.modules)), ())
        self._stage = Stage(job, built, None, None, flat)
        layout = Layout(1, 1)
        step = PipelineStep(
            layout=layout,
            place=layout.place(0),
            order=one_f_one_b(0, 1, range(MICRO_BATCHES)),
            chunk_bytes=1,
        )
        self._engine = engine
        self._sizes, self._plan = step.sizes(), Plan(step.schedule())

    def passes(self, batch: Any) -> float:
        """CPU seconds of `MICRO_BATCHES` times this batch of inputs and targets."""
        stage, (x, y) = self._stage, batch
        micros: dict[int, Micro] = {}

        def compute(work: Work) -> None:
            if work.what == FORWARD:
                micro = micros[work.micro_batch] = Micro(
                    number=work.micro_batch, samples=len(x), weight=1 / MICRO_BATCHES, x=x, y=y
                )
                stage.forward(micro, 0, 0, None)
            else:
                if work.micro_batch == MICRO_BATCHES - 1:
                    stage.flat.announce(_nothing)
                stage.backward(micros.pop(work.micro_batch), None)

        stage.begin()
        began = clock()
        slots = Slots(self._sizes, self._plan.schedule)
        self._engine.run(self._plan, slots, 0, "passes", compute=compute)
        took_s = clock() - began
        stage.flat.end(1.0)
        return took_s


def one_stage(
    job: Job, layers: Layers, engine: Engine, flat: FlatBuffer, batch: Any
) -> Callable[[], float] | None:
    """What times the passes of a batch; None if the job's model cannot be cut, or is on a GPU."""
    pair = isinstance(batch, (tuple, list)) and len(batch) == 2 and torch.is_tensor(batch[0])
    on_cpu = all(parameter.device.type == "cpu" for parameter in flat.parameters)
    if not (layers.listed and pair and on_cpu):
        return None
    made = OneStage(job, layers, engine, flat)
    return lambda: made.passes(batch)


def _nothing(bucket: int) -> None:
    """A bucket is whole."""
