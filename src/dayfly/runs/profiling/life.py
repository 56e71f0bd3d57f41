"""A worker that is watched: it lives as a worker of a run of one does, and times its parts between.

    start | round, parts | round, parts | ... | two rounds | checkpoint | end

What is measured is in the store as soon as it is known, so that what ran out of memory is known to
have done so, and when.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from dayfly.life.platforms.base import Context, Json
from dayfly.life.rollback import KEPT_BY_RUN
from dayfly.runs.profiling.layers import layer_bytes_of
from dayfly.runs.profiling.passes import Passes
from dayfly.runs.protocols.bsp import Bsp
from dayfly.runs.task import Task
from dayfly.runs.worker import Worker, work
from dayfly.wire.store import open_store

#: Rounds in a row, and at the end.
_ROUNDS = 2
#: Least and most often that all parts are timed; the first time does not count.
_LEAST, _MOST = 3, 300
#: Every how many times samples are read: over a slow way that takes long.
_READ_EVERY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to time.

    samples: of passes, the most first. budget_s: after which no more is begun. name: of the
    measurements in the store.
    """

    samples: tuple[int, ...]
    budget_s: float
    name: str


def nothing(payload: Json, context: Context) -> Json:
    """A handler that does nothing, to see what starting one takes."""
    return {}


def main(payload: Json, context: Context) -> Json:
    """The handler; returns how long after its begin the last round was over."""
    entered = time.monotonic()
    request = Request(**{**payload["request"], "samples": tuple(payload["request"]["samples"])})
    made: list[Watched] = []

    def make(*args: Any) -> Watched:
        made.append(Watched(*args, request=request, entered=entered))
        return made[-1]

    said = work(Task.load(payload["task"]), context, make)
    return {**said, "last_s": made[-1].last_s}


class Watched(Worker):
    """last_s: when its last round was over, from the begin of the handler."""

    def __init__(self, *args: Any, request: Request, entered: float) -> None:
        super().__init__(*args)
        self._request = request
        self._entered = entered
        self.last_s = 0.0
        self._taken: list[tuple[float, float, float]] = []
        self._parts: dict[str, Any] = defaultdict(list)
        self._protocol_of_one = cast(Bsp, self._protocol)
        station = self._protocol_of_one.station
        self._passes = Passes(
            station.job,
            station.replica,
            self._protocol_of_one.steps,
            station.slices.source,
            station.epochs,
        )

    def run(self) -> str:
        """Take rounds and time their parts until the budget is spent; then end as a run does."""
        start_s = time.monotonic() - self._entered
        batches = [self._passes.samples(count) for count in self._request.samples]
        facts = self._facts()
        until = time.monotonic() + self._request.budget_s
        times = 0
        while times < 1 + _LEAST or (times < 1 + _MOST and time.monotonic() < until):
            for _ in range(_ROUNDS if self._may_step() else 0):
                self._timed_round()
            self._time_parts(batches, read=times % _READ_EVERY == 0)
            times += 1
            if times == 1:  # everything is as it will be from now on
                first = self._taken[0]
                self._taken.clear()
                self._parts.clear()
        measured = {
            **facts,
            "start_s": start_s,
            "first": first,
            "rounds": self._taken,
            "block_steps": self._slices.block_steps,
            "state_bytes": self._state_bytes(),
            "parts": self._parts,
        }
        open_store(self._task.store).put(self._request.name, json.dumps(measured).encode())
        for _ in range(_ROUNDS):
            self._take_round()
        self.last_s = time.monotonic() - self._entered
        self._write_checkpoint("done")
        self._wait_for_part()
        self.kept = KEPT_BY_RUN
        return "done"

    def _end_epoch(self, step: int) -> None:
        """Without validation: a profile has it from the forward passes."""
        self._replica.end_epoch(None)
        self._progress.end_epoch({})

    def _may_step(self) -> bool:
        """A scheduler may refuse to go beyond the end of the job's run; two rounds are the last."""
        job, epochs = self._protocol_of_one.station.job, self._protocol_of_one.station.epochs
        within = self.step + 2 * _ROUNDS <= epochs.steps * job.epochs
        return within or job.scheduler is None or not self._taken

    def _timed_round(self) -> None:
        epochs = self._protocol_of_one.station.epochs
        whole = len(epochs.batch(self.step)) == len(epochs.batch(0))  # not so an epoch's last
        began, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
        self._take_round()
        now = time.perf_counter(), time.thread_time(), time.process_time()
        if whole:
            self._taken.append((now[0] - began, now[1] - thread, now[2] - process))

    def _time_parts(self, batches: Sequence[Any], *, read: bool) -> None:
        began, whole = time.perf_counter(), time.process_time()
        parts = self._parts
        for count, batch in zip(self._request.samples, batches, strict=True):
            plain = self._passes.compute(batch, by_layer=False)
            if count == self._request.samples[0]:
                parts["apply"].append(self._passes.apply())
            split = self._passes.compute(batch, by_layer=True)
            parts[f"plain {count}"].append((plain.loss - plain.start, plain.end - plain.loss))
            parts[f"split {count}"].append((split.forward(), split.backward()))
        # Only what computes throughout: how much of the CPU the function really gets.
        parts["share"].append((time.process_time() - whole, time.perf_counter() - began))
        if read:
            for count in self._request.samples:
                parts[f"read {count}"].append(self._passes.read(count))

    def _facts(self) -> dict[str, Any]:
        """What does not depend on the function's size."""
        station = self._protocol_of_one.station
        source = station.slices.source
        each = max(1, min(8, self._request.samples[0] // 2, source.samples // 2))
        once, twice = self._passes.samples(each), self._passes.samples(2 * each)
        layers = layer_bytes_of(station.job, self._passes.layers, once, twice, each)
        return {
            "layers": [asdict(layer) for layer in layers],
            "listed": self._passes.layers.listed,
            "samples": source.samples,
            "validation_samples": station.validation.samples,
            "sample_bytes": source.sample_bytes,
        }

    def _state_bytes(self) -> int:
        """Of the optimizer, once it has taken steps."""
        _, tensors = self._replica.state()
        return sum(
            tensor.nbytes for name, tensor in tensors.items() if name.startswith("optimizer.state.")
        )
