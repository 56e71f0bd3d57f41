"""Synchronous data parallel: a round is a step.

The gradients go out in buckets, by threads of their own, while the backward pass still computes
those of the layers before; over a link several buckets at once, so that one's latency is another's
transfer. Small models have one bucket, which the training thread sums itself. Compression may have
it otherwise: `train/compression/` says what is summed, and when it can begin.

Some ways to compress make a step depend on what a worker contributed before. Then a worker that
catches up computes its own contributions once more, from the run checkpoint on, and sends nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.runs.protocols.base import Protocol, Station
from dayfly.train.compression import compression
from dayfly.train.order import Rounds
from dayfly.train.replica import Replica, Wishes
from dayfly.train.state import Tensors
from dayfly.train.synchronous import Synchronous
from dayfly.wire.schedule import Name

Stored = Set[Name] | None


class Bsp(Protocol):
    """Steps of synchronous replicas."""

    def __init__(self, station: Station) -> None:
        super().__init__(station)
        # With one worker nothing travels.
        asked = compression(station.task.compress if station.task.world_size > 1 else "none")
        compressed = asked.method != "none"
        self._steps = Synchronous(station.job, station.replica, apart=compressed)
        self._exchange = asked.exchange(self._steps.flat, station.job.seed, station.engine.schedule)
        self._operations = operations(len(self._exchange.buffers))
        self._pool = (
            ThreadPoolExecutor(station.engine.at_once, thread_name_prefix="dayfly-buckets")
            if self._exchange.early
            else None
        )
        self._coming: list[Future[None]] = []

    @staticmethod
    def round_bytes(job: Job, replica: Replica, rounds: Rounds) -> int:
        return Synchronous(job, replica).flat.data.nbytes

    def load_state(self, step: int, tree: Any, tensors: Tensors) -> int:
        here = self.station
        here.replica.load_state(tree, tensors)
        if self._exchange.remembers:
            task = here.task
            own = checkpoints.read_own(here.store, task.checkpoint, task.rank, task.world_size)
            self._exchange.load_state(tensors, own)
        return step

    def state(self) -> tuple[Tensors, Tensors]:
        return self._exchange.state()

    def take(self, step: int) -> Wishes:
        here = self.station
        here.lifetime.step_begins()
        began, at = time.monotonic(), time.time()
        buffers = dict(zip(self._operations, self._exchange.buffers, strict=True))
        stored = here.catch_up.stored(step, buffers)
        if not here.catch_up.behind:
            here.room()
        computed = self._exchange.remembers or any(
            here.engine.schedule(buffer, some).reads_buffer
            for buffer, some in zip(self._exchange.buffers, stored, strict=True)
        )
        if computed:
            self._compute(step, stored)
        else:
            for number, some in enumerate(stored):
                self._reduce(number, step, some)
        self._exchange.adopt()
        reduced = time.monotonic()
        here.faults.at(step, "reduced")
        with here.spans.during("apply"):
            loss, granted = self._steps.apply()
        here.faults.at(step, "applied")
        here.progress.add(loss, len(here.epochs.batch(step)))
        here.lifetime.step_ends()
        self.tell_step(step, loss, computed=computed, began=began, at=at, reduced_s=reduced - began)
        return granted

    def _compute(self, step: int, stored: Sequence[Stored]) -> None:
        """Compute the own gradient and sum it over the workers, bucket by bucket."""
        here = self.station
        here.faults.at(step, "compute")

        def ready(number: int) -> None:
            if self._pool is not None:
                reduce = self._pool.submit(self._contribute, number, step, stored[number])
                self._coming.append(reduce)

        try:
            with here.spans.during("compute"):
                self._steps.compute(
                    here.slices.pieces(step),
                    len(here.epochs.batch(step)),
                    step,
                    here.task.rank,
                    here.wishes(),
                    ready,
                )
            here.faults.at(step, "computed")
            for late in range(self._exchange.early, len(stored)):
                if self._pool is None:
                    self._contribute(late, step, stored[late])
                else:
                    ready(late)  # all ranks begin them in the same order
            for coming in self._coming:
                coming.result()
        except BaseException as error:
            here.engine.give_up(error)  # what is still waiting for peers must not keep us here
            raise
        finally:
            for coming in self._coming:
                coming.cancel()
            self._coming.clear()

    def _contribute(self, number: int, step: int, stored: Stored) -> None:
        self._exchange.contribute(number)
        self._reduce(number, step, stored)

    def _reduce(self, number: int, step: int, stored: Stored) -> None:
        buffer, codec = self._exchange.buffers[number], self._exchange.codecs[number]
        self.station.engine.all_reduce(buffer, step, self._operations[number], stored, codec)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def operations(buckets: int) -> tuple[str, ...]:
    """Names of the buckets' all-reduces in keys: `grad`, or `grad-0`, `grad-1` and so on."""
    return tuple(f"grad-{n}" for n in range(buckets)) if buckets > 1 else ("grad",)
