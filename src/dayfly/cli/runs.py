"""The commands `dayfly runs list`, `show`, `compare` and `rm`; what they do is beside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dayfly.cli.flags import AsJson


class _ListsByDefault(TyperGroup):
    """`dayfly runs [PLACE]` is `dayfly runs list [PLACE]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


runs = typer.Typer(cls=_ListsByDefault, help="List runs (the default), show, compare, remove.")

SomeRuns = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Each a run's directory, its URL in a store, or its id."),
]


@runs.command("list")
def list_runs(
    place: Annotated[
        str, typer.Argument(metavar="PLACE", help="Where the runs are: a directory, or a URL.")
    ] = "runs",
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", help="Only those that are done, failed, lost, ..."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only those whose id is so, such as 'digits-*'."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A column of a metric of the last epoch; again: more."),
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help="Least first; -COLUMN: greatest first.")
    ] = "began_at",
    as_json: AsJson = False,
) -> None:
    """List runs: what became of them, and which go on."""
    from dayfly.cli import run_table
    from dayfly.cli.outcome import shown

    def action() -> None:
        rows = run_table.selected(place, status, name, tuple(metric or ()), sort)
        run_table.print_rows(rows, place, tuple(metric or ()), as_json=as_json)

    raise typer.Exit(shown(action, as_json=as_json))


@runs.command()
def show(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run's directory, its URL in a store, or its id.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show a run: what each epoch measured, and its workers, seconds, dollars and CPU time."""
    from dayfly.cli import run_table
    from dayfly.cli.outcome import shown

    raise typer.Exit(shown(lambda: run_table.show(run, as_json=as_json), as_json=as_json))


@runs.command()
def compare(
    run: SomeRuns,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Draw them side by side on a page, too."),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare runs: results, settings that differ, and their curves on a page (--output)."""
    from dayfly.cli import run_table
    from dayfly.cli.outcome import shown

    raise typer.Exit(
        shown(
            lambda: run_table.compare(run, output, browse=browse, as_json=as_json), as_json=as_json
        )
    )


@runs.command("rm")
def remove(
    run: SomeRuns,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove runs, all that dayfly wrote of them; one that goes on is refused."""
    from dayfly.cli import run_table
    from dayfly.cli.outcome import shown

    raise typer.Exit(
        shown(lambda: run_table.remove(run, yes=yes, as_json=as_json), as_json=as_json)
    )
