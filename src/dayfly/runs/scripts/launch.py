"""From a request to a script's run: `begin` starts one, `resume` goes on with one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.runs import preloads
from dayfly.runs.directory import being_prepared, fresh_directory, locked, new_run_id
from dayfly.runs.display import Display, shown
from dayfly.runs.events import Events
from dayfly.runs.function_resources import resources_of
from dayfly.runs.home import copy, found, fresh, led, place_in
from dayfly.runs.listeners import Listener
from dayfly.runs.made_with import going_on, made_here, variables
from dayfly.runs.scripts.one_life import ScriptLife
from dayfly.runs.scripts.record import FILES, Script, ScriptRecord, ScriptRun, ScriptSettings
from dayfly.runs.signals import StopSignals
from dayfly.runs.workplace import Workplace
from dayfly.wire.stores import open_store


def begin(
    what: str,
    args: Sequence[str],
    settings: ScriptSettings,
    *,
    module: bool = False,
    directory: Path | None = None,
    display: Display,
    output: TextIO,
    listeners: Sequence[Listener] = (),
    faults: Sequence[Fault] = (),
    asked_at: float | None = None,
    store: str | None = None,
) -> ScriptRun:
    """Check a request, make the run's directory and run the script on all workers.

    what: a file, or the name of a module. directory: default `runs/<run id>`. output: where the
    functions' output is shown. listeners: hear what happens. asked_at: since when the user waits,
    in Unix seconds; None: now. store: URL of the store that keeps the run below its id; None: the
    directory keeps it. Raises RequestError before any function is started, leaving nothing; a run
    that fails afterwards is returned, with its error in the result.
    """
    asked_at = time.time() if asked_at is None else asked_at
    cwd = Path.cwd()
    script = Script.find(what, module=module, cwd=cwd)
    resources_of(settings)  # before anything is made
    run_id = new_run_id(what.rpartition(".")[2] if module else Path(what).stem)
    directory = (directory or Path("runs") / run_id).absolute()
    url = place_in(store, run_id)
    made = made_here()
    with (
        StopSignals() as signals,
        fresh_directory(directory),
        shown(display),
        fresh(url, directory, display.note) as home,
        Workplace.open(directory, preloads.SCRIPT, signals, variables(made), settings) as workplace,
    ):
        with being_prepared(directory):
            (directory / FILES).mkdir()
            record = ScriptRecord(
                run_id=run_id,
                settings=settings,
                script=script,
                args=tuple(args),
                cwd=str(cwd),
                made_with=made,
                began_at=asked_at,
                store=url,
            )
        return ScriptLife(record, home, display, output, faults, workplace, listeners).start()


def resume(
    run: str | Path,
    *,
    directory: Path | None = None,
    display: Display,
    output: TextIO,
    listeners: Sequence[Listener] = (),
    faults: Sequence[Fault] = (),
    asked_at: float | None = None,
    **changes: Any,
) -> ScriptRun:
    """Start the script of a run again, in the next generation; it has its files of before.

    run: its directory, or its URL in a store. directory: for a copy of a run in a store; None:
    `runs/<run id>`. asked_at: see `begin`. changes: settings that are to be others from now on,
    such as `lifetime_s`; None: as before. A run that is done is returned as it is, which is said.
    Raises RequestError if the directory holds no run of a script, another process runs it, or the
    script is another one by now.
    """
    asked_at = time.time() if asked_at is None else asked_at
    directory = found(run, directory)
    record = ScriptRecord.load(directory)
    if record.status == "done" and record.result is not None:
        display.note("it was done already: nothing was started")
        return ScriptRun(directory, record.result, lives=record.generation + 1)
    if (changed := record.script.changed()) is not None:
        raise RequestError(changed)
    if not Path(record.cwd).is_dir():
        raise RequestError(f"the run began in {record.cwd}, which is not there any more")
    known = {name: value for name, value in changes.items() if value is not None}
    settings = record.changed_settings(known)
    made, notes = going_on(record.made_with, allow_other=record.allows_other_cpu(changes))
    with (
        StopSignals() as signals,
        locked(directory),
        shown(display),
        led(record.store, directory, display.note) as home,
        Workplace.open(directory, preloads.SCRIPT, signals, variables(made), settings) as workplace,
    ):
        if record.store is not None:
            copy(open_store(record.store), directory)  # others may have gone on with it since
        (directory / FILES).mkdir(exist_ok=True)
        before = ScriptRecord.load(directory)
        so_far = Events.read(directory / "events")  # all, before anything is written
        record = before.next_life(so_far.heard_at, made, asked_at, **changes)
        for note in notes:
            display.note(note)
        life = ScriptLife(record, home, display, output, faults, workplace, listeners)
        return life.start(before, so_far)
