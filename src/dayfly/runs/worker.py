"""A worker: the function that trains. It puts data, replica, wire and life together.

    read the checkpoint
    each round: catch up?  the sums that are in the log are used as they are
                otherwise  train: a step, or the steps until replicas are averaged
                sum over the workers, apply the sum, validate at the end of an epoch
                a checkpoint, if any worker wanted one in this round
    end:        done, stopped as asked, or handed over to the successor in good time

A worker that starts again finds its checkpoint's successors in the message log. The first round
that is not whole in the log is the one in which its predecessor died; from there on it is level
with its peers, which noticed nothing but a slow worker.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from dayfly.batches import validates
from dayfly.errors import DayflyError
from dayfly.life import checkpoints
from dayfly.life.failure import raised_in
from dayfly.life.faults import Faults
from dayfly.life.heartbeats import Fenced, Heartbeats
from dayfly.life.lifetimes import HandOver, Lifetime
from dayfly.life.platforms.base import Context, Json
from dayfly.life.reports import (
    FAILED,
    GO,
    HANDED_OVER,
    KEPT_BY_RUN,
    KEPT_BY_WORKER,
    Reporter,
    decided,
)
from dayfly.runs.engines import Engines
from dayfly.runs.gpu_watch import GpuWatch
from dayfly.runs.keeping import Keeping, told_of
from dayfly.runs.made_with import check_function
from dayfly.runs.not_finite import FiniteWatch, NotFiniteError
from dayfly.runs.progress import CatchUp, Progress
from dayfly.runs.protocols import protocol
from dayfly.runs.protocols.base import WorkerContext
from dayfly.runs.protocols.handing_on import WAITING, alike
from dayfly.runs.protocols.pipeline import Pipeline
from dayfly.runs.shipping import receive
from dayfly.runs.spans import FaultPoints, Spans
from dayfly.runs.task import Going, Task
from dayfly.runs.workplace import site_of
from dayfly.training.devices import device_of_function
from dayfly.training.evaluation import Evaluation, HeldOut
from dayfly.training.order import Epochs, Rounds
from dayfly.training.replica import Replica, Wishes
from dayfly.training.slices import Slices
from dayfly.training.sources import BOTH, Sides, open_sources
from dayfly.training.stages.layers import build_stage
from dayfly.training.state import trained_names
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.execution import wait_patiently
from dayfly.wire.shaped import shaped_channel, shaped_store
from dayfly.wire.shaping import ShapedLink
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import Store


def main(payload: Json, context: Context) -> Json:
    """The handler of a training function; returns its status and the step it got to.

    kept: where what it did is kept; see `life.reports`. error: why the run fails, if it is to.
    """
    return work(Task.load(payload), context, Worker)


def work(task: Task, context: Context, make: Callable[..., Worker]) -> Json:
    """What `main` does, with the worker that `make` makes of what `Worker` is made of."""
    way = ShapedLink(task.rates) if task.rates is not None else None
    store = shaped_store(open_store(task.store), way)
    faults = Faults(task.faults, task.rank, store)
    faults.at(task.checkpoint.step, "start")
    home, turn = open_store(task.store), task.turn
    site = site_of(task.channel, home, task.run, task.generation, task.token, turn)
    here = channel_kind(task.channel).open(site, task.rank)
    with shaped_channel(here, way) as channel:
        try:
            worker = make(task, context, store, channel, faults)
        except HandOver:  # its life went by while it waited
            return {"status": HANDED_OVER, "step": task.checkpoint.step, "kept": None}
        try:
            status = worker.run()
        except BaseException as error:
            raised_in(error, worker.step)
            with suppress(DayflyError):  # the first error is the one that counts
                worker.close()
            raise
        worker.close()
        return {
            "status": status,
            "step": worker.step,
            "kept": worker.kept,
            "error": worker.error,
        }


class Worker:
    """One attempt; `step` is the next one, a round's first.

    Once it has ended, `kept` says where what it did is kept, and `error` why the run fails.
    """

    def __init__(
        self, task: Task, context: Context, store: Store, channel: Channel, faults: Faults
    ) -> None:
        began = time.monotonic()
        self._store = store
        self._faults = faults
        self._lifetime = Lifetime(context, renewed=task.renewed, later=task.protocol.ahead)
        self._reporter = Reporter(channel, task.rank, task.attempt, task.pace.report_s)
        who, beat_s = (task.rank, task.attempt, task.world_size), task.pace.heartbeat_s
        self._heartbeats = Heartbeats(channel, self._reporter, *who, beat_s)
        self._channel = channel = self._heartbeats.channel
        other = check_function(task.made_with, allow_other=task.allow_other_cpu)
        if other is not None:
            self._reporter.add("other cpu", urgent=True, text=other)
        self._spans = Spans()
        job = receive(task.shipped, store, Path(task.scratch))
        self._job = job
        self._part_of = task.writer
        line, stage = task.pipelining, self._part_of.stage
        built = build_stage(job, line.cut, stage) if line is not None else None
        own = None if built is None else built.model
        device = device_of_function(context.gpu_share)
        self._replica = Replica(job, own, device, task.precision, compiled=job.compile)
        self._gpu = GpuWatch(device)
        sides = BOTH
        if line is not None:
            sides = Sides(x=line.received(stage) is None, y=line.sent(stage) is None)
        train, validation = open_sources(job, task.parts, store, sides)
        if task.waits:
            task, began = self._wait_to_go(task), time.monotonic()
        self._task = task
        self._fault_points = FaultPoints(faults, task.checkpoint.step)
        tree, tensors = checkpoints.read(store, task.checkpoint, None if line is None else stage)
        self._progress = Progress.load(tree["progress"])
        self._epochs = Epochs.of(task.samples, job, task.steps, task.batches)
        self._rounds = Rounds(self._epochs, task.k, task.checkpoint.step)  # which ends a round
        pieces, leaves = task.pieces, task.virtual_workers
        order: tuple[int, ...] = ()
        if line is not None and (shared := line.flow.shared) is not None:
            pieces, leaves, order = 1, shared, line.flow.order(task.stage_rank)
        self._slices = Slices(
            train,
            self._epochs,
            *self._part_of.share,
            pieces,
            leaves,
            order=order,
            weights=task.shares,
            end=task.steps,
            decoders=job.num_workers,
        )
        self._keeping = Keeping(
            task,
            store,
            channel,
            faults,
            self._lifetime,
            self._reporter,
            self._spans,
            began=began,
            check_share=lambda step, *tensors: self._watch.check_share(step, *tensors),
            heartbeats=self._heartbeats,
        )
        engines = Engines(
            channel, task, self._keeping.check, self._fault_points.after, self._spans.add
        )
        self._engine = engines.of_all()
        behind = task.replays and self._engine.keeps_sums
        self._catch_up = CatchUp(
            self._reporter, task.checkpoint.step, behind=behind, ahead=task.protocol.ahead
        )
        evaluation = Evaluation(job, validation.samples, task.weighting, task.precision)
        worker = WorkerContext(
            task=task,
            job=job,
            store=store,
            replica=self._replica,
            progress=self._progress,
            epochs=self._epochs,
            rounds=self._rounds,
            slices=self._slices,
            channel=channel,
            held_out=HeldOut(validation, evaluation),
            engine=self._engine,
            catch_up=self._catch_up,
            faults=faults,
            fault_points=self._fault_points,
            reporter=self._reporter,
            lifetime=self._lifetime,
            spans=self._spans,
            wishes=self._wishes,
            room=self._wait_for_room,
            written=self._keeping.wait_in_step,
            among=engines.among,
            by=engines.by,
            finite=lambda steps, own: self._watch.after_round(steps, own_finite=own),
        )
        make = protocol(task.protocol)
        self._protocol = make(worker) if built is None else Pipeline(worker, built)
        self._watch = FiniteWatch(
            task,
            self._epochs,
            self._progress,
            trained_names(dict(self._replica.model.named_parameters())),
            self._engine,
            self._catch_up,
            self._reporter,
            self._fault_points,
        )
        state = alike(worker, tree["replica"], tensors)
        self.step = self._protocol.load_state(task.checkpoint.step, *state)
        self._ended = task.ended
        self.kept: str | None = None
        self.error: str | None = None
        waited = bool(tree["replica"].get(WAITING))
        told = {"step": self.step, **told_of(self._protocol, task, waited=waited)}
        start_s = time.monotonic() - began
        # Only those of whom something was heard are asked for heartbeats.
        urgent = self._heartbeats.sent
        self._reporter.add("start", urgent=urgent, seconds=start_s, **told)

    def _wait_to_go(self, task: Task) -> Task:
        """Be warm: wait until the generation before has ended. Returns the task from then on.

        Raises HandOver if too much of this life went by with that.
        """
        self._faults.at(task.checkpoint.step, "warm")
        self._reporter.add("warm", urgent=True)
        try:
            told = wait_patiently(
                lambda some_s: self._channel.get_bytes(GO, some_s),
                math.inf,
                self._lifetime.check_waiting,
                f"rank {task.rank} for the end of the generation before",
            )
        except BaseException:
            self._heartbeats.close()  # its channel is closed next
            raise
        return task.goes(Going.read(told))

    def run(self) -> str:
        """Train; returns "done", "stopped", "handed over" or `FAILED`."""
        try:
            while not self._finished():
                granted = self._take_round()
                then = self._end_after(granted)
                if granted.checkpoint or then is not None:
                    self._write_checkpoint(then)
                    if then is not None or self._lifetime.due() or self._lifetime.late():
                        self._keeping.wait()
                        self.kept = KEPT_BY_RUN
                        return then or HANDED_OVER
            self.kept = KEPT_BY_RUN
            return "done"
        except HandOver as hand_over:
            self.kept = KEPT_BY_WORKER if hand_over.kept else None
            return HANDED_OVER
        except Fenced:  # the successor has gone on long ago
            return HANDED_OVER
        except NotFiniteError as found:
            self.error = str(found)
            return FAILED

    def close(self) -> None:
        """Send what is still to be said, and end the threads."""
        with ExitStack() as stack:  # all of it, whichever fails; the last first
            stack.callback(self._reporter.close)
            stack.callback(self._heartbeats.close)
            stack.callback(self._engine.close)
            stack.callback(self._protocol.close)
            stack.callback(self._slices.close)
            stack.callback(self._gpu.close)
            stack.callback(self._keeping.close)

    def _end_after(self, granted: Wishes) -> str | None:
        """How the run ends after the round that was just taken, if it does."""
        if self._finished():
            return "done"
        return "stopped" if granted.stop else None

    def _finished(self) -> bool:
        return self._ended or self.step >= self._task.steps

    def _take_round(self) -> Wishes:
        self._fault_points.step, self._fault_points.operation = self.step, "grad"
        self._heartbeats.check()
        granted = self._protocol.take(self.step)
        self._heartbeats.round_ends()
        steps = self._rounds.steps(self.step)
        if not self._protocol.looks_at_losses:
            self._watch.after_round(steps, own_finite=self._protocol.own_finite)
        stop = steps.stop
        if self._epochs.ends_epoch(stop - 1):
            self._end_epoch(stop - 1)
            if self._task.decides and stop < self._task.steps:
                granted = self._decided_at(stop, granted)
        self.step = stop
        return granted

    def _end_epoch(self, step: int) -> None:
        """Validate after the epoch's last step, if it is time to."""
        began, at = time.monotonic(), time.time()
        epoch = self._epochs.epoch(step)
        measured: dict[str, float | None] = {}
        epochs = self._epochs.epoch(self._task.steps)
        if validates(epoch, epochs, self._job.validate_every):
            measured = self._protocol.validate(step)
        self._watch.after_validation(step, measured.get("val_loss"))
        measured |= self._replica.learning_rates()
        if self._job.batch_schedule is not None or self._job.batch_per_worker is not None:
            measured["batch_size"] = self._epochs.size(epoch)
        self._replica.end_epoch(measured.get("val_loss"))
        record = self._progress.end_epoch(measured)
        spans = self._spans.take(began)
        # All tell the same, and one request is enough to tell it at once.
        urgent = self._task.rank == 0
        cpu_s = time.process_time() + self._slices.cpu_s
        told = {"record": record, "cpu_s": cpu_s, "gpu": self._gpu.take()}
        self._reporter.add("epoch", urgent=urgent, step=step + 1, began=at, spans=spans, **told)
        self._faults.at(step, "epoch")

    def _decided_at(self, step: int, granted: Wishes) -> Wishes:
        """What is granted at the boundary before `step`, once the coordinator has decided there."""
        self._fault_points.operation = "decided"
        with self._spans.during("decide"):
            answer = wait_patiently(
                lambda some_s: self._channel.get_bytes(decided(step), some_s),
                self._task.wait_timeout_s,
                self._keeping.check,
                f"rank {self._task.rank} for what is decided after {step} steps",
            )
        self._faults.at(step - 1, "decided")
        told: Mapping[str, bool] = json.loads(answer)
        self._ended = told["ends"]
        return Wishes(granted.checkpoint or told["keeps"], granted.stop or told["changes"])

    def _wishes(self) -> Wishes:
        task, keeping = self._task, self._keeping
        stop = self._rounds.steps(self.step).stop
        since = self._rounds.number(stop) - self._rounds.number(keeping.last_step)
        # Own state that is kept within a round is of use only if all go back to that round.
        back_to_it = not task.replays and task.protocol.hands_over_within
        ahead = back_to_it and not self._lifetime.fits(len(self._rounds.steps(stop)))
        return keeping.wishes(since, ahead=ahead)

    def _wait_for_room(self) -> None:
        before = self._rounds.number(self._keeping.trimmed_step)
        self._keeping.wait_for_room(self._rounds.number(self.step) - before)

    def _write_checkpoint(self, then: str | None) -> None:
        """Write this worker's part; `then`: how the run ends after this checkpoint, if it does."""
        more = {"progress": self._progress.dump()}
        self._keeping.write(self.step, self._protocol, more, then)
