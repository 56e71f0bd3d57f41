"""The command line: the commands and their flags; what they do is beside."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dayfly
from dayfly.cli.convergence_flags import OF_AUTO, convergence_asked
from dayfly.cli.flag import Flag, option
from dayfly.cli.flags import (
    AsJson,
    BatchSize,
    Detach,
    Epochs,
    Listen,
    MaxRestarts,
    Own,
    PlanFile,
    Resume,
    RunDir,
    RunStore,
    SuccessorCommand,
    function_settings,
    refuse_beside_resume,
    takes,
    training_settings,
)
from dayfly.cli.function_flags import FUNCTION_FLAGS
from dayfly.cli.plans import plans
from dayfly.cli.quick import QuickGroup
from dayfly.cli.steering import steering
from dayfly.cli.training_flags import TRAINING_FLAGS
from dayfly.cli.values import check_goals, memory_of
from dayfly.errors import RequestError
from dayfly.life.processor import Processor
from dayfly.runs.keywords import AUTO

if TYPE_CHECKING:
    from dayfly.cli.detached import Detached
    from dayfly.cli.successor import Successor

app = typer.Typer(
    name="dayfly",
    cls=QuickGroup,
    help="Trains PyTorch models on short-lived serverless functions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"dayfly {dayfly.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    return None


@app.command()
def demo(run_dir: RunDir = None, as_json: AsJson = False) -> None:
    """Train a small CNN on handwritten digits, on four local functions."""
    from dayfly.cli.warm import warm_up
    from dayfly.runs import preloads

    asked_at = warm_up(preloads.JOB)
    from dayfly.cli.demo import demo_job
    from dayfly.cli.outcome import conclude
    from dayfly.runs import launch
    from dayfly.runs.display import StandardError, display_for
    from dayfly.runs.settings import Settings

    display = display_for(StandardError())
    raise typer.Exit(
        conclude(
            lambda: launch.begin(
                demo_job(),
                Settings(workers=4),
                directory=run_dir,
                name="demo",
                display=display,
                asked_at=asked_at,
            ),
            as_json=as_json,
        )
    )


@app.command()
@takes(*FUNCTION_FLAGS, *TRAINING_FLAGS, **OF_AUTO)
def train(
    context: typer.Context,
    job_file: Annotated[
        Path | None,
        typer.Argument(metavar="JOB.py", help="Python file with the variable `job`."),
    ] = None,
    plan: PlanFile = None,
    objective: Annotated[
        str | None,
        option("With --plan auto: the fastest, or the cheapest.", metavar="time|cost"),
    ] = None,
    deadline: Annotated[
        str | None,
        option("With --plan auto: the cheapest within 90, 90s, 30m or 2h.", metavar="TIME"),
    ] = None,
    budget: Annotated[
        float | None, option("With --plan auto: the fastest within it.", metavar="USD")
    ] = None,
    profile: Annotated[
        Path | None, option("With --shares auto: what dayfly profile wrote.")
    ] = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    seed: Annotated[int | None, option("Seed of all that is random.", "the job's")] = None,
    own: Own = None,
    store: RunStore = None,
    run_dir: RunDir = None,
    resume: Resume = None,
    allow_changed_job: Annotated[
        bool,
        option("With --resume: go on with JOB.py as it is by now.", True, "--allow-changed-job"),
    ] = False,
    listen: Listen = None,
    detach: Detach = False,
    successor: SuccessorCommand = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Train the job in JOB.py on short-lived functions, or go on with a run (--resume RUN)."""
    from dayfly.cli.warm import warm_up
    from dayfly.runs import preloads

    apart = _apart(as_json=as_json) if detach else None
    asked_at = warm_up(preloads.JOB)
    from dayfly.cli.outcome import conclude
    from dayfly.cli.successor import followed
    from dayfly.runs import launch
    from dayfly.runs.api import by_plan, checked_settings, opened, overridden
    from dayfly.runs.display import StandardError, display_for
    from dayfly.runs.listeners import chosen
    from dayfly.runs.run import Run
    from dayfly.runs.shipping import load_job_file

    of_the_job = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    display = apart or display_for(StandardError())

    def action() -> Run:
        given = memory_of(function_settings(context, resumed=resume is not None))
        given |= training_settings(context)
        check_goals(plan, context.params)
        if profile is not None and (plan is not None or resume is not None):
            raise RequestError(
                "--profile is for --shares auto of a run without --plan and --resume"
            )
        if resume is not None:
            refuse_beside_resume(
                {"--store": store, "--plan": plan, "--batch-size": batch_size, "--seed": seed}
            )
            if allow_changed_job and job_file is None:
                raise RequestError("--allow-changed-job needs the job that changed: name JOB.py")
            return launch.resume(
                resume,
                directory=run_dir,
                epochs=epochs,
                job_file=job_file,
                allow_changed_job=allow_changed_job,
                display=display,
                listeners=chosen(listen or ()),
                asked_at=asked_at,
                **given,
            )
        if allow_changed_job:
            raise RequestError("--allow-changed-job is for a run that goes on: add --resume DIR")
        if job_file is None:
            raise RequestError(
                "no job: name a Python file with the variable `job`, or --resume DIR"
            )
        code, carried, profiling = job_file.resolve().parent, None, None
        if str(plan) == AUTO:
            from dayfly.cli.choosing import goal_of, names_of
            from dayfly.runs.auto import by_auto_plan

            flags = context.params
            short = convergence_asked({name: flags[name] for name in OF_AUTO})
            job, checked, found = by_auto_plan(
                overridden(load_job_file(job_file), **of_the_job),
                job_file.stem,
                code,
                of_the_job,
                given,
                goal_of(flags),
                display.note,
                efficiencies=names_of(flags["efficiency"]),
                short=None if short is None else short.within(given.get("workers")),
            )
            carried, profiling = found.plan, found.used
        elif plan is None:
            if profile is None and given.get("shares") != AUTO:
                checked = checked_settings(**given)
                job = overridden(load_job_file(job_file), **of_the_job)
            else:
                from dayfly.runs.even_shares import settled

                job = overridden(load_job_file(job_file), **of_the_job)
                checked = checked_settings(**settled(given, job, job_file.stem, code, profile))
        else:
            carried, place = opened(plan)
            job, checked = by_plan(carried, place, load_job_file(job_file), of_the_job, given)
        return launch.begin(
            job,
            checked,
            directory=run_dir,
            store=store,
            name=job_file.stem,
            code=code,
            plan=carried,
            profiling=profiling,
            display=display,
            listeners=chosen(listen or ()),
            asked_at=asked_at,
        )

    following = partial(_successor, context, "train", tuple(listen or ()))
    raise typer.Exit(conclude(lambda: followed(action, following), as_json=as_json))


@app.command(context_settings={"allow_extra_args": True, "allow_interspersed_args": False})
@takes(
    *FUNCTION_FLAGS,
    memory=Flag(int, "A function's memory, in MiB.", "not limited", setting="memory_mib"),
    log_budget=Flag(
        int,
        "Bound of the messages under way, in MiB; memory is taken as it is used.",
        "a quarter of the space for files, 1024 elsewhere",
    ),
)
def run(
    context: typer.Context,
    script: Annotated[
        str | None,
        typer.Argument(metavar="SCRIPT.py", help="Python file; what follows is its own."),
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="SCRIPT.py is the name of a module.")
    ] = False,
    max_restarts: MaxRestarts = None,
    own: Own = None,
    store: RunStore = None,
    run_dir: RunDir = None,
    resume: Resume = None,
    listen: Listen = None,
    detach: Detach = False,
    successor: SuccessorCommand = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Run an unmodified torch.distributed script on short-lived functions, as torchrun would."""
    from dayfly.cli.warm import warm_up
    from dayfly.runs import preloads

    apart = _apart(as_json=as_json) if detach else None
    asked_at = warm_up(preloads.SCRIPT)
    from dayfly.cli.outcome import conclude
    from dayfly.cli.successor import followed
    from dayfly.runs.display import AboveBar, LoopBar, StandardError, display_for
    from dayfly.runs.listeners import chosen
    from dayfly.runs.scripts import launch
    from dayfly.runs.scripts.record import ScriptRun, ScriptSettings

    display = apart or display_for(StandardError(), LoopBar)
    output = AboveBar(sys.stderr if as_json else sys.stdout, display)  # of the functions

    def action() -> ScriptRun:
        given = function_settings(context, resumed=resume is not None)
        if max_restarts is not None:
            given["max_restarts"] = max_restarts
        if resume is not None:
            refuse_beside_resume({"SCRIPT.py": script, "-m": module or None, "--store": store})
            return launch.resume(
                resume,
                directory=run_dir,
                display=display,
                output=output,
                listeners=chosen(listen or ()),
                asked_at=asked_at,
                **given,
            )
        if script is None:
            raise RequestError("no script: name a Python file, or --resume DIR")
        return launch.begin(
            script,
            context.args,
            ScriptSettings(**given),
            module=module,
            store=store,
            directory=run_dir,
            display=display,
            output=output,
            listeners=chosen(listen or ()),
            asked_at=asked_at,
        )

    following = partial(_successor, context, "run", tuple(listen or ()))
    raise typer.Exit(conclude(lambda: followed(action, following), as_json=as_json))


def _apart(*, as_json: bool) -> Detached:
    """Goes on in a process of its own, before anything is started in this one."""
    from dayfly.cli.detached import detach

    return detach(as_json=as_json)


def _successor(context: typer.Context, command: str, listen: tuple[str, ...]) -> Successor:
    """What goes on with the run when this coordinator's lifetime ends."""
    from dayfly.cli.successor import Successor

    flags = context.params
    if flags["successor"] is None:
        json = ["--json"] if flags["as_json"] else []
        return Successor.here(command, [*json, *(f"--listen={name}" for name in listen)])
    if flags["coordinator_lifetime"] is None and flags["resume"] is None:
        raise RequestError("--successor is for a coordinator that ends: add --coordinator-lifetime")
    return Successor.checked(flags["successor"])


@app.command()
def catalogue(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A platform or a store; none: list them.")
    ] = None,
    own: Own = None,
) -> None:
    """Show what the catalogue has of a platform or a store: values, sources and dates."""
    from dayfly.cli.catalogue import print_entry
    from dayfly.cli.outcome import shown

    raise typer.Exit(shown(lambda: print_entry(name, own)))


@app.command(
    add_help_option=False,  # --help after NAME is the bench's own
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")] = "--help",
    as_json: AsJson = False,
) -> None:
    """Measure dayfly beside its peers (`dayfly bench` says what there is)."""
    from dayfly.cli.bench import measure

    raise typer.Exit(measure(name, context.args, as_json=as_json))


app.add_typer(plans)
app.add_typer(steering)


def _stopped(command: int, number: int, _: FrameType | None) -> None:
    """Ends this process at once. Only the command's own process says so; its forks are silent."""
    try:
        if os.getpid() == command:
            os.write(2, b"dayfly: stopped by SIGINT\n")
    finally:  # also if nobody reads it any more
        os._exit(128 + number)


def main() -> None:
    """The entry point of the command."""
    # Until a request has its own handlers: an exception in the middle of importing torch or numpy
    # is not always survived by them.
    signal.signal(signal.SIGINT, partial(_stopped, os.getpid()))
    # Before a job's file computes anything: a run's first weights come from this process.
    with suppress(RequestError):  # a command that runs something refuses what cannot be
        os.environ.update(Processor.here().variables(os.environ))
    try:
        app()
    finally:
        # The interpreter searches all that there is for garbage while it ends, several times: with
        # torch that takes longer than all else after the last step.
        gc.freeze()
