"""Two functions that send each other messages: latency, throughput, CPU time, and contention.

    rank 0    put put put   done?                    reads what comes back
    rank 1                  get get get   done!      puts as many

A row of messages of one size is timed as a whole, puts apart from gets: who gets begins when all
are there. Before a row both pause, so that a function with a share of the CPU has it; and a row is
no longer than what that share lets through at once. Last come sums by the run's own collective, as
lanes and threads take their time, too: short ones, of a few messages, and long ones, of many, as
some of that time is each message's and some the sum's. And passes of the job beside messages
without end. Long sums are several at once, as a run has them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from dayfly.life.platforms.base import Context, Json
from dayfly.runs.profiling.between_stages import MICRO_BATCHES, pipeline_steps
from dayfly.runs.profiling.passes import pass_of
from dayfly.runs.profiling.summing import (
    FEW,
    ITEM_BYTES,
    PAUSE_S,
    THERE_AND_BACK,
    long_length,
    timed_sums,
)
from dayfly.runs.task import Task
from dayfly.runs.workplace import site_of
from dayfly.wire.channels import channel_kind
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import Key
from dayfly.wire.message import Header, as_bytes
from dayfly.wire.schedule import worth_at_once
from dayfly.wire.shaped import shaped_channel
from dayfly.wire.shaping import ShapedLink
from dayfly.wire.stores import open_store
from dayfly.wire.summation import add_up

#: Most messages of a row.
_ROW = 8
#: Of the CPU time that a function may use at once, how much a row may take.
_PART = 0.6
#: A message that takes longer than this is none whose first is much slower.
_SLOW_S = 0.05
#: Of long sums and of a pipeline's steps, how many there are at least.
_LEAST_LONG, _LEAST_STEPS = 8, 4
#: Bytes of the terms that are added, to see how long that takes.
_TERM_BYTES = 2**22
#: What travels beside passes; how often, and for how long at a time, passes are timed beside it.
_BESIDE_BYTES = 2**20
_MOST_PAIRS = 12
_WHILE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRequest:
    """What to measure.

    Args:
        sizes: of messages, rising.
        rows: of each size.
        sums: how many small all-reduces, and at most of large ones.
        at_once_s: CPU time that the function may use at once; None: any.
        samples: of the passes beside which messages travel.
        few: of the passes before sums, and of the pipeline's.
        cuts: whether the job's model may be cut.
        budget_s: what the messages of a size may take, or larger ones are not sent; after which
            passes, large all-reduces and the pipeline are timed no more than at least.
        name: of the measurements in the store, of each rank.
    """

    sizes: tuple[int, ...]
    rows: int
    sums: int
    at_once_s: float | None
    samples: int
    few: int
    cuts: bool
    budget_s: float
    name: str


def main(payload: Json, context: Context) -> Json:
    """The handler, of both ranks."""
    task = Task.load(payload["task"])
    request = ExchangeRequest(**{**payload["request"], "sizes": tuple(payload["request"]["sizes"])})
    way = ShapedLink(task.rates) if task.rates is not None else None
    site = site_of(task.channel, open_store(task.store), task.run, task.generation, task.token)
    with shaped_channel(channel_kind(task.channel).open(site, task.rank), way) as channel:
        end = _End(task, request, channel)
        measured = end.lead() if task.rank == 0 else end.follow()
    name = f"{request.name}-{task.rank}"
    open_store(task.store).put(name, json.dumps(measured).encode())
    return {}


class _End:
    """One of the two. Both count their turns, so each knows the other's keys."""

    def __init__(self, task: Task, request: ExchangeRequest, channel: Channel) -> None:
        self._task = task
        self._request = request
        self._channel = channel
        self._rank = task.rank
        self._peer = 1 - task.rank
        self._turn = 0
        self._rows: list[tuple[int, float, float]] = []  # size, wall and CPU seconds of a message
        self._served: list[tuple[int, float]] = []  # the same, of the store's thread
        self._at_once = worth_at_once(immediate=channel.immediate)
        most = channel.abilities.largest_bytes
        self._sizes = [size for size in request.sizes if most is None or size <= most]
        self._memory = torch.zeros(max(self._sizes), dtype=torch.uint8)
        self._pass = pass_of(task, request.few)

    def lead(self) -> Mapping[str, Any]:
        """Rank 0: decide what comes next, until all is measured."""
        last_s_per_byte = 0.0
        for size in self._sizes:
            # By what the size before took, so that the first too large is not even tried.
            expected_s = self._request.rows * size * last_s_per_byte
            if size > self._sizes[1] and expected_s > 2 * self._request.budget_s:
                break
            wall_s, cpu_s = self._send(size, 1, counts=False)
            if wall_s < _SLOW_S:  # before, memory was touched, and connections were made
                wall_s, cpu_s = self._send(size, 1, counts=False)
            last_s_per_byte = wall_s / size
            count = self._count(wall_s, cpu_s)
            too_long = self._request.rows * wall_s > self._request.budget_s
            if size > self._sizes[1] and (too_long or not count):
                break
            for _ in range(self._request.rows):
                self._send(size, max(1, count))
        sums = {"short": self._lead_sums("short", FEW, self._request.sums)}
        if length := self._long(last_s_per_byte):
            sum_s = sums["short"]["wall_s"][-1] + length * ITEM_BYTES * last_s_per_byte
            affordable = int(self._request.budget_s / sum_s / THERE_AND_BACK)
            times = max(_LEAST_LONG, min(affordable, self._request.sums))
            sums["long"] = self._lead_sums("long", length, times)
        line = self._lead_pipeline() if self._request.cuts else []
        measured = {"reduce": self._reduce(), "beside": self._compute_beside()}
        self._tell("end")
        return {**self._measured(sums, line), **measured}

    def follow(self) -> Mapping[str, Any]:
        """Rank 1: do what rank 0 says."""
        sums: dict[str, Mapping[str, Any]] = {}
        line: list[Sequence[float]] = []
        while (told := self._told())["do"] != "end":
            if told["do"] == "sum":
                sums[told["kind"]] = self._sums(told["kind"], told["length"], told["times"])
                continue
            if told["do"] == "pipeline":
                line = self._pipeline(told["times"])
                continue
            size, count = told["size"], told["count"]
            row = size, *self._get(size, count, pauses=not told["back"])
            if told["counts"]:
                self._rows.append(row)
            if told["back"]:
                self._put(size, count, pauses=False)
            else:
                self._channel.put_bytes(self._key("done"), b"done")
            self._turn += 1
        return self._measured(sums, line)

    def _measured(
        self, sums: Mapping[str, Mapping[str, Any]], line: Sequence[Sequence[float]]
    ) -> Mapping[str, Any]:
        return {"rows": self._rows, "served": self._served, "sums": sums, "line": line}

    def _count(self, wall_s: float, cpu_s: float) -> int:
        """Messages of a row; 0 if one alone takes more than the function may use at once."""
        at_once_s = self._request.at_once_s
        by_cpu = _ROW if at_once_s is None else int(_PART * at_once_s / max(cpu_s, 1e-9))
        by_time = int(self._request.budget_s / max(wall_s, 1e-9) / self._request.rows)
        return min(_ROW, by_cpu, max(1, by_time))

    def _send(
        self, size: int, count: int, *, counts: bool = True, back: bool = False
    ) -> tuple[float, float]:
        """Rank 0: put a row for rank 1, and wait until it has all, or put as many back.

        Returns what a message took, as `_put`.

        Args:
            counts: whether it is among what was measured.
        """
        taken = self._put(size, count, pauses=not back)
        if counts:
            self._rows.append((size, *taken))
        self._tell("get", size=size, count=count, counts=counts, back=back)
        if back:
            self._get(size, count, pauses=False)
        else:
            done = self._key("done", of=self._peer)
            self._channel.get_bytes(done, self._task.wait_timeout_s)
            self._channel.drop([done])
        self._turn += 1
        return taken

    def _put(self, size: int, count: int, *, pauses: bool) -> tuple[float, float]:
        """Put a row; wall and CPU seconds of a message."""
        header = Header("row", torch.uint8, (size,))
        payload = as_bytes(self._memory[:size])
        if pauses:
            time.sleep(PAUSE_S)
        with self._serving(size, count):
            began, whole = time.perf_counter(), time.process_time()
            for number in range(count):
                self._channel.put(self._key("row", number), header, payload)
            wall_s, cpu_s = time.perf_counter() - began, time.process_time() - whole
        return wall_s / count, cpu_s / count

    def _get(self, size: int, count: int, *, pauses: bool) -> tuple[float, float]:
        """Get the other's row; wall and CPU seconds of a message."""
        header = Header("row", torch.uint8, (size,))
        keys = [self._key("row", number, of=self._peer) for number in range(count)]
        timeout_s = self._task.wait_timeout_s
        if pauses:
            time.sleep(PAUSE_S)
        with self._serving(size, count):
            began, whole = time.perf_counter(), time.process_time()
            for number, key in enumerate(keys):
                # As a collective does: it holds the terms that it adds, and gets what is to stay.
                if number % 2:
                    self._channel.fetch(key, header, timeout_s)
                else:
                    self._channel.get(key, self._memory[:size], timeout_s)
            wall_s, cpu_s = time.perf_counter() - began, time.process_time() - whole
        self._channel.drop(keys)
        return wall_s / count, cpu_s / count

    @contextmanager
    def _serving(self, size: int, count: int) -> Iterator[None]:
        """Note what the store's thread takes for a message of a row, if it tells."""
        before_s = self._channel.served_s()
        yield
        after_s = self._channel.served_s()
        if before_s is not None and after_s is not None:
            self._served.append((size, (after_s - before_s) / count))

    def _long(self, s_per_byte: float) -> int:
        """Elements of all long sums together; 0: they would be too short to time a message by."""
        affordable = self._request.budget_s / THERE_AND_BACK / s_per_byte
        chunk_bytes = self._channel.abilities.chunk_bytes
        most_bytes = min(self._sizes[-1], affordable)
        return long_length(self._task, chunk_bytes, most_bytes, self._at_once)

    def _lead_sums(self, kind: str, length: int, times: int) -> Mapping[str, Any]:
        self._tell("sum", kind=kind, length=length, times=times)
        return self._sums(kind, length, times)

    def _sums(self, kind: str, length: int, times: int) -> Mapping[str, Any]:
        count = self._at_once if kind == "long" else 1
        return timed_sums(self._task, self._channel, self._pass, length, times, count)

    def _lead_pipeline(self) -> list[Sequence[float]]:
        began = time.perf_counter()
        self._pass()
        step_s = 2 * 2 * MICRO_BATCHES * (time.perf_counter() - began)
        affordable = int(self._request.budget_s / step_s)
        times = max(_LEAST_STEPS, min(affordable, self._request.sums))
        self._tell("pipeline", times=times)
        return self._pipeline(times)

    def _pipeline(self, times: int) -> list[Sequence[float]]:
        return pipeline_steps(self._task, self._channel, self._pass, times)

    def _reduce(self) -> list[float]:
        """CPU seconds a byte that is added, of contributions to a sum."""
        one, other = torch.ones(_TERM_BYTES // 4), torch.ones(_TERM_BYTES // 4)
        times = []
        for _ in range(2 + 3 * self._request.rows):
            began = time.thread_time()
            add_up([one, other], one, torch.empty_like)
            times.append((time.thread_time() - began) / _TERM_BYTES)
        return times[2:]

    def _compute_beside(self) -> list[tuple[float, float, float, float]]:
        """A pass's wall and CPU seconds: alone, and beside messages to and fro."""
        run = pass_of(self._task, self._request.samples)
        run()
        pairs: list[tuple[float, float, float, float]] = []
        until = time.monotonic() + self._request.budget_s
        while len(pairs) < 2 or (time.monotonic() < until and len(pairs) < _MOST_PAIRS):
            alone = _several(run)
            with _beside(self._to_and_fro):
                beside = _several(run)
            pairs.append((*alone, *beside))
        return pairs

    def _to_and_fro(self) -> None:
        self._send(min(_BESIDE_BYTES, self._sizes[-1]), 1, counts=False, back=True)

    def _key(self, operation: str, number: int = 0, of: int | None = None) -> Key:
        """A message's of this turn.

        Args:
            of: whose it is; None: one's own.
        """
        source = self._rank if of is None else of
        return Key(self._turn * _ROW + number, operation, source, 1 - source)

    def _tell(self, do: str, **more: Any) -> None:
        self._channel.put_bytes(self._key("told"), json.dumps({"do": do, **more}).encode())
        if do != "get":
            self._turn += 1

    def _told(self) -> Mapping[str, Any]:
        key = self._key("told", of=self._peer)
        told: Mapping[str, Any] = json.loads(
            self._channel.get_bytes(key, self._task.wait_timeout_s)
        )
        self._channel.drop([key])
        if told["do"] != "get":
            self._turn += 1
        return told


def _several(run: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds of a run, by the mean of as many as a while takes."""
    began, thread, count = time.perf_counter(), time.thread_time(), 0
    while not count or time.perf_counter() - began < _WHILE_S:
        run()
        count += 1
    return (time.perf_counter() - began) / count, (time.thread_time() - thread) / count


@contextmanager
def _beside(action: Callable[[], None]) -> Iterator[None]:
    """Does something again and again in a thread of its own, while the `with` lasts."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            action()

    with ThreadPoolExecutor(1, thread_name_prefix="dayfly-beside") as pool:
        repeating = pool.submit(repeat)
        try:
            yield
        finally:
            over.set()
            repeating.result()
