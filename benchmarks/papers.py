"""`dayfly bench papers`: the papers' comparisons at their scale, from the catalogue and schedules.

Nothing runs and nothing is measured: models are counted on the meta device, and what they take is
found by the papers' equations and by dayfly's schedules in virtual time. Beside our curves stand
only those numbers that a paper's text or tables print.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.parts.arguments import add_pictures, new_parser
from benchmarks.parts.papers import FIGURES
from benchmarks.parts.papers.drawing import draw
from benchmarks.parts.papers.figure import Fact, Figure
from dayfly.errors import RequestError


def run(args: Sequence[str]) -> dict[str, Any]:
    """Compute; the result has `figures`. Raises RequestError for an unknown figure."""
    asked = _arguments(args)
    if unknown := [name for name in asked.only or [] if name not in FIGURES]:
        raise RequestError(f"there is no figure {unknown[0]!r}: give one of {', '.join(FIGURES)}")
    made: list[Figure] = []
    pictures: list[str] = []
    for name in asked.only or FIGURES:
        print(name, file=sys.stderr, flush=True)
        made.append(FIGURES[name]())
        if asked.pictures is not None:
            pictures.append(str(draw(made[-1], asked.pictures)))
        if asked.tables:
            print(f"\n{made[-1].what}\n\n{made[-1].table}", file=sys.stderr)
    return {"figures": [asdict(one) for one in made], "pictures": pictures}


def table(result: Mapping[str, Any]) -> Table:
    """The facts for a person."""
    shown = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    for title in ("", "the paper", "here", "agrees", "why not"):
        shown.add_column(title)
    for figure in result["figures"]:
        shown.add_row(f"[bold]{figure['what']}[/bold]")
        for fact in figure["facts"]:
            shown.add_row(f"  {fact['what']}", *Fact(**fact).cells[1:])
    return shown


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("papers", "The papers' comparisons at their scale, in virtual time.")
    parser.add_argument(
        "--only",
        action="extend",
        nargs="+",
        metavar="FIGURE",
        help=f"of {', '.join(FIGURES)}",
    )
    add_pictures(parser)
    parser.add_argument("--tables", action="store_true", help="the facts in Markdown, too")
    return parser.parse_args(args)
