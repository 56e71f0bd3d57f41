"""From a request to a run of a job: `begin` starts one, `resume` goes on with one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dayfly.catalogue.metering import FunctionUse
from dayfly.job import Job
from dayfly.life import checkpoints
from dayfly.life.faults import Fault
from dayfly.planning.plan import Plan
from dayfly.runs import preloads
from dayfly.runs.changing import fitted
from dayfly.runs.directory import PLAN, being_prepared
from dayfly.runs.display import Display
from dayfly.runs.function_resources import resources_of
from dayfly.runs.home import home_of, local_directory
from dayfly.runs.job_coordinator import JobCoordinator
from dayfly.runs.job_record import Record
from dayfly.runs.listeners import Listener
from dayfly.runs.outer_of_job import with_outer
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
from dayfly.runs.run_context import RunRequest, begun, resumed
from dayfly.runs.run_plan import carried_out, gone_on
from dayfly.runs.settings import WARN_OF_NAN, Settings
from dayfly.runs.shipping import ship
from dayfly.runs.staging import recut
from dayfly.training.arrays import ArraySplit, store_arrays
from dayfly.training.paged import paged
from dayfly.training.streams import measured, said_of


def begin(
    job: Job,
    settings: Settings,
    *,
    name: str = "job",
    code: Path | None = None,
    plan: Plan | None = None,
    profiling: Sequence[FunctionUse] | None = None,
    **request: Any,
) -> Run:
    """Checks a request, makes the run's directory and trains.

    Args:
        job: what to train.
        settings: of the run.
        name: part of the run's id.
        code: directory whose files travel with the job.
        plan: from which the settings come, where no flag overrides them.
        profiling: what measured the job to choose that plan; None: it was not chosen for this run.
        request: fields of `RunRequest`.

    Returns:
        The run; if it failed once it had begun, its result has the error.

    Raises:
        RequestError: before any function is started, leaving nothing.
    """
    job = job.sized(settings.members)
    settings = with_outer(job, settings)
    check_shares(job, settings)
    for kind in settings.kinds:
        resources_of(kind)  # before anything is made
    with begun(name, settings, preloads.JOB, RunRequest(**request)) as (context, facts):
        directory, store = context.home.directory, context.home.store
        say = context.request.display.note
        with being_prepared(directory), paged(directory, when=bool(settings.cut)):
            job, made = measured(job, say)
            shipped = ship(job, code, store, say, run=directory)
            prepared = prepare(job, settings, None if plan is None else plan.profile, made)
            parts: tuple[ArraySplit, ...] = ()
            if prepared.arrays is not None:
                note = say if settings.on_nan == WARN_OF_NAN else None
                parts = store_arrays(prepared.arrays, store, job.seed, note=note)
            written = checkpoints.write_stages(store, 0, prepared.states)
            checkpoints.commit(store, 0, written)
            samples = parts[0].samples if parts else prepared.training_samples
            planned = None
            if plan is not None:
                plan, planned = carried_out(plan, settings, job, samples)
            record = Record(
                **facts,
                shipped=shipped,
                parts=parts,
                samples=samples,
                planned=planned,
                profiling=None if profiling is None else tuple(profiling),
                round_bytes=prepared.round_bytes,
                pipelining=prepared.pipelining,
                weighting=prepared.weighting,
            )
        for said in dict.fromkeys(said_of(one, settings.members) for one in prepared.streams):
            if said:
                say(said)
        if job.compile:
            say(
                "the model is compiled: where torch makes other code after a restart, the bits of "
                "this run may be others than those of an undisturbed one"
            )
        return JobCoordinator(job, record, context, plan).start()


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
    """Goes on with a run from its last checkpoint; a run that is done is returned as it is.

    Args:
        run: its directory, or its URL in a store.
        directory: for a copy of a run in a store; None: `runs/<run id>`.
        epochs: to which it goes; None: as before.
        job_file: the job's, to be compared with the stored one; None: the stored one is taken.
        allow_changed_job: go on with the file's job if it is another.
        display, listeners, faults, asked_at: see `RunRequest`.
        changes: settings that override the run's from now on, such as `workers`; None: as before.

    Raises:
        RequestError: there is no run, another process runs it, or it cannot go on so.
    """
    request = RunRequest(display, directory, listeners, faults, asked_at or time.time())
    directory = local_directory(run, directory)
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
    if is_over(record, settings, job.epochs, epochs, other_job=changed is not None):
        assert record.result is not None
        if record.store is None:
            JobCoordinator.discard_inputs(store)  # if it was killed just before it did
        if known or epochs is not None or changed is not None:
            display.note("it was done already: nothing was started")
        return Run(directory, job, record.result)
    opened = resumed(record, directory, known, preloads.JOB, request)
    with opened as (context, before, record):
        store = context.home.store
        if epochs is not None and epochs != job.epochs:
            job = replace(job, epochs=epochs)
            check_epochs(before, job, store)
            record = replace(record, epochs=epochs)
        if before.status == "done":
            with being_prepared(directory):
                take_inputs_again(before, job, store)
        cut = bool(before.settings.cut or record.settings.cut)
        if changed is not None and job_file is not None:
            changed = replace(changed.sized_as(job), epochs=job.epochs)
            with being_prepared(directory), paged(directory, when=cut):
                changed = measured(changed, display.note).job
                record = take_job(record, job, changed, job_file.resolve().parent, store, directory)
            job = changed
            display.note("the job is another from here on (--allow-changed-job)")
        with paged(directory, when=cut):
            record = fitted(before.settings, record, job, store)
            recut(record, job, store)
        plan = None
        if record.planned is not None:
            carried = Plan.read(directory / PLAN)
            plan, planned = gone_on(carried, record.planned, record.settings, job)
            record = replace(record, planned=planned)
        return JobCoordinator(job, record, context, plan).start()
