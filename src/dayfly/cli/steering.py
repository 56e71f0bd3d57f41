"""The commands about runs that were begun before, in this terminal or elsewhere."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dayfly.cli.flags import AsJson, Own, given_settings, takes, training_settings
from dayfly.cli.function_flags import FUNCTION_FLAGS
from dayfly.cli.runs import runs
from dayfly.cli.training_flags import TRAINING_FLAGS
from dayfly.cli.values import memory_of

steering = typer.Typer()
steering.add_typer(runs, name="runs")

AnyRun = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's directory, its URL in a store, or its id.")
]

#: Of what may change while a run goes on; see `runs.changes`.
_CHANGES = {
    name: replace({**FUNCTION_FLAGS, **TRAINING_FLAGS}[name], shown="as it is")
    for name in (
        *("platform", "platform_option", "imitate"),
        *("workers", "memory", "cpu", "lifetime", "uplink", "downlink", "latency", "cold_start"),
        *("sync", "k", "outer", "outer_lr", "outer_momentum", "fragments", "overlap"),
        *("channel", "collective", "aggregators", "cut", "replicas", "stage_memory", "shares"),
        *("micro_batches", "schedule", "log_budget", "checkpoint_every"),
    )
}


@steering.command()
def stop(
    run: AnyRun,
    timeout: Annotated[
        float, typer.Option(help="How long to wait for its end, in s.", min=0.001)
    ] = 120.0,
) -> None:
    """End a run in order, with a checkpoint, from another terminal."""
    from dayfly.cli.outcome import shown
    from dayfly.runs.steering import stop as stop_run

    _interruptible()
    raise typer.Exit(shown(lambda: print(stop_run(run, timeout))))


@steering.command()
@takes(**_CHANGES)
def scale(
    context: typer.Context,
    run: AnyRun,
    timeout: Annotated[
        float, typer.Option(help="How long to wait until it has changed, in s.", min=0.001)
    ] = 120.0,
    **flags: Any,
) -> None:
    """Change a run under way: it goes on from its next step with these workers and this channel."""
    from dayfly.cli.catalogue import platform_flags
    from dayfly.cli.outcome import shown
    from dayfly.runs.changes import Changes
    from dayfly.runs.steering import scale as scale_run

    def action() -> None:
        functions = memory_of(given_settings(context, FUNCTION_FLAGS))
        if "platform_options" in functions:
            functions["platform_options"] = platform_flags(functions["platform_options"])
        changes = Changes(**functions, **training_settings(context))
        print(scale_run(run, changes, timeout))

    _interruptible()
    raise typer.Exit(shown(action))


def _interruptible() -> None:
    """Let Ctrl-C end what waits for a run, which then says what it leaves."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@steering.command()
def follow(run: AnyRun) -> None:
    """Show a run's epochs and what happens in it, until it ends; 1 if it failed or was lost."""
    from dayfly.cli import follow as command
    from dayfly.cli.outcome import DONE, FAILED, shown

    ended: list[str] = []

    def action() -> None:
        ended.append(command.follow(run))
        print(f"{run} is {ended[0]}")

    code = shown(action)
    raise typer.Exit(code or (DONE if ended[0] in ("done", "stopped") else FAILED))


@steering.command()
def report(
    run: AnyRun,
    prices: Annotated[
        str | None,
        typer.Option(help="Price list: a platform's name.", show_default="the run's own"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--price-store", "--store", help="Store whose prices count.", show_default="none"
        ),
    ] = None,
    own: Own = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The page's file; by other prices than the run's, report-priced.html.",
            show_default="report.html in the run's directory",
        ),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
) -> None:
    """Write a run as one page of HTML, and print its bill; under any price list."""
    from dayfly.cli import report as command
    from dayfly.cli.outcome import shown
    from dayfly.runs.steering import to_read

    def action() -> None:
        directory = to_read(run)
        command.report(directory, output, prices=prices, store=store, given=own, browse=browse)

    raise typer.Exit(shown(action))


data = typer.Typer(help="Look at files of data.", no_args_is_help=True)
steering.add_typer(data, name="data")


@data.callback()
def _data() -> None:
    return None


@data.command()
def show(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file or directory of data.")],
    form: Annotated[
        str | None,
        typer.Option(help="Its form, such as csv.", show_default="by its looks", metavar="NAME"),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", help="An option of the form, such as target=kind.", metavar="NAME=VALUE"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in files of data, and how to put them into a job."""
    from dayfly.cli import data as command
    from dayfly.cli.outcome import shown

    def action() -> None:
        command.show(path, form, options or (), as_json=as_json)

    raise typer.Exit(shown(action, as_json=as_json))
