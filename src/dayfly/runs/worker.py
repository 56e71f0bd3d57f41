"""A worker: the function that trains. It puts data, replica, wire and life together.

    read the checkpoint
    each step:  catch up?  the step's sums that are in the log are used as they are
                otherwise  compute the gradient of the own slice
                all-reduce, apply the sum, validate at the end of an epoch
                a checkpoint, if any worker wanted one in this step
    end:        done, stopped as asked, or handed over to the successor in good time

A worker that starts again finds its checkpoint's successors in the message log. The first step that
is not whole in the log is the one in which its predecessor died; from there on it is level with
its peers, which noticed nothing but a slow worker.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from dayfly.life import checkpoints
from dayfly.life.coordinator import STOP, trimmed
from dayfly.life.faults import Faults
from dayfly.life.lifetimes import HandOver, Lifetime
from dayfly.life.platforms.base import Context, Json
from dayfly.life.reports import Reporter
from dayfly.runs.progress import Progress
from dayfly.runs.shipping import receive
from dayfly.runs.task import Task
from dayfly.train.evaluation import Evaluation
from dayfly.train.order import Epochs
from dayfly.train.replica import Replica, Wishes
from dayfly.train.slices import Slices
from dayfly.train.sources import open_sources
from dayfly.wire.channels import open_channel
from dayfly.wire.channels.base import Channel, Namespace
from dayfly.wire.collectives import COLLECTIVES
from dayfly.wire.engine import Engine, wait_patiently
from dayfly.wire.keys import EVERYONE
from dayfly.wire.schedule import Kind, Name, Op
from dayfly.wire.shaped import shaped_channel, shaped_store
from dayfly.wire.shaping import Way
from dayfly.wire.store import FileStore, open_store

#: Longest time between two looks for a wish to stop, in seconds.
_LOOK_FOR_STOP_S = 0.1


def main(payload: Json, context: Context) -> Json:
    """The handler of a training function; returns its status and the step it got to."""
    task = Task.load(payload)
    way = Way(task.rates) if task.rates is not None else None
    store = shaped_store(open_store(task.store), way)
    faults = Faults(task.faults, task.rank, store)
    faults.at(task.checkpoint.step, "start")
    here = open_channel(task.channel, Namespace(task.run, task.generation), task.rank)
    with shaped_channel(here, way) as channel:
        worker = Worker(task, context, store, channel, faults)
        try:
            status = worker.run()
        finally:
            worker.close()
        return {"status": status, "step": worker.step}


class Worker:
    """One attempt. `step` is the next step to take."""

    def __init__(
        self, task: Task, context: Context, store: FileStore, channel: Channel, faults: Faults
    ) -> None:
        self._task = task
        self._store = store
        self._channel = channel
        self._faults = faults
        self._lifetime = Lifetime(context)
        self._reporter = Reporter(channel, task.rank, task.attempt)
        job = receive(task.shipped, store, Path(task.scratch))
        self._job = job
        self._replica = Replica(job)
        tree, tensors = checkpoints.read(store, task.checkpoint)
        self._replica.load_state(tree["replica"], tensors)
        self._progress = Progress.load(tree["progress"])
        train, self._validation = open_sources(job, task.parts, store)
        self._epochs = Epochs(task.samples, job.batch_size, job.seed)
        self._slices = Slices(train, self._epochs, task.rank, task.world_size, job.accumulate)
        self._evaluation = Evaluation(job)
        self._engine = Engine(
            channel,
            COLLECTIVES[task.collective],
            task.rank,
            task.world_size,
            timeout_s=task.wait_timeout_s,
            interrupt=self._lifetime.check,
            observe=self._observe,
        )
        self.step = task.checkpoint.step
        self._last_checkpoint = self.step
        self._trimmed = task.trimmed_step
        self._checkpoint_at = time.monotonic() - task.checkpoint_age_s
        self._catching_up = bool(self._engine.sums)
        self._looked_for_stop = 0.0
        self._operation = "grad"

    def run(self) -> str:
        """Train; returns "done", "stopped" or "handed over"."""
        try:
            if not self._catching_up:
                self._reporter.add("caught up", urgent=True, step=self.step)
            while not self._finished():
                granted = self._take_step()
                then = self._end_after(granted)
                if granted.checkpoint or then is not None:
                    self._write_checkpoint(then)
                    if then is not None:
                        return then
                    if self._lifetime.due() or self._lifetime.late():
                        return "handed over"
            return "done"
        except HandOver:
            return "handed over"

    def close(self) -> None:
        """Send what is still to be said, and end the threads."""
        self._slices.close()
        self._engine.close()
        self._reporter.flush()

    def _end_after(self, granted: Wishes) -> str | None:
        """How the run ends after the step that was just taken, if it does."""
        if self._finished():
            return "done"
        return "stopped" if granted.stop else None

    def _finished(self) -> bool:
        if self.step >= self._task.steps:
            return True
        history, target = self._progress.history, self._task.target_accuracy
        if target is None or not history or self.step % self._epochs.steps:
            return False
        return (history[-1]["val_accuracy"] or 0.0) >= target

    def _take_step(self) -> Wishes:
        step, replica = self.step, self._replica
        self._lifetime.step_begins()
        began = time.monotonic()
        stored = self._stored_sums("grad")
        if not self._catching_up:
            self._wait_for_room()
        batch = len(self._epochs.batch(step))
        buffer = replica.flat.data
        computed = self._engine.schedule(buffer.numel(), stored).reads_buffer
        if computed:
            self._faults.at(step, "compute")
            pieces = self._slices.pieces(step)
            replica.compute(pieces, batch, step, self._task.rank, self._wishes())
            self._faults.at(step, "computed")
        reducing = time.monotonic()
        self._engine.all_reduce(buffer, step, "grad", stored)
        reduced = time.monotonic()
        self._faults.at(step, "reduced")
        loss, granted = replica.apply()
        self._faults.at(step, "applied")
        self._progress.add(loss, batch)
        if self._epochs.ends_epoch(step):
            self._end_epoch()
        self.step = step + 1
        self._lifetime.step_ends()
        self._reporter.add(
            "step",
            step=step,
            loss=loss,
            computed=computed,
            compute_s=reducing - began,
            wire_s=reduced - reducing,
            step_s=time.monotonic() - began,
        )
        return granted

    def _end_epoch(self) -> None:
        epoch = self._epochs.epoch(self.step)
        measured: dict[str, float | None] = {}
        last = self.step + 1 == self._task.steps
        if last or (epoch + 1) % self._job.validate_every == 0:
            stored = self._stored_sums("val")
            sums = self._evaluation.empty()
            if self._engine.schedule(sums.numel(), stored).reads_buffer:
                sums = self._evaluation.sums(
                    self._replica.model, self._validation, self._task.rank, self._task.world_size
                )
            self._engine.all_reduce(sums, self.step, "val", stored)
            measured = self._evaluation.means(sums)
        self._replica.end_epoch(measured.get("val_loss"))
        record = self._progress.end_epoch(measured)
        self._reporter.add("epoch", urgent=True, record=record)
        self._faults.at(self.step, "epoch")

    def _stored_sums(self, operation: str) -> frozenset[Name] | None:
        """The sums that are in the log while this attempt catches up; None once it is level."""
        self._operation = operation
        if not self._catching_up:
            return None
        stored = self._engine.stored_sums(self.step, operation)
        if len(stored) < len(self._engine.sums):
            self._catching_up = False
            self._reporter.add("caught up", urgent=True, step=self.step)
        return stored

    def _wishes(self) -> Wishes:
        task, now = self._task, time.monotonic()
        since = self.step + 1 - self._last_checkpoint
        log_fills = task.log_steps is not None and since >= max(1, task.log_steps // 2)
        time_is_up = task.rank == 0 and now - self._checkpoint_at > task.checkpoint_every_s
        wishes = Wishes(checkpoint=log_fills or time_is_up or self._lifetime.due())
        if now - self._looked_for_stop > _LOOK_FOR_STOP_S:
            self._looked_for_stop = now
            wishes.stop = bool(self._channel.stored([STOP]))
        return wishes

    def _wait_for_room(self) -> None:
        """Wait until the log has room for another step: until the last checkpoint was committed."""
        if self._task.log_steps is None or self.step - self._trimmed < self._task.log_steps:
            return
        key = trimmed(self._last_checkpoint)
        wait_patiently(
            lambda some_s: self._channel.get_bytes(key, some_s),
            self._task.wait_timeout_s,
            self._lifetime.check,
            f"rank {self._task.rank} for room in the message log ({key})",
        )
        self._trimmed = self._last_checkpoint

    def _write_checkpoint(self, then: str | None) -> None:
        """Write this worker's part; `then`: how the run ends after this checkpoint, if it does."""
        began = time.monotonic()
        self._faults.at(self.step, "checkpoint")
        tree, tensors = self._replica.state()
        whole = {"replica": tree, "progress": self._progress.dump()}
        parts = checkpoints.write_share(
            self._store, self.step, self._task.rank, self._task.world_size, whole, tensors
        )
        self._faults.at(self.step, "written")
        self._reporter.add(
            "part", urgent=True, step=self.step, parts=[asdict(part) for part in parts], then=then
        )
        self._faults.at(self.step, "told")
        self._last_checkpoint = self.step
        self._checkpoint_at = time.monotonic()
        self._lifetime.checkpoint_took(self._checkpoint_at - began)

    def _observe(self, op: Op) -> None:
        """Failure tests: after each operation, such as `grad-put-sum` or `val-reduce`."""
        place = f"{self._operation}-{op.kind.value}"
        if op.kind is Kind.PUT and op.name is not None:
            place += "-sum" if op.name.destination == EVERYONE else "-part"
        self._faults.at(self.step, place)
