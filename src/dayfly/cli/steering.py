"""The commands about runs that were begun before, in this terminal or elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dayfly.cli.flags import Own
from dayfly.cli.runs import runs

steering = typer.Typer()
steering.add_typer(runs, name="runs")

AnyRun = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's directory, its URL in a store, or its id.")
]


@steering.command()
def stop(
    run: AnyRun,
    timeout: Annotated[float, typer.Option(help="How long to wait for its end, in s.")] = 120.0,
) -> None:
    """End a run in order, with a checkpoint, from another terminal."""
    from dayfly.cli import steer
    from dayfly.cli.outcome import shown

    raise typer.Exit(shown(lambda: steer.stop(run, timeout)))


@steering.command()
def follow(run: AnyRun) -> None:
    """Show a run's epochs and what happens in it, until it ends; 1 if it failed or was lost."""
    from dayfly.cli import steer
    from dayfly.cli.outcome import DONE, FAILED, shown

    ended: list[str] = []

    def action() -> None:
        ended.append(steer.follow(run))
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
        typer.Option(help="The page's file.", show_default="report.html in the run's directory"),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
) -> None:
    """Write a run as one page of HTML, and print its bill; under any price list."""
    from dayfly.cli import report as command
    from dayfly.cli import steer
    from dayfly.cli.outcome import shown

    def action() -> None:
        directory = steer.to_read(run)
        command.report(directory, output, prices=prices, store=store, given=own, browse=browse)

    raise typer.Exit(shown(action))
