"""`dayfly bench protocols`: what talking less costs and saves, by real training with several seeds.

    lr            logistic regression over sparse rows: MLLess's filter beside none
    svm           a linear SVM over the same rows, likewise
    gpt           a small GPT over a slow link: local SGD and outer optimizers beside bsp
    utilisation   computing's share of real runs over a slow link, with streaming and without
    hap           FasDL's hybrid asynchronous protocol beside K-REDUCE and LambdaML's sums
    fasdl         the same where computing counts, with unequal shares, over two stores
    caps          steps of those under the caps, measured by turns, beside their predictions

Runs of a seed have the same first weights, batches and order, and take equally many samples. The
settings of a method were chosen with other seeds than those that are reported (`--choose`). Bytes
and losses are of real runs; losses do not depend on the machine's load, and bytes hardly; seconds
are in virtual time. `utilisation` and `caps` measure real seconds: run them on a quiet machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.table import Table

from benchmarks.parts.arguments import add_keep, add_pictures, new_parser
from benchmarks.parts.machine import machine, machine_line
from benchmarks.parts.papers.drawing import draw
from benchmarks.parts.protocols import (
    capped,
    fasdl_chosen,
    fasdl_compared,
    fasdl_drawn,
    gpt,
    hybrid,
    linear,
    utilisation,
)
from benchmarks.parts.protocols.trained import Runs
from benchmarks.parts.scratch import scratch_of
from benchmarks.parts.spread import framed
from dayfly.errors import RequestError
from dayfly.life.sessions import Session


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the bench.

    Args:
        measure: rows of these runs and seeds.
        choose: rows of the settings to choose from; None: there are none.
        table: of rows and the number of workers, for a person.
        chosen: likewise of the rows to choose from; None: as `table`.
    """

    measure: Callable[[Runs, Sequence[int]], list[dict[str, Any]]]
    choose: Callable[[Runs, Sequence[int]], list[dict[str, Any]]] | None
    table: Callable[[list[dict[str, Any]], int], Table]
    chosen: Callable[[list[dict[str, Any]], int], Table] | None = None


PARTS: Mapping[str, Part] = {
    **{
        kind: Part(
            partial(linear.measure, kind),
            partial(linear.choose, kind),
            partial(linear.table, kind),
        )
        for kind in linear.CHOSEN
    },
    "gpt": Part(gpt.measure, gpt.choose, gpt.table),
    "utilisation": Part(utilisation.measure, utilisation.choose, utilisation.table),
    "hap": Part(hybrid.measure, hybrid.choose, hybrid.table),
    "fasdl": Part(
        fasdl_compared.measure, fasdl_chosen.choose, fasdl_compared.table, fasdl_chosen.table
    ),
    "caps": Part(capped.measure, None, capped.table),
}
_SEEDS, _CHOOSING_SEEDS = 5, 2
#: The first seed that settings are chosen with.
CHOOSING = 100


def run(args: Sequence[str]) -> dict[str, Any]:
    """Measure; returns the result, see `benchmarks/README.md`. Raises RunFailed if a run fails."""
    asked = _arguments(args)
    first, usual = (CHOOSING, _CHOOSING_SEEDS) if asked.choose else (asked.first_seed, _SEEDS)
    seeds = range(first, first + (asked.seeds or usual))
    on_what, parts = machine(), {}
    with Session.open() as session:
        runs = Runs(asked.keep, scratch_of(session), asked.workers)
        for name in asked.only or PARTS:
            rows_of = PARTS[name].choose if asked.choose else PARTS[name].measure
            if rows_of is not None:
                parts[name] = rows_of(runs, seeds)
    return {
        "machine": on_what,
        "workers": asked.workers,
        "seeds": list(seeds),
        "choose": asked.choose,
        "parts": parts,
        "pictures": _drawn(parts, asked),
    }


def _drawn(parts: Mapping[str, list[dict[str, Any]]], asked: argparse.Namespace) -> list[str]:
    """Paths of pictures, of what is drawn at all."""
    if asked.pictures is None or asked.choose or "fasdl" not in parts:
        return []
    return [str(draw(fasdl_drawn.figure(parts["fasdl"]), asked.pictures))]


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person."""
    below = []
    for name, rows in result["parts"].items():
        part = PARTS[name]
        shows = part.chosen if result["choose"] and part.chosen else part.table
        below.append(shows(rows, result["workers"]))
    return framed(machine_line(result["machine"]), *below)


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("protocols", "What talking less costs and saves, by real training.")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="3 or more (default 4)")
    parser.add_argument("--seeds", type=int, metavar="N", help=f"default: {_SEEDS}")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument(
        "--choose",
        action="store_true",
        help=f"try the settings to choose from, with seeds from {CHOOSING} on "
        f"({_CHOOSING_SEEDS} unless --seeds says another number)",
    )
    add_keep(parser)
    add_pictures(parser)
    asked = parser.parse_args(args)
    if asked.workers < 3:
        raise RequestError(f"--workers {asked.workers}: give 3 or more")
    if asked.seeds is not None and asked.seeds < 1:
        raise RequestError(f"--seeds {asked.seeds}: give 1 or more")
    if not 0 <= asked.first_seed < CHOOSING:
        raise RequestError(f"--first-seed {asked.first_seed}: give 0 to {CHOOSING - 1}")
    if asked.choose and any(PARTS[name].choose is None for name in asked.only or ()):
        raise RequestError("--choose: caps has no settings to choose from; leave it out of --only")
    return asked
