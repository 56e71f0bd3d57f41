"""`dayfly.train`: a job, trained from Python."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from dayfly.callbacks.base import Callback
from dayfly.callbacks.base import checked as checked_callbacks
from dayfly.errors import RequestError, RunFailed
from dayfly.job import Job
from dayfly.life.faults import Fault
from dayfly.misspelt import suggests
from dayfly.planning.plan import Plan
from dayfly.runs import launch
from dayfly.runs.display import Display, StandardError, display_for
from dayfly.runs.home import home_of, local_directory
from dayfly.runs.job_record import Record
from dayfly.runs.keywords import AUTO, SettingKeywords, check_keywords, shows
from dayfly.runs.listeners import Listener, chosen
from dayfly.runs.plans import JobSpec, settings_of
from dayfly.runs.result import HANDING_OVER, Result
from dayfly.runs.resuming import stored_job
from dayfly.runs.run import Run
from dayfly.runs.settings import Settings
from dayfly.runs.signals import Stopped
from dayfly.runs.unequal import check_alone

if TYPE_CHECKING:
    from dayfly.runs.profiling.convergence_query import ConvergenceQuery


@shows(SettingKeywords)
def train(
    job: Job,
    *,
    plan: Plan | str | Path | None = None,
    objective: str | None = None,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    efficiency: Sequence[str] = (),
    convergence: str | ConvergenceQuery | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    run_dir: str | Path | None = None,
    store: str | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    listeners: Sequence[str | Listener] = (),
    faults: Sequence[Fault] = (),
    **settings: Unpack[SettingKeywords],
) -> Run:
    """Trains a job on short-lived functions; returns when it is done.

    Args:
        job: what to train.
        plan: what to carry out, or its file (docs/planning.md); what is given beside it overrides
            it. "auto": measures the job, unless that was done, and carries out the best plan;
            `workers` is the most of them then, `memory_mib` the only size, and `sync` names the
            methods to choose among, such as "bsp,hap,local-sgd:8".
        objective: with plan="auto", `time` for the fastest plan, or `cost` for the cheapest.
        deadline_s: with plan="auto": the cheapest that takes no more seconds.
        budget_usd: with plan="auto": the fastest that costs no more dollars.
        efficiency: with plan="auto": how many times the samples of bsp methods take, such as
            ("local-sgd:8=1.3",).
        convergence: with plan="auto": methods of which short runs are to say that, as of `profile`;
            with at most `workers` functions.
        epochs: passes over the data, in place of the job's.
        batch_size: samples of a step over all workers, in place of the job's.
        seed: in place of the job's.
        run_dir: directory of the run's files; None: `runs/<run id>`.
        store: URL of a store that keeps the run, below its id, such as `s3://bucket/runs`:
            `resume` goes on with its URL from any machine, and `run_dir` is a copy to look at.
        progress: show it on standard error.
        callbacks: of `dayfly.callbacks`, beside the job's; stored with the run, as those are.
        listeners: functions of (source, event), or names of such that packages bring: each hears
            from a thread of its own what happens (`dayfly.specs.events`), and stalls nobody.
        faults: for tests.
        settings: such as `workers` (1 without a plan), `memory_mib`, `lifetime_s`, `channel`; see
            `dayfly.runs.settings.Settings`. None: as if it was not given.

    Returns:
        The run. Its directory has what was reached, also after an error, and `resume` goes on from
        there.

    Raises:
        RequestError: the request is wrong; nothing was started.
        RunFailed: the run failed; with the cause.
        KeyboardInterrupt: Ctrl-C stopped it; another signal does what it would have done.
    """
    check_keywords(settings, Settings, beside=train)
    given: dict[str, Any] = {name: one for name, one in settings.items() if one is not None}
    both = (*overridden(job).callbacks, *checked_callbacks(callbacks))
    of_the_job: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    of_the_job["callbacks"] = both or None
    of_choice = {
        "objective": objective,
        "deadline_s": deadline_s,
        "budget_usd": budget_usd,
        "efficiency": efficiency or None,
        "convergence": convergence,
    }
    for name, value in of_choice.items():
        if value is not None and plan != AUTO:
            raise RequestError(f'{name} is for a plan that is chosen: add plan="{AUTO}"')
    code, display = main_directory(), _display(progress)

    def action() -> Run:
        carried, profiling = None, None
        if plan is None:
            request, checked = overridden(job, **of_the_job), checked_settings(**given)
        elif plan == AUTO:
            # What measures and chooses is of no use to any other run.
            from dayfly.runs.auto import by_auto_plan
            from dayfly.runs.choosing.query import Goal
            from dayfly.runs.profiling.convergence_query import ConvergenceQuery

            short = convergence
            if isinstance(short, str):
                short = ConvergenceQuery.parse(short).within(given.get("workers"))
            request, checked, found = by_auto_plan(
                overridden(job, **of_the_job),
                "job",
                code,
                of_the_job,
                given,
                Goal(objective=objective, deadline_s=deadline_s, budget_usd=budget_usd),
                display.note,
                efficiencies=efficiency,
                short=short,
            )
            carried, profiling = found.plan, found.used
        else:
            carried, place = (plan, "the plan") if isinstance(plan, Plan) else opened(plan)
            request, checked = by_plan(carried, place, job, of_the_job, given)
        return launch.begin(
            request,
            checked,
            directory=Path(run_dir) if run_dir is not None else None,
            store=store,
            code=code,
            plan=carried,
            profiling=profiling,
            display=display,
            listeners=chosen(listeners),
            faults=faults,
        )

    return _finished(action)


@shows(SettingKeywords)
def resume(
    run: str | Path,
    *,
    run_dir: str | Path | None = None,
    epochs: int | None = None,
    progress: bool = True,
    listeners: Sequence[str | Listener] = (),
    **changes: Unpack[SettingKeywords],
) -> Run:
    """Goes on with a run that was stopped, failed, lost its coordinator or is to have more epochs.

    Args:
        run: the run's directory, or its URL in a store.
        run_dir: directory for a copy of a run in a store; None: `runs/<run id>`.
        epochs: the epoch to which it goes; None: as before. A run that is done is returned as it
            is, unless it is to go on to a later epoch.
        progress: show it on standard error.
        listeners: functions of (source, event), or names of such that packages bring: each hears
            from a thread of its own what happens (`dayfly.specs.events`), and stalls nobody.
        changes: settings that override the run's from now on, such as `workers`; None: as before.

    Returns:
        The run, as `train` does.

    Raises:
        RequestError: there is no run that can go on, or a change cannot be.
        RunFailed: as of `train`.
        KeyboardInterrupt: as of `train`.
    """
    for name in ("batch_size", "seed", "plan"):
        if name in changes:
            raise RequestError(
                f"resume goes on with what is in the run's directory: leave out {name}"
            )
    check_keywords(changes, Settings, beside=resume)
    return _finished(
        lambda: launch.resume(
            run,
            directory=None if run_dir is None else Path(run_dir),
            epochs=epochs,
            display=_display(progress),
            listeners=chosen(listeners),
            **changes,
        )
    )


@suggests
def load(run: str | Path) -> Run:
    """Returns a run from its directory or store: done, stopped, failed, or still under way.

    Its job is loaded, and so the code in that place is run: load runs that you trust.

    Args:
        run: its directory, or its URL in a store, of which a copy is made in `runs/<run id>`.

    Raises:
        RequestError: there is no run of a job, or it is damaged.
    """
    directory = local_directory(run)
    record = Record.load(directory)
    job = stored_job(record, home_of(record, directory))
    result = record.result or Result(run_id=record.run_id, status=record.status)
    return Run(directory, job, result)


def overridden(job: Job, **changes: Any) -> Job:
    """The job with those of the changes that are not None."""
    if not isinstance(job, Job):
        raise RequestError(f"a {type(job).__name__} is no dayfly.Job")
    given = {name: value for name, value in changes.items() if value is not None}
    if "batch_size" in given:
        given |= {"batch_schedule": None, "batch_per_worker": None} | given
    return replace(job, **given)


def of_one_batch(job: Job, batch_size: int | None) -> Job:
    """Returns a job as a choice looks at it: with its own batch size, if it has one.

    Args:
        job: whose batch may change by epoch, or follow the workers.
        batch_size: asked for in place of that; None: nothing was asked.
    """
    of_one = len(set(job.batch_sizes)) == 1 and job.batch_per_worker is None
    return job if of_one else overridden(job, batch_size=batch_size)


def checked_settings(**settings: Any) -> Settings:
    """Settings of these. Raises RequestError for one that is not known, or not of its kind."""
    check_keywords(settings, Settings)
    check_alone(settings)
    return Settings(**{name: value for name, value in settings.items() if value is not None})


def opened(file: str | Path) -> tuple[Plan, str]:
    """A plan from its file, and what it is in errors. Raises RequestError if it is none."""
    path = Path(file).expanduser()
    return Plan.read(path), str(path)


def by_plan(
    plan: Plan, place: str, job: Job, of_the_job: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[Job, Settings]:
    """What runs by a plan: the job with the plan's epochs, and the plan's settings.

    Args:
        place: the plan's file, in errors.
        of_the_job, given: of job and settings, what goes before the plan's; None: not given.

    Raises:
        RequestError: for a plan of other batches, and as settings do.
    """
    known = {name: value for name, value in given.items() if value is not None}
    settings = settings_of(plan, place, **known)
    planned = JobSpec.by(plan).of_workers(settings.members)
    has = overridden(job).sized(settings.members)
    same = has.batch_per_worker == planned.batch_per_worker and has.batch_size == planned.batch_size
    if of_the_job.get("batch_size") is None and not same:
        each = has.batch_per_worker
        raise RequestError(
            f"{place} is for batches of {planned.batch_words}, and the job has "
            f"{has.batch_size if each is None else f'{each} a worker'}: give --batch-size "
            f"{planned.batch_size} or {has.batch_size}, or predict the job anew"
        )
    changes = {name: value for name, value in of_the_job.items() if value is not None}
    return overridden(job, **{"epochs": plan.job["epochs"], **changes}), settings


def _finished(action: Callable[[], Run]) -> Run:
    """The run, if it is done; what the caller expects of a failure or a signal otherwise."""
    try:
        run = action()
    except Stopped as stop:
        _raise(stop.number)
        raise
    if run.result.status == "done":
        return run
    if run.stopped_by is not None:
        _raise(run.stopped_by)
    if run.result.status in ("stopped", HANDING_OVER):  # through the store; by its lifetime
        return run
    raise RunFailed(f"{run.result.error or 'the run was stopped'}\n(run: {run.directory})")


def _raise(number: int) -> None:
    """Do to this process what the signal would have done."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.raise_signal(number)


def _display(progress: bool) -> Display:
    return display_for(StandardError()) if progress else Display()


def main_directory() -> Path | None:
    """The directory of the user's script, whose modules the job may use; None without a script."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None:
        return None
    directory = Path(file).resolve().parent
    is_a_command = directory == Path(sys.executable).parent  # such as pytest
    return None if is_a_command else directory
