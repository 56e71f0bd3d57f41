"""What the coordinator of a run works with, whether the run begins or goes on.

begun      fresh directory and its lock -> store, led -> session and platform -> the first record
resumed    lock -> store, led, and copied from -> session and platform -> the next record
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dayfly.life.faults import Fault
from dayfly.runs.directory import fresh_directory, locked, new_run_id
from dayfly.runs.display import Display, shown
from dayfly.runs.events import Events
from dayfly.runs.functions import FunctionSettings
from dayfly.runs.home import USUAL, Home, copy, fresh, led, place_in
from dayfly.runs.listeners import Listener
from dayfly.runs.made_with import going_on, made_here, variables
from dayfly.runs.record import AnyRecord, RunRecord
from dayfly.runs.signals import StopSignals
from dayfly.runs.workplace import Workplace


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What every request for a run says beside what is to run.

    Attributes:
        display: what people see of the run.
        directory: of the run, or of its copy; None: `runs/<run id>`.
        listeners: hear what happens.
        faults: for tests.
        asked_at: since when the user waits, in Unix seconds; None: now.
        store: of a new run: URL of the store that keeps it below its id, so that the directory is
            a copy; None: the directory keeps it.
    """

    display: Display
    directory: Path | None = None
    listeners: Sequence[Listener] = ()
    faults: Sequence[Fault] = ()
    asked_at: float | None = None
    store: str | None = None


@dataclass(frozen=True, slots=True)
class RunContext:
    """What every kind of coordinator needs.

    Attributes:
        request: as it was made.
        home: where the run is kept.
        workplace: session, platform and signals.
        before: the record of the life before; None: the run begins.
        so_far: events of all lives before.
        notes: to be said before the run goes on.
    """

    request: RunRequest
    home: Home
    workplace: Workplace
    before: RunRecord | None = None
    so_far: Events | None = None
    notes: Sequence[str] = ()


@contextmanager
def begun(
    name: str, settings: FunctionSettings, preload: Sequence[str], request: RunRequest
) -> Iterator[tuple[RunContext, dict[str, Any]]]:
    """Opens what a new run needs; what is no run in the end leaves nothing.

    Args:
        name: part of the run's id.
        settings: of its functions.
        preload: see `preloads`.
        request: says where the run is to be, and who hears of it.

    Returns:
        The context, and the fields that records of all kinds of runs have.

    Raises:
        RequestError: the directory, the store or the platform cannot be had.
    """
    began_at = time.time() if request.asked_at is None else request.asked_at
    run_id, made, display = new_run_id(name), made_here(), request.display
    directory = (request.directory or USUAL / run_id).absolute()
    url = place_in(request.store, run_id)
    with (
        StopSignals() as signals,
        fresh_directory(directory),
        shown(display),
        fresh(url, directory, display.note) as home,
        Workplace.open(directory, preload, signals, variables(made), settings) as workplace,
    ):
        facts = {"run_id": run_id, "settings": settings, "store": url}
        facts |= {"made_with": made, "began_at": began_at}
        yield RunContext(request, home, workplace), facts


@contextmanager
def resumed(
    record: AnyRecord,
    directory: Path,
    changes: Mapping[str, Any],
    preload: Sequence[str],
    request: RunRequest,
) -> Iterator[tuple[RunContext, AnyRecord, AnyRecord]]:
    """Opens what a run needs to go on.

    Args:
        record: of the run, as it was found.
        directory: of the run.
        changes: settings that override the run's from now on.
        preload: see `preloads`.
        request: says who hears of the run.

    Returns:
        The context, the record of the life before, and that of the next one.

    Raises:
        RequestError: another process runs it, the machine is of another kind, or a change cannot
            be.
    """
    settings, display = record.changed_settings(changes), request.display
    made, notes = going_on(record.made_with, allow_other=record.allows_other_cpu(changes))
    with (
        StopSignals() as signals,
        locked(directory),
        shown(display),
        led(record.store, directory, display.note) as home,
        Workplace.open(directory, preload, signals, variables(made), settings) as workplace,
    ):
        if record.store is not None:
            copy(home.store, directory)  # others may have gone on with it since
        before = type(record).load(directory)
        so_far = Events.read(directory / "events")  # all, before anything is written
        after = before.next_life(so_far.heard_at, made, request.asked_at, **changes)
        yield RunContext(request, home, workplace, before, so_far, notes), before, after
