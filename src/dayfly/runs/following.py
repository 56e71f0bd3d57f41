"""A run's events as they come, read from where the run is kept by somebody who only looks on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dayfly.runs.event_records import (
    Ended,
    EpochTold,
    Event,
    NotFinite,
    RolledBack,
    StartedAgain,
    Stopping,
    event_of,
    told_of,
)
from dayfly.runs.event_segments import read_segments
from dayfly.runs.events import COORDINATOR, is_cut, worker_files
from dayfly.runs.recorder import Display
from dayfly.wire.stores.base import Store

_COORDINATOR = COORDINATOR.removesuffix(".jsonl")


class DirectoryEvents:
    """What was added to the event files of a directory since the last look.

    Args:
        directory: `events/` of a run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def look(self) -> Iterator[Event]:
        """Yields the records that are new, each file's in order."""
        for file in (self._directory / COORDINATOR, *worker_files(self._directory).values()):
            if not file.exists():
                continue
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                for line in lines:
                    if is_cut(line):
                        break
                    self._read[file] = self._read.get(file, 0) + len(line)
                    yield _event(file.stem, json.loads(line), str(file))


class StoreEvents:
    """The segments that a store has since the last look.

    Args:
        store: a run's.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after = ""

    def look(self) -> Iterator[Event]:
        """Yields the records that are new, in order."""
        for name, records in read_segments(self._store, self._after):
            self._after = name
            for of, record in records:
                yield _event(of, record, f"{self._store}/{name}")


class Teller:
    """Tells a display what a run's events say: epochs, deaths, and what followed from them."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._epoch = 0
        self._not_finite = False

    def tell(self, event: Event) -> None:
        """Shows an event, if it is one for people; an epoch that several report, once."""
        match event:
            case EpochTold() if event.epoch > self._epoch:
                self._epoch = event.epoch
                self._display.epoch(event.record)
            case NotFinite() if not self._not_finite:
                self._not_finite = True
                self._display.note(event.text)
            case Ended() if event.death:
                why = event.error or event.used.outcome
                self._display.note(f"worker {event.rank} died: {why}")
            case RolledBack():
                self._display.note(f"all workers go back to step {event.to_step}: {event.cause}")
            case StartedAgain():
                self._display.note(f"all workers start again: {event.cause}")
            case Stopping():
                self._display.note("stopping with a checkpoint")


def _event(of: str, record: Mapping[str, Any], place: str) -> Event:
    return event_of(record, place) if of == _COORDINATOR else told_of(record, place)
