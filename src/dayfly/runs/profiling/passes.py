"""Times the parts of a step one by one in a function: reading, passes, the optimizer's step.

    forward(...)   | layer 0 | layer 1 | ... | layer L-1, loss |
    backward()     | loss, layer L-1 | ... | layer 1 | layer 0 |

Hooks tell layers apart: before a layer is applied, and when the gradient of its output is there.
Hooks take time, too, so passes without them give the time of the whole. All times are CPU seconds
of the training thread: a function that has used its share of the CPU stands still, and that says
nothing of the layer at which it happens. On a GPU they are wall seconds (`runs.profiling.clocks`).

`TimedSteps` tells what a round of a real worker takes, and its computing and applying:

    a round    | ... | compute: reading, passes, the flat buffer | sum | apply | tell, ... |

`OneStage` measures the work of a pipeline's worker around the passes of its micro-batches. It has
no messages. The first row takes longer: the worker goes from one operation of the schedule to the
next, seeds layer by layer, and keeps the micro-batches that are under way.

    all layers as one stage     | f0 | b0 | f1 | b1 | f2 | b2 | f3 | b3 |
    as many plain passes        |f|b|f|b|f|b|f|b|
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dayfly.job import Job
from dayfly.runs.profiling.clocks import Clocks
from dayfly.runs.profiling.layers import Layers
from dayfly.runs.shipping import receive
from dayfly.runs.task import Task
from dayfly.training.devices import to_device
from dayfly.training.flat import FlatBuffer
from dayfly.training.forward import forward
from dayfly.training.order import Epochs
from dayfly.training.randomness import DROPOUT, seed_generators
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Slices
from dayfly.training.sources import Source, open_sources
from dayfly.training.stages.compute import Micro, Stage
from dayfly.training.stages.layers import StageModel
from dayfly.training.synchronous import Synchronous
from dayfly.wire.engine import Engine
from dayfly.wire.pipelines.orders import FORWARD, one_f_one_b
from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.pipelines.step import Layout, PipelineStep
from dayfly.wire.schedule import CompiledSchedule, Work
from dayfly.wire.stores import open_store


@dataclass(slots=True)
class Marks:
    """When it came to what, in one pass.

    Args:
        begun: of each layer's forward.
        back: of each layer's backward, where a gradient reaches it.
        around_s: what the flat buffer and seeding took.
    """

    start: float = 0.0
    begun: list[float] = field(default_factory=list)
    loss: float = 0.0
    back: dict[int, float] = field(default_factory=dict)
    end: float = 0.0
    around_s: float = 0.0

    def forward(self) -> list[float]:
        """Of each layer; the first with what comes before it, the last with the loss."""
        edges = [self.start, *self.begun[1:], self.loss]
        return [after - before for before, after in pairwise(edges)]

    def backward(self) -> list[float]:
        """Of each layer, in the order of the layers; 0 where no gradient comes."""
        count = len(self.begun)
        spent = [0.0] * count
        since = self.loss
        for number in range(count - 1, -1, -1):
            # What lies between the gradients of its output and of its input.
            before = self.back.get(number - 1)
            if before is None:
                spent[number] = max(0.0, self.end - since)
                break
            spent[number] = max(0.0, before - since)
            since = max(since, before)
        return spent


class Passes:
    """Times what a replica does.

    Args:
        steps: of the replica, whose buffer takes the gradients.
    """

    def __init__(
        self, job: Job, replica: Replica, steps: Synchronous, source: Source, epochs: Epochs
    ) -> None:
        self._job = job
        self._replica = replica
        self._steps = steps
        self._source = source
        self._epochs = epochs
        self.layers = Layers.of(job, replica.model)
        self._blocks = 0
        self._clock = Clocks.of(replica.device).thread

    def samples(self, count: int) -> Any:
        """A batch of so many samples, of the first of the data; fewer if there are not as many."""
        found = np.arange(min(count, self._source.samples))
        return self._source.batch(self._source.fetch(found), found, range(len(found)), 0)

    def read(self, samples: int) -> tuple[float, float]:
        """Reading a worker's share of so many samples of a step: fetching, as it is done for
        several steps at once, and putting together."""
        world_size = max(1, self._epochs.batch_size // samples)
        slices = Slices(self._source, self._epochs, 0, world_size, 1)
        slices.close()  # what it would do beside is to be timed
        steps = range(min(slices.block_steps, self._epochs.steps))
        clock = self._clock
        began = clock()
        found = self._epochs.slices(steps, 0, world_size)
        indices = np.concatenate(found)
        fetched = self._source.fetch(indices)
        fetching = (clock() - began) / len(steps)
        began = clock()
        self._source.batch(fetched, indices, range(len(found[0])), 0)
        return fetching, clock() - began

    def compute(self, batch: Any, *, by_layer: bool) -> Marks:
        """A forward and a backward pass of a batch."""
        model, flat, clock = self._replica.model, self._steps.flat, self._clock
        marks = Marks()
        entered = clock()
        model.train()
        flat.begin()
        seed_generators(DROPOUT, self._job.seed, 0, 0, 0)
        with ExitStack() as stack:
            if by_layer and self.layers.listed:
                self._watch(marks, stack)
            marks.start = clock()
            loss = forward(self._job, model, to_device(batch, self._replica.device)).loss
            marks.loss = clock()
        flat.announce(lambda bucket: None)
        began = clock()
        loss.backward()  # type: ignore[no-untyped-call]
        between = began - marks.loss  # which is of neither pass
        marks.end = clock() - between
        marks.back = {layer: came - between for layer, came in marks.back.items()}
        flat.end(1.0)
        marks.around_s = clock() - entered - (marks.end - marks.start)
        if not marks.begun:
            marks.begun = [marks.start]
        return marks

    def apply(self) -> tuple[float, float]:
        """The optimizer's step by the gradients of the last pass, and by none."""
        times, clock = [], self._clock
        for _ in range(2):
            began = clock()
            self._steps.flat.spread()
            if self._job.clip_norm is not None:
                nn.utils.clip_grad_norm_(
                    self._steps.flat.parameters, cast("float", self._job.clip_norm)
                )
            self._replica.step()
            times.append(clock() - began)
            self._steps.flat.data.zero_()
        return times[0], times[1]

    def _watch(self, marks: Marks, stack: ExitStack) -> None:
        """Note when it comes to each layer, forward and backward."""
        clock = self._clock

        def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
            marks.begun.append(clock())

        def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            number = len(marks.begun) - 1

            def came(gradient: torch.Tensor) -> None:
                marks.back[number] = clock()

            for tensor in tree_leaves(output):
                if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                    tensor.register_hook(came)  # type: ignore[no-untyped-call]

        for module in dict.fromkeys(self.layers.modules):
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave).remove)


def pass_of(task: Task, samples: int) -> Callable[[], None]:
    """A forward and a backward pass of a task's job, of so many samples, without its channel."""
    store = open_store(task.store)
    job = receive(task.shipped, store, Path(task.scratch))
    replica = Replica(job)
    source, _ = open_sources(job, task.parts, store)
    epochs = Epochs.of(task.samples, job)
    passes = Passes(job, replica, Synchronous(job, replica), source, epochs)
    batch = passes.samples(samples)

    def run() -> None:
        passes.compute(batch, by_layer=False)

    return run


class Round(NamedTuple):
    """Wall seconds; CPU seconds of the training thread, of all threads, and of the training
    thread's computing and applying."""

    wall_s: float
    thread_s: float
    process_s: float
    compute_s: float
    apply_s: float


class TimedSteps(Synchronous):
    """The steps of a replica, as another has them; tells what the last one took.

    Attributes:
        compute_s, apply_s: CPU seconds of the thread that took it.
    """

    def __init__(self, steps: Synchronous, clock: Callable[[], float]) -> None:
        self._steps = steps
        self._clock = clock
        self.compute_s = 0.0
        self.apply_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._steps, name)

    def compute(self, *args: Any, **named: Any) -> None:
        began = self._clock()
        self._steps.compute(*args, **named)
        self.compute_s = self._clock() - began

    def apply(self) -> tuple[float, Wishes]:
        began = self._clock()
        applied = self._steps.apply()
        self.apply_s = self._clock() - began
        return applied


#: Micro-batches that pass in a row; one is under way at a time, so that it takes no more memory.
MICRO_BATCHES = 4


class OneStage:
    """A model that is a list of layers, as the only stage of a pipeline.

    Args:
        engine: of a worker alone.
        flat: takes the gradients.
    """

    def __init__(self, job: Job, layers: Layers, engine: Engine, flat: FlatBuffer) -> None:
        built = StageModel(layers.model, tuple(enumerate(layers.modules)), ())
        self._stage = Stage(job, built, None, None, flat)
        layout = Layout(1, 1)
        step = PipelineStep(
            layout=layout,
            stage_rank=layout.stage_rank(0),
            order=one_f_one_b(0, 1, range(MICRO_BATCHES)),
            chunk_bytes=1,
        )
        self._engine = engine
        self._sizes, self._plan = step.sizes(), CompiledSchedule(step.schedule())

    def passes(self, batch: Any) -> float:
        """CPU seconds of `MICRO_BATCHES` times this batch of inputs and targets."""
        stage, (x, y) = self._stage, batch
        micros: dict[int, Micro] = {}

        def compute(work: Work) -> None:
            if work.what == FORWARD:
                micro = micros[work.micro_batch] = Micro(
                    number=work.micro_batch, samples=len(x), weight=1 / MICRO_BATCHES, x=x, y=y
                )
                stage.forward(micro, 0, (0, micro.number), None)
            else:
                if work.micro_batch == MICRO_BATCHES - 1:
                    stage.flat.announce(_nothing)
                stage.backward(micros.pop(work.micro_batch), None)

        stage.begin()
        stage.flat.begin()
        clock = time.thread_time  # a stage is timed on the CPU alone
        began = clock()
        slots = Slots(self._sizes, self._plan.schedule)
        self._engine.run(self._plan, slots, 0, "passes", compute=compute)
        took_s = clock() - began
        stage.flat.end(1.0)
        return took_s


def one_stage(
    job: Job, layers: Layers, engine: Engine, flat: FlatBuffer, batch: Any
) -> Callable[[], float] | None:
    """Returns a function that times the passes of a batch; None: it cannot, or on a GPU."""
    pair = isinstance(batch, (tuple, list)) and len(batch) == 2 and torch.is_tensor(batch[0])
    on_cpu = all(parameter.device.type == "cpu" for parameter in flat.parameters)
    if not (layers.listed and pair and on_cpu):
        return None
    made = OneStage(job, layers, engine, flat)
    return lambda: made.passes(batch)


def _nothing(bucket: int) -> None:
    """A bucket is whole."""
