"""Synchronous data parallel: a round is a step.

The gradients go out in buckets, by threads of their own, while the backward pass still computes
those of the layers before; over a link several buckets at once, so that one's latency is another's
transfer. Small models have one bucket, which the training thread sums itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from dayfly.job import Job
from dayfly.runs.protocols.base import Protocol, Station
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
        self._steps = Synchronous(station.job, station.replica)
        self._buckets = self._steps.flat.buckets
        self._operations = operations(len(self._buckets))
        self._pool = (
            ThreadPoolExecutor(station.engine.at_once, thread_name_prefix="dayfly-buckets")
            if len(self._buckets) > 1
            else None
        )
        self._coming: list[Future[None]] = []

    @staticmethod
    def round_bytes(job: Job, replica: Replica, rounds: Rounds) -> int:
        return Synchronous(job, replica).flat.data.nbytes

    def load_state(self, step: int, tree: Any, tensors: Tensors) -> int:
        self.station.replica.load_state(tree, tensors)
        return step

    def take(self, step: int) -> Wishes:
        here = self.station
        here.lifetime.step_begins()
        began, at = time.monotonic(), time.time()
        # Behind at its first bucket and level at the second: the predecessor died between them.
        stored = [
            here.catch_up.stored(self._buffer(bucket), step, name)
            for bucket, name in enumerate(self._operations)
        ]
        if not here.catch_up.behind:
            here.room()
        computed = any(
            here.engine.schedule(self._buffer(bucket), some).reads_buffer
            for bucket, some in enumerate(stored)
        )
        if computed:
            self._compute(step, stored)
        else:
            for bucket in range(len(self._buckets)):
                self._reduce(bucket, step, stored[bucket])
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

        def ready(bucket: int) -> None:
            assert self._pool is not None
            self._coming.append(self._pool.submit(self._reduce, bucket, step, stored[bucket]))

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
            last = len(self._buckets) - 1
            if self._pool is None:
                self._reduce(last, step, stored[last])
            else:
                ready(last)  # all ranks begin them in the same order
            for coming in self._coming:
                coming.result()
        except BaseException as error:
            here.engine.give_up(error)  # what is still waiting for peers must not keep us here
            raise
        finally:
            for coming in self._coming:
                coming.cancel()
            self._coming.clear()

    def _reduce(self, bucket: int, step: int, stored: Stored) -> None:
        operation = self._operations[bucket]
        self.station.engine.all_reduce(self._buffer(bucket), step, operation, stored)

    def _buffer(self, bucket: int) -> torch.Tensor:
        span = self._buckets[bucket]
        return self._steps.flat.data[span.start : span.stop]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def operations(buckets: int) -> tuple[str, ...]:
    """Names of the buckets' all-reduces in keys: `grad`, or `grad-0`, `grad-1` and so on."""
    return tuple(f"grad-{n}" for n in range(buckets)) if buckets > 1 else ("grad",)
