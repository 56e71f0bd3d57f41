"""Figures of several rounds, and the tables that show them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich import box
from rich.table import Table


def spread(name: str, figures: Sequence[float]) -> dict[str, float]:
    """The median under the name, and the least and the most: `ratio`, `ratio_min`, `ratio_max`."""
    return {name: median(figures), f"{name}_min": min(figures), f"{name}_max": max(figures)}


def shown(row: Mapping[str, Any], name: str, digits: int = 3) -> tuple[str, str]:
    """What `spread` made, for two columns."""
    least, most = row[f"{name}_min"], row[f"{name}_max"]
    return f"{row[name]:.{digits}f}", f"{least:.{digits}f} to {most:.{digits}f}"


def number(figure: float | None, digits: int = 3) -> str:
    """A figure that may be missing."""
    return "" if figure is None else f"{figure:.{digits}f}"


def columns(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """A table with these columns, still empty."""
    made = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for text in texts:
        made.add_column(text, no_wrap=True)
    for one in numbers:
        made.add_column(one, justify="right", no_wrap=True)
    return made


def framed(heading: str, *below: Table | str) -> Table:
    """A heading, and what stands below it, as wide as it likes to be."""
    whole = Table.grid()
    for one in (heading, *below):
        whole.add_row(one)
    return whole


def say(text: str) -> None:
    """Progress, for who waits."""
    print(text, file=sys.stderr, flush=True)
