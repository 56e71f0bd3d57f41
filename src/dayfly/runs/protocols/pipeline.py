"""A cut model: stages on functions of their own, each in replicas; micro-batches flow through them.

    stage 0, replica 0   f0 f1 f2 f3 .. .. b0 b1 b2 b3 | sum |      f: forward pass, b: backward,
    stage 1, replica 0      f0 f1 f2 f3 b0 b1 b2 b3    | sum |      of a micro-batch
    all ranks                         | tail |

A step is one schedule (see `wire.pipelines`): downloads, passes and uploads beside each other. A
stage's replicas sum their flat buffers by the run's collective, bucket by bucket as the last
backward pass makes them whole. The **tail**, one small sum over all ranks, carries the loss and the
wishes; where gradients are clipped, another one carries their norm.

With virtual workers each of them is a micro-batch. Its gradient goes along the tree of all of them,
and its loss has a place of its own in the tail, so that bits do not depend on the replicas.

A worker that starts again reads its inputs from the message log and computes what is not there.
What it sends that is there already stays as it is, so its peers redo nothing. If a stage has
several replicas, their sums are in the log, too: then whole steps are not computed again, and a
step's inputs are dropped once its sums are read.

FuncPipe's runtime (section 3) over stores, and Hydrozoa's (section 3.4) over sockets with a ring.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import torch

from dayfly.batches import MicroBatch
from dayfly.runs.pipelining import Pipelining
from dayfly.runs.progress import LoggedSum
from dayfly.runs.protocols.base import Protocol, WorkerContext
from dayfly.runs.protocols.buckets import Buckets, Stored
from dayfly.runs.protocols.staged_validation import StagedValidation
from dayfly.training.compression.exchange import Exchange
from dayfly.training.evaluation import HeldOut, Measures
from dayfly.training.forward import divide
from dayfly.training.leaves import LeafExchange
from dayfly.training.replica import Wishes
from dayfly.training.stages.compute import Micro, Norms, Stage
from dayfly.training.stages.gradients import AddedUp, KeptApart
from dayfly.training.stages.layers import StageModel
from dayfly.training.state import Tensors
from dayfly.wire.channels.base import Channel
from dayfly.wire.engine import Engine
from dayfly.wire.execution import message_key, stored_names
from dayfly.wire.pipelines.flow import Passing
from dayfly.wire.pipelines.orders import FORWARD, ORDERS, MakeOrder
from dayfly.wire.pipelines.slots import Slots
from dayfly.wire.pipelines.step import (
    PipelineStep,
    StageRank,
    input_part,
    message_bytes,
    output_part,
)
from dayfly.wire.schedule import CompiledSchedule, Name, Work

#: Does a pass: from what came in, if anything has to, to what goes out, if anything does.
DoWork = Callable[[Work, torch.Tensor | None], torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class _Made:
    """A schedule made ready. sizes: of its buffer's parts."""

    what: PipelineStep
    sizes: tuple[int, ...]
    plan: CompiledSchedule

    @classmethod
    def of(cls, what: PipelineStep, sent: frozenset[Name] = frozenset()) -> _Made:
        return cls(what, what.sizes(), CompiledSchedule(what.schedule(sent)))


class Passage:
    """A worker's place in a pipeline, from which passes of micro-batches are run."""

    def __init__(
        self, line: Pipelining, stage_rank: StageRank, engine: Engine, channel: Channel
    ) -> None:
        self.line = line
        self.stage_rank = stage_rank
        self.engine = engine
        self.channel = channel
        self.first = line.received(stage_rank.stage) is None
        self.last = line.sent(stage_rank.stage) is None
        self._chunk_bytes = message_bytes(
            channel.abilities.chunk_bytes, line.chunk_bytes, immediate=channel.immediate
        )
        # Equal for equal batches, of which there are few kinds: an epoch's last one is another.
        self._usual: dict[tuple[MakeOrder, Passing, bool], _Made] = {}

    def run(
        self,
        step: int,
        operation: str,
        order: MakeOrder,
        passing: Passing,
        *,
        learns: bool = True,
        again: bool = False,
        past: bool = False,
    ) -> MicroBatchRun:
        """Make these micro-batches ready to pass.

        Args:
            operation: name of their messages.
            learns: whether gradients come back.
            again: whether an earlier attempt may have sent some of it.
            past: whether all others are through with the step, and have dropped what they read
                unless they would read it again.
        """
        kind = (order, passing, learns)
        made = self._usual.get(kind)
        if made is None:
            what = self.line.step(self.stage_rank, order, passing, self._chunk_bytes, learns=learns)
            made = self._usual[kind] = _Made.of(what)
        puts = made.what.puts()
        if again and (sent := stored_names(self.channel, step, operation, puts)):
            made = _Made.of(made.what, sent)
        if past:
            made = _Made.of(made.what, frozenset(puts))
        return MicroBatchRun(self, made, step, operation)


class MicroBatchRun:
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


class Pipeline(Protocol):
    """Steps of one stage of a cut model, in one of its replicas.

    The worker's engine is that of all ranks, for small sums.
    """

    # Memory is why a model is cut, and a copy would take most of what its state takes.
    steps_when_written = True

    def __init__(self, worker: WorkerContext, built: StageModel) -> None:
        super().__init__(worker)
        line = worker.task.pipelining
        assert line is not None, "a pipeline needs a cut"
        self._line = line
        self._stage_rank = worker.task.stage_rank
        stage = self._stage_rank.stage
        weighting = worker.task.weighting
        self._stage = Stage(
            worker.job,
            built,
            line.received(stage),
            line.sent(stage),
            weighting=weighting,
            precision=worker.replica.precision,
        )
        flat, leaves = self._stage.flat, line.virtual_workers
        members = line.layout.stage_ranks(stage)
        self._summed = len(members) > 1  # its gradients are in the log, so its inputs need not be
        self._group = worker.among(f"s{stage}", members, leaves)
        self._gradients: AddedUp | KeptApart
        self._leaves: range | None = None
        if leaves is None:
            self._buckets = Buckets(self._group, Exchange(flat))
            self._gradients = AddedUp(flat, self._buckets.ready)
        else:
            self._leaves = own = worker.slices.leaves
            exchange = LeafExchange(flat, own, leaves)
            self._buckets = Buckets(self._group, exchange)
            numbers = range(len(own)) if line.layout.even else own
            self._gradients = KeptApart(flat, self._buckets.ready, exchange, numbers)
        self._losses = [self._stage.part() for _ in range(leaves or 1)]
        self._tail = LoggedSum(worker.engine, "tail", self._tail_of(Wishes()))
        self._norms = Norms(built.model, built.trained)
        self._norm = LoggedSum(worker.engine, "norm", self._norms.summed)
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="dayfly-tail")
        # Passes wait for passes, and must not keep sums from their turn.
        everybody = range(line.layout.world_size)
        self._passes = worker.among(None, everybody, None)
        self._passage = Passage(line, self._stage_rank, self._passes, worker.channel)

    def _tail_of(self, wishes: Wishes) -> torch.Tensor:
        """Returns wishes, then loss and denominator: one pair, or one for each leaf."""
        every = [wishes.checkpoint, wishes.stop, *(x for one in self._losses for x in one)]
        return torch.tensor(every, dtype=torch.float64)

    def load_state(self, step: int, tree: Any, tensors: Tensors) -> int:
        self.worker.replica.load_state(tree, tensors)
        return step

    def take(self, step: int) -> Wishes:
        here = self.worker
        here.fault_points.operation = "pipe"
        here.lifetime.step_begins()
        began, at = time.monotonic(), time.time()
        clip_norm = cast("float | None", here.job.clip_norm)
        # Gradients of all stages have one norm, and overflow for all.
        norm = (self._norm,) if clip_norm is not None or here.replica.scaler is not None else ()
        self._stage.scale = here.replica.scale
        stored = here.catch_up.stored(step, (*self._buckets.sums, self._tail, *norm))
        if not here.catch_up.behind:
            here.room()
        of_buckets = stored[: len(self._buckets.sums)]
        of_tail, *of_norm = stored[len(of_buckets) :]
        self._buckets.begin(step, of_buckets)
        computed = self._buckets.needs_own or self._tail.reads_buffer(of_tail)
        passes: list[Any] = []
        if computed:
            run = self._compute(step, of_tail, passes)
            self.own_finite = all(math.isfinite(one[0]) for one in self._losses)
        else:
            self._buckets.take()
            self._tail.take(step, of_tail)
        reduced = time.monotonic()
        here.faults.at(step, "reduced")
        self._stage.flat.spread()
        (checkpoint, stop), losses = self._tail.like_P[:2].tolist(), self._tail.like_P[2:]
        loss, *weights = [sum(of) for of in losses.reshape(len(self._losses), -1).T.tolist()]
        loss = divide(loss, weights, self._stage.flat.found)
        here.replica.unscale(self._stage.flat.found())
        if norm:
            self._norms.measure(speaks=self._stage_rank.replica == 0)
            self._norm.take(step, *of_norm)
            here.replica.overflowed = here.replica.scaler is not None and not self._norms.finite
        if clip_norm is not None and not here.replica.overflowed:
            self._norms.clip(clip_norm)
        here.written()
        with here.spans.during("apply"):
            if not here.replica.overflowed:
                here.replica.step()
            here.replica.end_step()
        here.faults.at(step, "applied")
        if computed and here.task.replays and self._summed:
            run.drop_inputs()
        here.progress.add(step, loss, len(here.epochs.batch(step)))
        here.lifetime.step_ends()
        self.tell_step(
            step,
            loss,
            computed=computed,
            began=began,
            at=at,
            reduced_s=reduced - began,
            passes=[
                [*one, round(1000 * (start - began), 2), round(1000 * (stop - began), 2)]
                for *one, start, stop in passes
            ],
        )
        return Wishes(checkpoint > 0, stop > 0)

    def _compute(self, step: int, of_tail: Stored, passes: list[Any]) -> MicroBatchRun:
        """The passes of a step, with the sums beside and after them.

        passes: gets what was computed, of which micro-batch, and when from and to.
        """
        here, stage, stage_rank, line = self.worker, self._stage, self._stage_rank, self._line
        here.faults.at(step, "compute")
        batch = len(here.epochs.batch(step))
        passing = line.flow.passing(batch, stage_rank)
        micros, again = passing.micros, of_tail is not None
        past = again and not line.layout.even and self._past(step)
        order = ORDERS[line.schedule]
        run = self._passage.run(step, "pipe", order, passing, again=again, past=past)
        wishes = here.wishes()
        coming: list[Future[None]] = []

        def sum_tail() -> None:
            self._tail.like_P.copy_(self._tail_of(wishes))
            coming.append(self._beside.submit(self._tail.take, step, of_tail))

        samples = self._samples(step, batch, micros)
        under_way: dict[int, Micro] = {}
        last_number = micros[-1].number if micros else -1
        self._losses = [[0.0] * len(one) for one in self._losses]

        def work(one: Work, received: torch.Tensor | None) -> torch.Tensor | None:
            with here.slices.at_work():
                return passed(one, received)

        def passed(one: Work, received: torch.Tensor | None) -> torch.Tensor | None:
            began = time.monotonic()
            if one.what == FORWARD:
                micro = under_way[one.micro_batch] = next(samples)
                out = self._forward(micro, step, received, last=micro.number == last_number)
            else:
                micro = under_way.pop(one.micro_batch)
                with self._gradients.backward(micro):
                    out = stage.backward(micro, received) if stage.learns else None
            ended = time.monotonic()
            here.spans.add(one.what, began, ended)
            passes.append((one.what[0], micro.number, began, ended))
            here.faults.at(step, f"{one.what}-{micro.number}")
            if self._passage.last and one.what == FORWARD and micro.number == last_number:
                sum_tail()
            return out

        try:
            stage.begin()
            self._gradients.begin(micros, batch)
            if not (self._passage.last and micros):
                sum_tail()  # the loss is another's
            with here.slices.lent():
                run.carry_out(work)
            here.faults.at(step, "computed")
            self._gradients.end()
            with here.slices.lent():
                self._buckets.finish()
                for one in coming:
                    one.result()
        except BaseException as error:
            here.engine.give_up(error)
            self._passes.give_up(error)
            self._buckets.give_up(error)
            raise
        return run

    def _past(self, step: int) -> bool:
        """Whether all workers are through with a step: what they summed in the next is there."""
        one = self._tail
        stored = one.engine.stored_sums(one.like_P, step + 1, one.operation)
        return len(stored) == len(one.engine.sums(one.like_P))

    def _forward(
        self, micro: Micro, step: int, received: torch.Tensor | None, *, last: bool
    ) -> torch.Tensor | None:
        """The forward pass of a micro-batch, or of the last one; its loss is noted."""
        stage, own, even = self._stage, self._leaves, self._line.layout.even
        leaf = None if own is None else own[micro.number] if even else micro.number
        drawn = (self._stage_rank.replica, micro.number)
        if leaf is not None or not even:  # numbered throughout the batch
            drawn = (micro.number if leaf is None else leaf, 0)
        with self._gradients.forward(micro):
            out = stage.forward(micro, step, drawn, received)
        if leaf is not None or last:
            self._losses[leaf or 0] = stage.part()
        return out

    def _samples(self, step: int, batch: int, micros: Sequence[MicroBatch]) -> Iterator[Micro]:
        """The replica's micro-batches in their order, with samples at the two ends of the model."""
        passage = self._passage
        ends = passage.first or passage.last
        slices = self.worker.slices
        leaves = slices.leaves if self._line.layout.even else [one.number for one in micros]
        pieces = (piece for leaf in (leaves if ends else ()) for piece in slices.pieces(step, leaf))
        for one in micros:
            x, y = next(pieces).batch if ends else (None, None)
            yield Micro(
                number=one.number,
                samples=one.samples,
                weight=one.samples / batch,
                x=x if passage.first else None,
                y=y if passage.last else None,
            )

    def validate(self, step: int, held_out: HeldOut | None = None) -> Measures:
        held_out = held_out or self.worker.held_out
        validation = StagedValidation(self.worker, self._stage, self._passage, held_out)
        with self.worker.replica.averaged():
            return validation.validate(step)

    def close(self) -> None:
        self._beside.shutdown(wait=True, cancel_futures=True)
        self._buckets.close()
        self._group.close()
        self._passes.close()
