"""The commands about runs that another terminal began."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dayfly.cli.flags import AsJson

steering = typer.Typer()


@steering.command()
def stop(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's directory, or its id.")],
    timeout: Annotated[float, typer.Option(help="How long to wait for its end, in s.")] = 120.0,
) -> None:
    """End a run in order, with a checkpoint, from another terminal."""
    from dayfly.cli import steer
    from dayfly.cli.outcome import shown

    raise typer.Exit(shown(lambda: steer.stop(run, timeout)))


@steering.command()
def runs(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the runs are.", show_default="runs")
    ] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List runs: what became of them, and which go on."""
    from dayfly.cli import steer
    from dayfly.cli.outcome import shown

    raise typer.Exit(shown(lambda: steer.list_runs(directory, as_json=as_json)))
