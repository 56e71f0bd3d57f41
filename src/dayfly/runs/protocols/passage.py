"""One pass of micro-batches through the stages: a schedule, its buffer, and what it sent before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dayfly.batches import MicroBatch
from dayfly.runs.pipelining import Pipelining
from dayfly.wire.channels.base import Channel
from dayfly.wire.engine import Engine
from dayfly.wire.execution import message_key, stored_names
from dayfly.wire.lanes import Plan
from dayfly.wire.pipelines.layout import Place
from dayfly.wire.pipelines.messages import message_bytes
from dayfly.wire.pipelines.orders import MakeOrder
from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.pipelines.step import PipelineStep, input_part, output_part
from dayfly.wire.schedule import Name, Work

#: Does a pass: from what came in, if anything has to, to what goes out, if anything does.
DoWork = Callable[[Work, torch.Tensor | None], torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class _Made:
    """A schedule made ready. sizes: of its buffer's parts."""

    what: PipelineStep
    sizes: tuple[int, ...]
    plan: Plan

    @classmethod
    def of(cls, what: PipelineStep, sent: frozenset[Name] = frozenset()) -> _Made:
        return cls(what, what.sizes(), Plan(what.schedule(sent)))


class Passage:
    """A worker's place in a pipeline, from which passes of micro-batches are run."""

    def __init__(self, line: Pipelining, place: Place, engine: Engine, channel: Channel) -> None:
        self.line = line
        self.place = place
        self.engine = engine
        self.channel = channel
        self.first = line.received(place.stage) is None
        self.last = line.sent(place.stage) is None
        self._chunk_bytes = message_bytes(
            channel.abilities.chunk_bytes, line.chunk_bytes, immediate=channel.immediate
        )
        # Equal for equal batches, of which there are few kinds: an epoch's last one is another.
        self._usual: dict[tuple[MakeOrder, tuple[MicroBatch, ...], bool], _Made] = {}

    def run(
        self,
        step: int,
        operation: str,
        order: MakeOrder,
        micros: Sequence[MicroBatch],
        *,
        learns: bool = True,
        again: bool = False,
    ) -> Run:
        """Make these micro-batches ready to pass.

        operation: name of their messages. learns: whether gradients come back. again: whether an
        earlier attempt may have sent some of it.
        """
        kind = (order, tuple(micros), learns)
        made = self._usual.get(kind)
        if made is None:
            what = self.line.step(self.place, order, micros, self._chunk_bytes, learns=learns)
            made = self._usual[kind] = _Made.of(what)
        if again and (sent := stored_names(self.channel, step, operation, made.what.puts())):
            made = _Made.of(made.what, sent)
        return Run(self, made, step, operation)


class Run:
    """Micro-batches that pass, once."""

    def __init__(self, passage: Passage, made: _Made, step: int, operation: str) -> None:
        self._passage = passage
        self._made = made
        self._step = step
        self._operation = operation

    def carry_out(self, do: DoWork) -> None:
        """Download, do the passes in the caller's thread, and upload. Raises as `Engine.run`."""
        sizes, plan = self._made.sizes, self._made.plan
        slots = Slots(sizes, plan.schedule)

        def compute(work: Work) -> None:
            part = input_part(work)
            out = do(work, slots.take(part) if sizes[part] else None)
            if out is not None:
                slots.put(output_part(work), out)

        self._passage.engine.run(plan, slots, self._step, self._operation, compute=compute)

    def drop_inputs(self) -> None:
        """Remove what this worker has read, once it is not needed even to start again."""
        names = self._made.what.gets()
        keys = [message_key(self._step, self._operation, name) for name in names]
        self._passage.channel.drop(keys)
