"""Keeps what happens in a run: event files, the history, the meter.

    events/coordinator.jsonl    functions invoked and ended, checkpoints
    events/worker-0.jsonl       the records of rank 0, in order of arrival
    ...

A coordinator that continues a run reads them back, so bill and history are the whole run's.
"""

from __future__ import annotations

import json
import os
import resource
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dayfly.catalogue.metering import MeteredInvocation, StoreTraffic
from dayfly.life.platforms.base import Ended, Invocation
from dayfly.life.reports import Report, plain
from dayfly.life.workload import RunListener
from dayfly.runs.attempt_clock import AttemptClock
from dayfly.runs.event_segments import EventSegments
from dayfly.runs.events import (
    COORDINATOR,
    LONGEST_BYTES,
    Events,
    coordinator_life,
    is_cut,
    worker_files,
)
from dayfly.runs.phases import Phases, phases, step_s_of
from dayfly.specs import events as event_records
from dayfly.specs.events import (
    EpochTold,
    Event,
    RolledBack,
    RoundTold,
    StepTold,
    Told,
    TrafficTold,
    event_from,
)
from dayfly.specs.generations import GenerationPlan
from dayfly.wire.stores.files import StoreDirectory, cannot_write

if TYPE_CHECKING:
    from dayfly.life.commits import Checkpoint

Json = Mapping[str, Any]


class Recorder(RunListener):
    """Listens to one coordinator's supervisor, and remembers the lives before it.

    Args:
        publish: told each event, with who tells it, once it is written.
        before: events of the lives before; None: it is the first.
        segments: where events go besides the directory; None: nowhere. cause: why all workers
            started again last, in this life. redone_steps: gradients that were computed again,
            after deaths and rollbacks, as far as they were reported; a step that all workers redo
            counts once for each of them.
    """

    def __init__(
        self,
        directory: Path,
        publish: Callable[[str, Event], None],
        before: Events | None = None,
        segments: EventSegments | None = None,
    ) -> None:
        self._segments = segments
        self._home = StoreDirectory(directory)
        self._directory = directory / "events"
        self._directory.mkdir(exist_ok=True)
        self._publish = publish
        self.used: list[MeteredInvocation] = []
        self.restarts = 0
        self.rollbacks = 0
        self.cause: str | None = None
        self.losses: dict[int, float | None] = {}
        self._step_s: dict[int, float] = {}
        self._computed: defaultdict[int, StepRanges] = defaultdict(StepRanges)
        self.redone_steps = 0
        self._traffic: dict[tuple[int, int, int], Counter[str]] = {}
        self.stored_bytes = 0
        self._size_bytes: Callable[[], int] | None = None
        self._committed_at = time.monotonic()
        self._clocks: dict[tuple[int, int], AttemptClock] = {}
        self._lives_before: list[MeteredInvocation] = []
        self._asked_at = time.time()
        self._life: MeteredInvocation | None = None
        self._spent_before = Phases() if before is None else phases(before)
        self._stepped: tuple[float, float] | None = None  # in this life: first began, last ended
        if before is not None:
            self._take_up(before)

    @property
    def median_step_s(self) -> float | None:
        """Median seconds of a step that rank 0 computed; of a round's, an equal share of it."""
        return median(self._step_s.values()) if self._step_s else None

    @property
    def startup_s(self) -> float:
        """Start-up time of all lives: of each, until its first step."""
        began = time.time() if self._stepped is None else self._stepped[0]
        return self._spent_before.start_s + max(0.0, began - self._asked_at)

    @property
    def train_s(self) -> float:
        """Training time of all lives: from the first step of each to the end of its last step, or
        of its last validation."""
        began, ended = self._stepped or (0.0, 0.0)
        return self._spent_before.training_s + ended - began

    @property
    def checkpoint_age_s(self) -> float:
        """Seconds since a checkpoint was committed, or since this life began."""
        return time.monotonic() - self._committed_at

    def coordinator_used(self) -> list[MeteredInvocation]:
        """Returns the coordinator's use by life; this life counts until the first call."""
        before = self._lives_before
        if self._life is None:
            peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            run_s = max(0.0, time.time() - self._asked_at)
            self._life = coordinator_life(len(before), run_s, peak_mib)
        return [*before, self._life]

    def begun(self, asked_at: float) -> None:
        """Records that this life of the coordinator began.

        Args:
            asked_at: when it was asked for, in Unix seconds.
        """
        self._asked_at = asked_at
        self.write("coordinator", kind=event_records.Begun.kind, asked_at=asked_at)

    def over(self) -> None:
        """Records that this life of the coordinator is over, once its results are written."""
        life = self.coordinator_used()[-1]
        kind = event_records.Over.kind
        self.write("coordinator", kind=kind, run_s=life.run_s, peak_mib=life.memory_mib)

    @property
    def traffic(self) -> Counter[str]:
        """bytes_up, bytes_down, requests, … of all workers, as far as they were reported."""
        return sum(self._traffic.values(), Counter[str]())

    @property
    def moved(self) -> dict[str, StoreTraffic]:
        """Traffic of each function."""
        found: dict[str, Counter[str]] = {}
        for (rank, _, _), counters in self._traffic.items():
            name = f"worker-{rank}"
            found[name] = found.get(name, Counter()) + counters
        return {name: StoreTraffic(**counters) for name, counters in found.items()}

    def measure(self, size_bytes: Callable[[], int]) -> None:
        """From now on, note at each checkpoint how much the channel holds."""
        self._size_bytes = size_bytes

    def begins(self, plan: GenerationPlan) -> None:
        self.write(
            "coordinator",
            kind=event_records.GenerationBegun.kind,
            number=plan.number,
            first_step=plan.first_step,
            workers=plan.world_size,
            request=None if plan.change is None else plan.change.request,
            changes=None if plan.change is None else plan.change.words,
        )

    def invoked(self, plan: GenerationPlan, rank: int, invocation: Invocation) -> None:
        self._clocks[rank, invocation.attempt] = AttemptClock(time.time())
        self.write(
            "coordinator",
            kind="invoked",
            function=invocation.function,
            attempt=invocation.attempt,
            memory_mib=invocation.spec.memory_mib,
            gpu_share=invocation.spec.gpu_share,
            **_tariff(plan),
        )

    def ended(self, plan: GenerationPlan, rank: int, ended: Ended, *, death: bool) -> None:
        invocation = ended.invocation
        used = MeteredInvocation(
            function=invocation.function,
            attempt=invocation.attempt,
            memory_mib=invocation.spec.memory_mib,
            init_s=ended.init_s,
            run_s=ended.run_s,
            outcome=ended.outcome.value,
            gpu_share=invocation.spec.gpu_share,
            **_tariff(plan),
        )
        self.used.append(used)
        self.restarts += death
        self.write(
            "coordinator",
            kind="ended",
            death=death,
            error=ended.error,
            detail=ended.detail,
            place=None if ended.failure is None else ended.failure.place,
            result=ended.result,
            peak_mib=ended.peak_mib,
            used=asdict(used),
        )

    def reported(self, plan: GenerationPlan, report: Report) -> None:
        life = {"generation": plan.number, "attempt": report.attempt}
        name = f"worker-{report.rank}"
        now = time.time()
        clock = self._clocks.setdefault((report.rank, report.attempt), AttemptClock())
        told = clock.shifted(report.records, now)
        told.insert(0, {"kind": "traffic", **report.traffic})
        records = [{"at": now, **record, **life} for record in told]
        for event in self._append(name, records):
            assert isinstance(event, Told)
            self._note(report.rank, event)
            self._note_time(event)

    def committed(self, checkpoint: Checkpoint) -> None:
        self._committed_at = time.monotonic()
        stored = self._size_bytes() if self._size_bytes is not None else 0
        self.stored_bytes = max(self.stored_bytes, stored)
        self.write("coordinator", kind="checkpoint", step=checkpoint.step, stored_bytes=stored)

    def decided(self, step: int, reason: str) -> None:
        """The run ends after `step` steps, as a decider wants it."""
        self.write("coordinator", kind="decided", step=step, reason=reason)

    def answered(
        self, request: int, *, changes: str | None = None, refused: str | None = None
    ) -> None:
        """A request for another plan has an answer: what changes, or why nothing does."""
        kind = event_records.ChangeAnswered.kind
        self.write("coordinator", kind=kind, request=request, changes=changes, refused=refused)

    def stopping(self) -> None:
        self.write("coordinator", kind="stopping")

    def rolled_back(self, from_step: int, to_step: int, redone_steps: int, cause: str) -> None:
        """All workers go back to the checkpoint before `to_step`; `from_step` steps were done."""
        self.rollbacks += 1
        self.cause = cause
        self.write(
            "coordinator",
            kind="rolled back",
            from_step=from_step,
            to_step=to_step,
            redone_steps=redone_steps,
            cause=cause,
        )

    def _note(self, rank: int, record: Told) -> None:
        match record:
            case TrafficTold():
                self._traffic[rank, record.generation, record.attempt] = record.counters
            case StepTold():
                self._note_step(rank, record)
            case RoundTold():
                self._note_round(rank, record)

    def _note_time(self, record: Told) -> None:
        if (step_s := step_s_of(record)) is not None:
            first, last = record.began_s, record.began_s + step_s
        elif isinstance(record, EpochTold) and self._stepped is not None:
            first = last = record.at
        else:
            return
        began, ended = self._stepped or (first, last)
        self._stepped = min(began, first), max(ended, last)

    def _note_step(self, rank: int, record: StepTold) -> None:
        step = record.step
        self.losses[step] = record.loss
        if record.computed:
            self.redone_steps += not self._computed[rank].add(step)
            if rank == 0:
                self._step_s[step] = record.step_s

    def _note_round(self, rank: int, record: RoundTold) -> None:
        """Local SGD: what workers knew of their own slices is known of the batches now."""
        steps = range(record.step, record.step + record.steps)
        self.losses.update(zip(steps, record.losses, strict=True))
        if rank == 0 and record.computed:
            self._step_s.update(dict.fromkeys(steps, record.round_s / len(steps)))

    def write(self, name: str, **fields: Any) -> None:
        """Add a record to the event file of a name, with the time it has.

        Raises StoreError if it cannot be written.
        """
        self._append(name, [{"at": time.time(), **fields}])

    def _append(self, name: str, records: Sequence[Json]) -> list[Event]:
        """Adds records to the event file of a name, opened once for all of them; tells of them."""
        records = [plain(record) for record in records]
        text = "".join(f"{json.dumps(record)}\n" for record in records)
        path = self._directory / f"{name}.jsonl"
        self._home.check()
        try:
            with path.open("a") as file:
                file.write(text)
        except OSError as error:
            self._home.check()
            raise cannot_write(path, error) from error
        if self._segments is not None:
            self._segments.add(name, records)
        events = [event_from(name, record, f"a record of {name}") for record in records]
        for event in events:
            self._publish(name, event)
        return events

    def _take_up(self, before: Events) -> None:
        """Goes on with what the lives before this one left."""
        for file in (self._directory / COORDINATOR, *worker_files(self._directory).values()):
            _mend_last_line(file)
        for rank, records in before.workers.items():
            for record in records:
                self._note(rank, record)
        self.used.extend(before.used)
        self.stored_bytes = before.stored_bytes
        self._lives_before = before.coordinator_used
        self.restarts += sum(
            one.death for one in before.coordinator if isinstance(one, event_records.Ended)
        )
        self.rollbacks += sum(isinstance(one, RolledBack) for one in before.coordinator)


def _tariff(plan: GenerationPlan) -> dict[str, Any]:
    """How functions of a generation are billed, as fields of a record."""
    return {} if plan.tariff is None else asdict(plan.tariff)


def _mend_last_line(file: Path) -> None:
    """A line that was cut short must not swallow the one that is appended next: it is removed."""
    if not file.exists():
        return
    with file.open("rb+") as raw:
        size = raw.seek(0, os.SEEK_END)
        raw.seek(max(0, size - LONGEST_BYTES))
        tail = raw.read()
        last = tail.rpartition(b"\n")[2]
        if not last:
            return
        if is_cut(last):
            raw.truncate(size - len(last))
        else:
            raw.write(b"\n")


class StepRanges:
    """A set of step numbers, as disjoint ranges [start, stop) in order.

    Workers compute steps in order, so there are few gaps; memory grows with them only.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def add(self, step: int) -> bool:
        """Adds a step.

        Returns:
            False if it was there already.
        """
        at = bisect_right(self._starts, step)  # the ranges before `at` begin at the step or before
        if at and step < self._stops[at - 1]:
            return False
        joins_before = bool(at) and self._stops[at - 1] == step
        joins_after = at < len(self._starts) and self._starts[at] == step + 1
        if joins_before and joins_after:
            self._stops[at - 1] = self._stops.pop(at)
            self._starts.pop(at)
        elif joins_before:
            self._stops[at - 1] = step + 1
        elif joins_after:
            self._starts[at] = step
        else:
            self._starts.insert(at, step)
            self._stops.insert(at, step + 1)
        return True

    def __len__(self) -> int:
        """Number of ranges."""
        return len(self._starts)
