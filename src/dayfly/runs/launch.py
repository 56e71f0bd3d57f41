"""From a request to a run: `begin` starts one, `resume` goes on with one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.faults import Fault
from dayfly.planning.plan import Plan
from dayfly.runs import preloads
from dayfly.runs.directory import PLAN, being_prepared, fresh_directory, locked, new_run_id
from dayfly.runs.display import Display, shown
from dayfly.runs.events import Events
from dayfly.runs.function_resources import resources_of
from dayfly.runs.home import copy, found, fresh, home_of, led, place_in
from dayfly.runs.job_record import Record
from dayfly.runs.listeners import Listener
from dayfly.runs.made_with import going_on, made_here, variables
from dayfly.runs.one_life import OneLife
from dayfly.runs.prepare import check_shares, prepare
from dayfly.runs.resuming import (
    changed_job,
    check_epochs,
    is_over,
    stored_job,
    take_inputs_again,
    take_job,
)
from dayfly.runs.run import Run
from dayfly.runs.run_plan import carried_out, gone_on
from dayfly.runs.settings import WARN_OF_NAN, Settings
from dayfly.runs.shipping import ship
from dayfly.runs.signals import StopSignals
from dayfly.runs.staging import recut, refitted
from dayfly.runs.workplace import Workplace
from dayfly.training.arrays import ArraySplit, place
from dayfly.training.paged import paged


def begin(
    job: Job,
    settings: Settings,
    *,
    directory: Path | None = None,
    name: str = "job",
    code: Path | None = None,
    plan: Plan | None = None,
    display: Display,
    listeners: Sequence[Listener] = (),
    faults: Sequence[Fault] = (),
    asked_at: float | None = None,
    store: str | None = None,
) -> Run:
    """Check a request, make the run's directory and train.

    directory: default `runs/<run id>`. name: part of the run's id. code: directory whose files
    travel with the job. plan: of which the settings are, maybe with others in their place.
    asked_at: since when the user waits, in Unix seconds; None: now. store: URL of the store that
    keeps the run below its id, so that the directory is a copy; None: the directory keeps it.
    Raises RequestError before any function is started, leaving nothing; a run that fails
    afterwards is returned, with its error in the result.
    """
    asked_at = time.time() if asked_at is None else asked_at
    check_shares(job, settings)
    for kind in settings.kinds:
        resources_of(kind)  # before anything is made
    run_id = new_run_id(name)
    directory = (directory or Path("runs") / run_id).absolute()
    url = place_in(store, run_id)
    made = made_here()
    with (
        StopSignals() as signals,
        fresh_directory(directory),
        shown(display),
        fresh(url, directory, display.note) as home,
        Workplace.open(directory, preloads.JOB, signals, variables(made), settings) as workplace,
    ):
        with being_prepared(directory), paged(directory, when=bool(settings.cut)):
            shipped = ship(job, code, home.store, display.note, run=directory)
            prepared = prepare(job, settings, None if plan is None else plan.profile)
            parts: tuple[ArraySplit, ...] = ()
            if prepared.arrays is not None:
                note = display.note if settings.on_nan == WARN_OF_NAN else None
                parts = place(prepared.arrays, home.store, job.seed, note=note)
            written = checkpoints.write_stages(home.store, 0, prepared.states)
            checkpoints.commit(home.store, 0, written)
            samples = parts[0].samples if parts else prepared.training_samples
            planned = None
            if plan is not None:
                plan, planned = carried_out(plan, settings, job, samples)
            record = Record(
                run_id=run_id,
                settings=settings,
                shipped=shipped,
                parts=parts,
                samples=samples,
                planned=planned,
                round_bytes=prepared.round_bytes,
                pipelining=prepared.pipelining,
                weighting=prepared.weighting,
                made_with=made,
                began_at=asked_at,
                store=url,
            )
        if job.compile:
            display.note(
                "the model is compiled: where torch makes other code after a restart, the bits of "
                "this run may be others than those of an undisturbed one"
            )
        return OneLife(job, record, home, display, faults, workplace, plan, listeners).start()


def resume(
    run: str | Path,
    *,
    directory: Path | None = None,
    epochs: int | None = None,
    job_file: Path | None = None,
    allow_changed_job: bool = False,
    display: Display,
    listeners: Sequence[Listener] = (),
    faults: Sequence[Fault] = (),
    asked_at: float | None = None,
    **changes: Any,
) -> Run:
    """Go on with a run from its last checkpoint; a run that is done is returned as it is.

    run: its directory, or its URL in a store. directory: for a copy of a run in a store; None:
    `runs/<run id>`. epochs: to which it goes; None: as before. job_file: the job's, to be compared
    with the stored one; None: that is taken. allow_changed_job: go on with the file's if it is
    another. asked_at: see `begin`. changes: settings that are to be others from now on, such as
    `workers`; None: as before. Raises RequestError if there is no run, or another process runs it.
    """
    asked_at = time.time() if asked_at is None else asked_at
    directory = found(run, directory)
    record = Record.load(directory)
    store = home_of(record, directory)
    changed = None
    if job_file is not None:
        changed = changed_job(record, store, directory, job_file, allowed=allow_changed_job)
    job = stored_job(record, store)
    if changed is not None and epochs is None and changed.epochs != job.epochs:
        epochs = changed.epochs
    known = {name: value for name, value in changes.items() if value is not None}
    settings = record.changed_settings(known)
    if is_over(record, settings, job.epochs, epochs):
        assert record.result is not None
        if record.store is None:
            OneLife.discard_inputs(store)  # if the coordinator was killed just before it did
        if known or epochs is not None or changed is not None:
            display.note("it was done already: nothing was started")
        return Run(directory, job, record.result)
    made, notes = going_on(record.made_with, allow_other=record.allows_other_cpu(changes))
    with (
        StopSignals() as signals,
        locked(directory),
        shown(display),
        led(record.store, directory, display.note) as home,
        Workplace.open(directory, preloads.JOB, signals, variables(made), settings) as workplace,
    ):
        store = home.store
        if record.store is not None:
            copy(store, directory)  # others may have gone on with it since
        before = Record.load(directory)
        so_far = Events.read(directory / "events")  # all, before anything is written
        record = before.next_life(so_far.heard_at, made, asked_at, **changes)
        if epochs is not None and epochs != job.epochs:
            job = replace(job, epochs=epochs)
            check_epochs(before, job, store)
            record = replace(record, epochs=epochs)
        if before.status == "done":
            with being_prepared(directory):
                take_inputs_again(before, job, store)
        cut = bool(before.settings.cut or record.settings.cut)
        if changed is not None and job_file is not None:
            changed = replace(changed, epochs=job.epochs)
            with being_prepared(directory), paged(directory, when=cut):
                record = take_job(record, job, changed, job_file.resolve().parent, store, directory)
            job = changed
            display.note("the job is another from here on (--allow-changed-job)")
        check_shares(job, record.settings, record.samples)
        for kind in record.settings.kinds:
            resources_of(kind)  # before anything is tried
        with paged(directory, when=cut):
            record = refitted(before.settings, record, job, store)
            recut(record, job, store)
        plan = None
        if record.planned is not None:
            carried = Plan.read(directory / PLAN)
            plan, planned = gone_on(carried, record.planned, record.settings, job)
            record = replace(record, planned=planned)
        for note in notes:
            display.note(note)
        summed_by = {before.settings.algorithm, record.settings.algorithm}
        if len(summed_by) > 1 and "ring" in summed_by:
            display.note(
                f"{before.settings.algorithm} so far, {record.settings.algorithm} from here on, "
                "which sum in different orders: the bits may be others"
            )
        life = OneLife(job, record, home, display, faults, workplace, plan, listeners)
        return life.start(before, so_far)
