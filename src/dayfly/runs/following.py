"""A run's events as they come, read from where the run is kept by somebody who only looks on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dayfly.runs.display import Display
from dayfly.runs.event_segments import read_segments
from dayfly.runs.events import COORDINATOR, is_cut, worker_files
from dayfly.runs.spending import Spending
from dayfly.specs.events import (
    ChangeAnswered,
    Ended,
    EpochTold,
    Event,
    GenerationBegun,
    NotFinite,
    OtherCpu,
    RolledBack,
    StartedAgain,
    StepTold,
    Stopping,
    event_from,
)
from dayfly.wire.stores.base import Store

#: Seconds between two looks at the dollars that a run spent.
_SPENT_EVERY_S = 1.0


class DirectoryEvents:
    """What was added to the event files of a directory since the last look.

    Args:
        directory: `events/` of a run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def look(self) -> Iterator[tuple[str, Event]]:
        """Yields the records that are new, each file's in order, with who told them."""
        for file in (self._directory / COORDINATOR, *worker_files(self._directory).values()):
            if not file.exists():
                continue
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                for line in lines:
                    if is_cut(line):
                        break
                    self._read[file] = self._read.get(file, 0) + len(line)
                    yield file.stem, event_from(file.stem, json.loads(line), str(file))


class StoreEvents:
    """The segments that a store has since the last look.

    Args:
        store: a run's.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after = ""

    def look(self) -> Iterator[tuple[str, Event]]:
        """Yields the records that are new, in order, with who told them."""
        for name, records in read_segments(self._store, self._after):
            self._after = name
            for of, record in records:
                yield of, event_from(of, record, f"{self._store}/{name}")


class Teller:
    """Tells a display what a run's events say: steps, epochs, deaths, and what followed from them.

    Args:
        display: shows them.
        untold: kinds of events that are not told.
        log_place: where people find a function's log; None: it is not said.
        stopping: what to say further of a stop.
        spending: of the run's functions, shown once a second; None: nobody knows prices.
    """

    def __init__(
        self,
        display: Display,
        untold: tuple[type[Event], ...] = (),
        log_place: Callable[[str], str] | None = None,
        stopping: str = "",
        spending: Spending | None = None,
    ) -> None:
        self._display = display
        self._spending = spending
        self._spent_at = 0.0
        self._untold = untold
        self._log_place = log_place
        self._stopping = stopping
        self._next_step = 0
        self._epoch = 0
        self._said: set[str] = set()

    def tell(self, source: str, event: Event) -> None:
        """Shows an event, if it is one for people; what several workers report, once."""
        if self._spending is not None:
            self._spending.hear(event)
            if (now := time.time()) > self._spent_at + _SPENT_EVERY_S:
                self._spent_at = now
                self._display.spent(self._spending.workers, self._spending.usd(now))
        if isinstance(event, self._untold):
            return
        match event:
            case StepTold() if event.step >= self._next_step:
                self._next_step = event.step + 1
                self._display.step(event.step, event.loss)
            case EpochTold() if event.epoch > self._epoch:
                self._epoch = event.epoch
                self._display.epoch(event.record)
            case NotFinite() if NotFinite.kind not in self._said:
                self._said.add(NotFinite.kind)
                self._display.note(f"{event.text}; it goes on (--on-nan warn)")
            case OtherCpu() if event.text not in self._said:
                self._said.add(event.text)
                self._display.note(f"{source.replace('-', ' ')}: {event.text}")
            case Ended() if event.death:
                why = event.error or event.detail or event.used.outcome
                log = self._log_place and f" (log: {self._log_place(event.used.function)})"
                self._display.note(f"worker {event.rank} died: {why}{log or ''}")
            case RolledBack():
                steps = event.redone_steps
                again = f", and do {steps} step{'s' * (steps != 1)} again" if steps else ""
                self._display.note(
                    f"all workers go back to step {event.to_step}{again}: {event.cause}"
                )
            case ChangeAnswered(refused=None):
                self._display.note(f"accepted, once the next workers are warm: {event.changes}")
            case ChangeAnswered():
                self._display.note(f"a change was refused: {event.refused}")
            case GenerationBegun() if event.changes is not None:
                self._display.note(f"from step {event.first_step} on: {event.changes}")
            case StartedAgain():
                self._display.note(f"all workers start again: {event.cause}")
            case Stopping():
                self._display.note(f"stopping with a checkpoint{self._stopping}")
