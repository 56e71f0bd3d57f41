"""The timeline of a run: events become one band a worker, with its attempts, steps and spans.

events/coordinator.jsonl          invoked  invoked ... ended (death)  invoked (attempt 1) ...
events/worker-1.jsonl                  caught up, step, step, step         step, step ...

band of worker 1                  |//|##|==============|X|//|##|======|>
                                  cold start, load     death, and its successor
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dayfly.runs.report.generations import GenerationSeen, generations
from dayfly.runs.report.spans import (
    APART_S,
    Pass,
    Step,
    TimeSpan,
    joined,
    passes_of,
    spans_of,
    step_of,
)
from dayfly.specs.events import (
    Committed,
    Ended,
    Event,
    Invoked,
    RolledBack,
    StepTold,
    Stopping,
    Told,
    TrafficTold,
)

#: A time in which no function lived is drawn this wide at most, in seconds: a run may be resumed
#: after days.
PAUSE_S = 1.0
#: Clocks of function and coordinator differ by less than this, in seconds.
_SKEW_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One invocation, in seconds of the timeline.

    Attributes:
        life: counted from 0, by the attempts seen.
        ready_s: the handler began; None: nobody told.
        end: "done", "stopped", "hand-over", "death", "cancelled", "lifetime", "running", or "lost"
            if its coordinator was killed.
        why: the cause of a death.
    """

    life: int
    number: int
    start_s: float
    ready_s: float | None = None
    end_s: float = 0.0
    end: str = "running"
    why: str = ""


Timed = TypeVar("Timed", Attempt, Step, Pass)


@dataclass(frozen=True, slots=True)
class Band:
    """One worker: its attempts, steps, spans and passes of micro-batches, each in order."""

    worker: int
    attempts: tuple[Attempt, ...]
    steps: tuple[Step, ...]
    spans: Mapping[str, tuple[TimeSpan, ...]]
    passes: tuple[Pass, ...] = ()

    def seconds(self) -> dict[str, float]:
        """Seconds by kind."""
        return {
            kind: sum(span.end_s - span.start_s for span in spans)
            for kind, spans in self.spans.items()
        }


@dataclass(frozen=True, slots=True)
class Pause:
    """A time without any function that the timeline leaves out: `left_out_s` of it, at `at_s`."""

    at_s: float
    left_out_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Seconds count from the run's first event, pauses left out.

    Attributes:
        origin_s: that event, unix seconds.
        as_of_s: the last event, unix seconds.
        checkpoints: (second, step).
        rollbacks, generations: with the second at which they were.
    """

    origin_s: float
    as_of_s: float
    length_s: float
    bands: tuple[Band, ...] = ()
    pauses: tuple[Pause, ...] = ()
    checkpoints: tuple[tuple[float, int], ...] = ()
    stops: tuple[float, ...] = ()
    rollbacks: tuple[RolledBack, ...] = ()
    generations: tuple[GenerationSeen, ...] = ()

    @property
    def changes(self) -> list[GenerationSeen]:
        """Those with another plan than the one before."""
        return [one for one in self.generations if one.changes is not None]

    def ends(self, kind: str) -> int:
        """How many attempts ended so."""
        return sum(one.end == kind for band in self.bands for one in band.attempts)


def timeline(
    coordinator: Sequence[Event],
    workers: Mapping[int, Sequence[Told]],
    *,
    running: bool,
    of_script: bool = False,
) -> Timeline:
    """Returns a run's bands, one for each function.

    Args:
        coordinator: its events.
        workers: their events, by rank.
        running: functions without an end are alive; else they were lost with their coordinator.
        of_script: functions ran a script, from when they were ready to their end.
    """
    drafts = _drafts(coordinator, workers, running=running, of_script=of_script)
    clock = _Clock(drafts)
    bands = tuple(draft.band(clock) for _, draft in sorted(drafts.items()))
    at = [record.at for records in (coordinator, *workers.values()) for record in records]
    return Timeline(
        origin_s=clock.origin_s,
        as_of_s=max(at, default=0.0),
        length_s=max((one.end_s for band in bands for one in band.attempts), default=0.0),
        bands=bands,
        pauses=clock.pauses,
        checkpoints=tuple(
            (clock(record.at), record.step)
            for record in coordinator
            if isinstance(record, Committed)
        ),
        stops=tuple(clock(record.at) for record in coordinator if isinstance(record, Stopping)),
        rollbacks=tuple(
            replace(one, at=clock(one.at)) for one in coordinator if isinstance(one, RolledBack)
        ),
        generations=tuple(
            replace(one, at=clock(one.at)) for one in generations(coordinator, workers)
        ),
    )


@dataclass(slots=True)
class _Draft:
    """A band in the making, in unix seconds."""

    worker: int
    attempts: list[Attempt] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    spans: list[TimeSpan] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    # By attempt: the first and the last that was heard of it.
    first_s: dict[int, float] = field(default_factory=dict)
    last_s: dict[int, float] = field(default_factory=dict)

    def read(self, records: Iterable[Told]) -> None:
        for record in records:
            if isinstance(record, TrafficTold):
                continue  # its time is the coordinator's
            if isinstance(record, StepTold):
                self.steps.append(step_of(record))
                self.passes += passes_of(record)
            self.spans += spans_of(record)
            place = self._place(record)
            if place is not None:
                self.first_s.setdefault(place, record.began_s)
                self.last_s[place] = record.at

    def _place(self, record: Told) -> int | None:
        """Which of the attempts wrote a record: attempts count anew in each life."""
        numbered = [
            place for place, one in enumerate(self.attempts) if one.number == record.attempt
        ]
        begun = [p for p in numbered if self.attempts[p].start_s <= record.at + _SKEW_S]
        return begun[-1] if begun else next(iter(numbered), None)

    def close(self, as_of_s: float, *, of_script: bool) -> None:
        """Ends attempts without a recorded end, and fills the time before their first step."""
        for place, one in enumerate(self.attempts):
            if one.end == "running":
                one = replace(one, end_s=max(as_of_s, one.start_s))
            elif one.end == "lost":
                one = replace(one, end_s=max(self.last_s.get(place, 0.0), one.start_s))
            self.attempts[place] = one
            first_s = min(max(self.first_s.get(place, one.end_s), one.start_s), one.end_s)
            ready_s = first_s if one.ready_s is None else min(one.ready_s, one.end_s)
            if ready_s > one.start_s:
                self.spans.append(TimeSpan("cold start", one.start_s, ready_s))
            if of_script:
                self.spans.append(TimeSpan("script", ready_s, one.end_s))
            elif first_s > ready_s:
                self.spans.append(TimeSpan("load", ready_s, first_s))

    def band(self, clock: _Clock) -> Band:
        times: dict[str, list[tuple[float, float]]] = {}
        for span in self.spans:
            times.setdefault(span.kind, []).append((clock(span.start_s), clock(span.end_s)))
        spans = {
            kind: tuple(TimeSpan(kind, start_s, end_s) for start_s, end_s in joined(pairs, APART_S))
            for kind, pairs in sorted(times.items())
        }
        attempts = (
            replace(one, ready_s=None if one.ready_s is None else clock(one.ready_s))
            for one in self.attempts
        )
        return Band(
            self.worker,
            tuple(map(clock.moved, attempts)),
            tuple(sorted(map(clock.moved, self.steps), key=lambda step: step.start_s)),
            spans,
            tuple(sorted(map(clock.moved, self.passes), key=lambda one: one.start_s)),
        )


def _drafts(
    coordinator: Sequence[Event],
    workers: Mapping[int, Sequence[Told]],
    *,
    running: bool,
    of_script: bool,
) -> dict[int, _Draft]:
    drafts: dict[int, _Draft] = {rank: _Draft(rank) for rank in workers}
    life = 0
    seen: set[tuple[int, int]] = set()
    for record in coordinator:
        if isinstance(record, Invoked):
            call = record.rank, record.attempt
            if call in seen:  # attempts count anew: what still ran was lost with its coordinator
                life += 1
                seen.clear()
                _lose(drafts.values())
            seen.add(call)
            draft = drafts.setdefault(call[0], _Draft(call[0]))
            draft.attempts.append(Attempt(life=life, number=call[1], start_s=record.at))
        elif isinstance(record, Ended):
            _end(drafts, record)
    if not running:
        _lose(drafts.values())
    at = [record.at for records in (coordinator, *workers.values()) for record in records]
    for rank, draft in drafts.items():
        draft.read(workers.get(rank, ()))
        draft.close(max(at, default=0.0), of_script=of_script)
    return drafts


def _end(drafts: Mapping[int, _Draft], record: Ended) -> None:
    used = record.used
    if (draft := drafts.get(record.rank)) is None:
        return
    # Not always the last one: its successor may have started before.
    numbered = [place for place, one in enumerate(draft.attempts) if one.number == used.attempt]
    if not numbered:
        return
    one = draft.attempts[numbered[-1]]
    ready_s = one.start_s + used.init_s
    status = used.outcome if record.result is None else record.result.status
    draft.attempts[numbered[-1]] = replace(
        one,
        ready_s=ready_s,
        end_s=ready_s + used.run_s,
        end="death" if record.death else {"handed over": "hand-over"}.get(status, status),
        why=(record.error or used.outcome) if record.death else "",
    )


def _lose(drafts: Iterable[_Draft]) -> None:
    for draft in drafts:
        draft.attempts = [
            replace(one, end="lost") if one.end == "running" else one for one in draft.attempts
        ]


class _Clock:
    """Unix seconds to seconds of the timeline, which leaves out the pauses between lives."""

    def __init__(self, drafts: Mapping[int, _Draft]) -> None:
        lives = [(o.start_s, o.end_s) for draft in drafts.values() for o in draft.attempts]
        lives += [(s.start_s, s.end_s) for draft in drafts.values() for s in draft.spans]
        alive = joined(lives, PAUSE_S)
        self.origin_s = alive[0][0] if alive else 0.0
        self._starts_s = [start_s for start_s, _ in alive]
        self._left_out_s: list[float] = []
        pauses, left_out_s = [], 0.0
        for place, (start_s, _) in enumerate(alive):
            if place:
                before_s = alive[place - 1][1]
                pause_s = start_s - before_s - PAUSE_S
                at_s = before_s - self.origin_s - left_out_s + PAUSE_S / 2
                pauses.append(Pause(at_s, pause_s))
                left_out_s += pause_s
            self._left_out_s.append(left_out_s)
        self.pauses = tuple(pauses)

    def __call__(self, unix_s: float) -> float:
        """Never before the origin; what happens in a pause happens at its beginning or end."""
        place = bisect_right(self._starts_s, unix_s) - 1
        if place < 0:
            return 0.0
        shown_s = unix_s - self._left_out_s[place] - self.origin_s
        if place + 1 < len(self._starts_s):
            ends_s = self._starts_s[place + 1] - self._left_out_s[place + 1] - self.origin_s
            return min(shown_s, ends_s)
        return shown_s

    def moved(self, one: Timed) -> Timed:
        """Something with a beginning and an end, in seconds of the timeline."""
        return replace(one, start_s=self(one.start_s), end_s=self(one.end_s))
