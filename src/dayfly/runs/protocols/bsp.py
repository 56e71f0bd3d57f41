"""Synchronous data parallel: a round is a step.

The gradients go out in buckets, by threads of their own, while the backward pass still computes
those of the layers before; over a link several buckets at once, so that one's latency is another's
transfer. Small models have one bucket, which the training thread sums itself. Compression may have
it otherwise: `training/compression/` says what is summed, and when it can begin.

With virtual workers a worker computes its leaves of the batch one after another, and sums go along
a tree, so that they have the same bits for any number of workers: see `training.leaves`.

Some ways to compress make a step depend on what a worker contributed before. Then a worker that
catches up computes its own contributions once more, from the run checkpoint on, and sends nothing.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.runs.protocols.base import WholeModel, WorkerContext
from dayfly.runs.protocols.buckets import Buckets
from dayfly.specs.compression import compression
from dayfly.training.compression import exchange_of
from dayfly.training.compression.exchange import Exchange
from dayfly.training.leaves import LeafExchange
from dayfly.training.logged import added, by_name
from dayfly.training.order import Rounds
from dayfly.training.outer import of_outer
from dayfly.training.replica import Replica, Wishes
from dayfly.training.state import Tensors
from dayfly.training.synchronous import Synchronous
from dayfly.wire.engine import Engine


@dataclass(slots=True)
class StepPhase:
    """A phase of a step.

    Attributes:
        steps: what this worker computes in it.
        suffix: how the names of its fault points end.
    """

    suffix: str
    steps: Synchronous
    exchange: Exchange
    buckets: Buckets


class Bsp(WholeModel):
    """Steps of synchronous replicas, in one phase or several, each with a sum of its own."""

    _own_engine: Engine | None = None

    def __init__(self, worker: WorkerContext) -> None:
        super().__init__(worker)
        # With one worker nothing travels.
        asked = compression(worker.task.compress if worker.task.world_size > 1 else "none")
        job, replica, task = worker.job, worker.replica, worker.task
        leaves, self._own_engine = worker.slices.leaves, self._make_engine()
        engine = self._own_engine or worker.engine
        self.phases: list[StepPhase] = []
        for number, name in enumerate(job.phases):
            steps = Synchronous(
                job,
                replica,
                apart=asked.method != "none",
                weighting=task.weighting,
                phase=name,
            )
            if task.virtual_workers is None:
                optimizer = replica.optimizers[name]
                exchange = exchange_of(asked, steps.flat, job.seed, engine.schedule, optimizer)
            else:
                exchange = LeafExchange(steps.flat, leaves, task.virtual_workers)
            buckets = Buckets(engine, exchange, number)
            self.phases.append(StepPhase(name and f"-{name}", steps, exchange, buckets))
        # Settings refuse it of several phases.
        self._remembers = next((x.exchange for x in self.phases if x.exchange.remembers), None)

    def _make_engine(self) -> Engine | None:
        """Makes what brings gradients to their sums, if that is not the engine of all sums."""
        task = self.worker.task
        if task.virtual_workers is None:
            return None
        return self.worker.among(None, range(task.world_size), task.virtual_workers)

    @staticmethod
    def round_bytes(job: Job, replica: Replica, rounds: Rounds) -> int:
        return sum(Synchronous(job, replica, phase=x).flat.data.nbytes for x in job.phases)

    def load_state(self, step: int, tree: Any, tensors: Tensors) -> int:
        here = self.worker
        here.replica.load_state(tree, tensors)
        if self._remembers is not None:
            task = here.task
            own = checkpoints.read_own(here.store, task.checkpoint, task.rank, task.world_size)
            self._remembers.load_state(tensors, [one for one in own if not of_outer(one)])
        return step

    def state(self) -> tuple[Tensors, Tensors]:
        return ({}, {}) if self._remembers is None else self._remembers.state()

    def take(self, step: int) -> Wishes:
        here = self.worker
        here.lifetime.step_begins()
        began, at = time.monotonic(), time.time()
        loss, computed, self.own_finite = 0.0, False, True
        names = here.task.weighting.logged
        for phase in self.phases:
            computed = self._sum(step, phase) or computed
            reduced = time.monotonic()
            here.faults.at(step, f"reduced{phase.suffix}")
            with here.spans.during("apply"):
                its, granted = phase.steps.apply()
            loss += its
            here.faults.at(step, f"applied{phase.suffix}")
        logged = by_name(names, added((phase.steps.logged for phase in self.phases), names))
        here.progress.add(step, loss, len(here.epochs.batch(step)), logged)
        here.lifetime.step_ends()
        self.tell_step(
            step,
            loss,
            computed=computed,
            began=began,
            at=at,
            logged=logged,
            reduced_s=reduced - began,
        )
        return granted

    def _sum(self, step: int, phase: StepPhase) -> bool:
        """Sum a phase's gradient over the workers; returns whether the own was computed."""
        here = self.worker
        phase.buckets.begin(step, here.catch_up.stored(step, phase.buckets.sums))
        if not here.catch_up.behind:
            here.room()
        computed = phase.buckets.needs_own
        if computed:
            self._compute(step, phase)
        else:
            phase.buckets.take()
        phase.exchange.adopt()
        return computed

    def _compute(self, step: int, phase: StepPhase) -> None:
        """Compute the own gradient and sum it over the workers, bucket by bucket."""
        here = self.worker
        here.faults.at(step, f"compute{phase.suffix}")
        try:
            with here.spans.during("compute"):
                self.own_finite = self._leaves(step, phase) and self.own_finite
            here.faults.at(step, f"computed{phase.suffix}")
            with here.slices.lent():
                phase.buckets.finish()
        except BaseException as error:
            phase.buckets.give_up(error)
            raise

    def _leaves(self, step: int, phase: StepPhase) -> bool:
        """Compute the leaves of this worker's, one unless it has virtual ones; the last one's
        buckets go out as they become whole. Returns whether all losses are finite."""
        here, finite = self.worker, True
        wishes = here.wishes() if phase is self.phases[-1] else Wishes()
        samples, last = len(here.epochs.batch(step)), here.slices.leaves[-1]
        phase.exchange.begin()
        for number, leaf in enumerate(here.slices.leaves):
            pieces = here.slices.pieces(step, leaf)
            if leaf == last:
                phase.steps.compute(pieces, samples, step, leaf, wishes, phase.buckets.ready)
            else:
                phase.steps.compute(pieces, samples, step, leaf, Wishes())
                phase.exchange.keep(number)
            finite = finite and math.isfinite(phase.steps.own_loss)
        return finite

    def close(self) -> None:
        for phase in self.phases:
            phase.buckets.close()
        if self._own_engine is not None:
            self._own_engine.close()
