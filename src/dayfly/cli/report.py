"""`dayfly report DIR`: a run as a page, its bill, and what was predicted beside what it took."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dayfly.catalogue.metering import Bill
from dayfly.cli.catalogue import own_catalogue
from dayfly.cli.outcome import kind_in_words, narrow_table
from dayfly.errors import DayflyError, RequestError
from dayfly.runs.directory import RECORD
from dayfly.runs.report import write_report
from dayfly.runs.report.comparison import Comparison, cells
from dayfly.runs.report.pipeline import CutRun
from dayfly.runs.report.reading import RunFiles, rebill
from dayfly.runs.run import Run


def report(
    directory: Path,
    output: Path | None = None,
    *,
    prices: str | None = None,
    store: str | None = None,
    given: Path | None = None,
    browse: bool = False,
) -> None:
    """Write a run's page, print its bill, by function and by kind, and where the page is.

    Of a run in stages, which one is the slowest, too.

    Args:
        output: the page's file; None: in the run's directory, by other prices than the run's beside
            the run's own page.
        prices, store: what both bill by; None: the run's own.
        given: a catalogue of the user's; None: the run's, or the usual one.
        browse: show the page in a browser.

    Raises:
        RequestError: if the directory holds no run, the catalogue lacks what is asked for, the page
            cannot be written, or there is no browser.
    """
    run = RunFiles.read(directory)
    recorded = run.record.settings.catalogue
    own = own_catalogue(given) if given is not None or recorded is None else recorded
    catalogue = Path(own) if own is not None else None
    billed = rebill(directory, prices, store, catalogue, run.events)
    if output is None and not (prices is store is None):
        output = directory / "report-priced.html"
    page = write_report(directory, output, bill=billed.dump(), run=run)
    _print_bill(billed)
    if (pipeline := CutRun.of(run)) is not None and (words := pipeline.words()) is not None:
        Console().print(f"pipeline: {words}", markup=False, highlight=False)
    print(f"report: {page}")
    if browse and not webbrowser.open(page.resolve().as_uri()):
        raise RequestError(f"--open: no browser was found; open {page} yourself")


def _print_bill(billed: Bill) -> None:
    console = Console()
    console.print(_by_function(billed))
    console.print(_by_kind(billed))
    if billed.coordinator_usd:
        console.print(
            f"the coordinator would have cost ${billed.coordinator_usd:.8f} more, as a function",
            markup=False,
            highlight=False,
        )
    if billed.profiling_s is not None:
        console.print(
            f"profiling: functions measured the job for this run for {billed.profiling_s:.1f} s",
            markup=False,
            highlight=False,
        )
    for row in billed.overridden:
        console.print(f"your own catalogue says: {row}", markup=False, highlight=False)
    for note in billed.notes:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)


def _by_function(billed: Bill) -> Table:
    title = f"bill as on {billed.price_list}, store {billed.store or 'free'}"
    table = narrow_table(title, show_footer=True)
    table.add_column("function", "all", no_wrap=True)
    columns = ("calls", "billed s", "init s", "GB-s", "puts", "gets", "MB up", "MB down", "USD")
    for name, total in zip(columns, _cells(_total(billed)), strict=True):
        table.add_column(name, total, justify="right", no_wrap=name not in ("billed s", "MB down"))
    for row in billed.functions:
        table.add_row(row["function"], *_cells(row))
    return table


def _by_kind(billed: Bill) -> Table:
    table = narrow_table("by kind", show_footer=True)
    table.add_column("kind", "all")
    table.add_column("USD", f"{billed.cost_usd:.8f}", justify="right")
    for kind, usd in billed.by_kind.items():
        table.add_row(kind_in_words(kind), f"{usd:.8f}")
    return table


def _total(billed: Bill) -> dict[str, Any]:
    """All functions in one row; its dollars are the bill's, with what no function has alone."""
    keys = (key for key in billed.functions[0] if key != "function") if billed.functions else ()
    sums = {key: sum(row[key] for row in billed.functions) for key in keys}
    return {**sums, "cost_usd": billed.cost_usd}


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        str(row.get("invocations", 0)),
        f"{row.get('billed_ms', 0) / 1000:.1f}",
        f"{row.get('init_ms', 0) / 1000:.1f}",
        f"{row.get('gb_s', 0):.1f}",
        str(row.get("puts", 0)),
        str(row.get("gets", 0)),
        f"{row.get('bytes_up', 0) / 1e6:.1f}",
        f"{row.get('bytes_down', 0) / 1e6:.1f}",
        f"{row['cost_usd']:.6f}",
    ]


def print_compared(run: object, console: Console) -> None:
    """Print it, if the run had a plan. That it cannot be read is said, and changes nothing else."""
    if not isinstance(run, Run) or not (run.directory / RECORD).is_file():
        return
    try:
        compared = run.comparison()
    except (DayflyError, OSError) as error:
        console.print(f"what was predicted cannot be read: {error}", markup=False, soft_wrap=True)
        return
    if compared is not None:
        _print(compared, console)


def _print(compared: Comparison, console: Console) -> None:
    if compared.unpredicted is not None:
        said = f"what ran is not predicted: {compared.unpredicted}"
        console.print(said, markup=False, highlight=False, soft_wrap=True)
    else:
        table = narrow_table()
        table.add_column("since the first invocation", no_wrap=True)
        for name in ("predicted", "measured", "error"):
            table.add_column(name, justify="right", no_wrap=True)
        for figure in compared.totals:
            table.add_row(*(Text(cell) for cell in cells(figure)))
        console.print(table)
    if compared.differences:
        said = f"not in the plan: {'; '.join(compared.differences)}"
        console.print(said, markup=False, highlight=False, soft_wrap=True)
