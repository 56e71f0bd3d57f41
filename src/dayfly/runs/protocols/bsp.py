"""Synchronous data parallel: a round is a step.

The gradients go out in buckets, by threads of their own, while the backward pass still computes
those of the layers before; over a link several buckets at once, so that one's latency is another's
transfer. Small models have one bucket, which the training thread sums itself. Compression may have
it otherwise: `training/compression/` says what is summed, and when it can begin.

Some ways to compress make a step depend on what a worker contributed before. Then a worker that
catches up computes its own contributions once more, from the run checkpoint on, and sends nothing.
"""

from __future__ import annotations

import math
import time
from typing import Any

from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.runs.protocols.base import Buckets, WholeModel, WorkerContext
from dayfly.training.compression import compression
from dayfly.training.order import Rounds
from dayfly.training.replica import Replica, Wishes
from dayfly.training.state import Tensors
from dayfly.training.synchronous import Synchronous


class Bsp(WholeModel):
    """Steps of synchronous replicas. steps: what this one computes in them."""

    def __init__(self, worker: WorkerContext) -> None:
        super().__init__(worker)
        # With one worker nothing travels.
        asked = compression(worker.task.compress if worker.task.world_size > 1 else "none")
        compressed = asked.method != "none"
        self.steps = Synchronous(
            worker.job, worker.replica, apart=compressed, weighting=worker.task.weighting
        )
        self._exchange = asked.exchange(self.steps.flat, worker.job.seed, worker.engine.schedule)
        self._buckets = Buckets(worker.engine, self._exchange)

    @staticmethod
    def round_bytes(job: Job, replica: Replica, rounds: Rounds) -> int:
        return Synchronous(job, replica).flat.data.nbytes

    def load_state(self, step: int, tree: Any, tensors: Tensors) -> int:
        here = self.worker
        here.replica.load_state(tree, tensors)
        if self._exchange.remembers:
            task = here.task
            own = checkpoints.read_own(here.store, task.checkpoint, task.rank, task.world_size)
            self._exchange.load_state(tensors, own)
        return step

    def state(self) -> tuple[Tensors, Tensors]:
        return self._exchange.state()

    def take(self, step: int) -> Wishes:
        here = self.worker
        here.lifetime.step_begins()
        began, at = time.monotonic(), time.time()
        self._buckets.begin(step, here.catch_up.stored(step, self._buckets.sums))
        if not here.catch_up.behind:
            here.room()
        computed = self._buckets.needs_own
        if computed:
            self._compute(step)
            self.own_finite = math.isfinite(self.steps.own_loss)
        else:
            self._buckets.take()
        self._exchange.adopt()
        reduced = time.monotonic()
        here.faults.at(step, "reduced")
        with here.spans.during("apply"):
            loss, granted = self.steps.apply()
        here.faults.at(step, "applied")
        here.progress.add(step, loss, len(here.epochs.batch(step)))
        here.lifetime.step_ends()
        self.tell_step(step, loss, computed=computed, began=began, at=at, reduced_s=reduced - began)
        return granted

    def _compute(self, step: int) -> None:
        """Compute the own gradient and sum it over the workers, bucket by bucket."""
        here = self.worker
        here.faults.at(step, "compute")
        try:
            with here.spans.during("compute"):
                self.steps.compute(
                    here.slices.pieces(step),
                    len(here.epochs.batch(step)),
                    step,
                    here.task.rank,
                    here.wishes(),
                    self._buckets.ready,
                )
            here.faults.at(step, "computed")
            self._buckets.finish()
        except BaseException as error:
            self._buckets.give_up(error)
            raise

    def close(self) -> None:
        self._buckets.close()
