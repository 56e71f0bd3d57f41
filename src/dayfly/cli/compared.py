"""What a run by a plan took, beside what was predicted: the table that ends it."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dayfly.errors import DayflyError
from dayfly.runs.directory import RECORD
from dayfly.runs.report.comparison import Comparison, cells
from dayfly.runs.run import Run


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
        table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("predicted and measured", no_wrap=True)
        for name in ("predicted", "measured", "error"):
            table.add_column(name, justify="right", no_wrap=True)
        for figure in compared.totals:
            table.add_row(*(Text(cell) for cell in cells(figure)))
        console.print(table)
    if compared.differences:
        said = f"not in the plan: {'; '.join(compared.differences)}"
        console.print(said, markup=False, highlight=False, soft_wrap=True)
