"""`dayfly bench accuracy`: seconds to a target accuracy, beside torch DDP over gloo.

    curves   accuracy after each epoch, of real runs of several seeds
    capped   seconds of an epoch, each worker behind `tc tbf` of the same rate, the ways by turns

Local SGD with k from 1 to an epoch, an outer optimizer, and bsp, as in KubeML's figures 4.2 to 4.9.
Runs of a seed have the same first weights, batches and order, and take equally many samples. Curves
do not depend on the machine's load, and can be kept (`--keep`); seconds are of this machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

from rich.table import Table

from benchmarks.parts import namespaces
from benchmarks.parts.accuracy import capped
from benchmarks.parts.accuracy.curves import Curve, Curves, check_alike
from benchmarks.parts.accuracy.forms import BATCH, FORMS, RATES, TRAIN, Form
from benchmarks.parts.accuracy.reached import rows, targets
from benchmarks.parts.accuracy.shown import figures, tables
from benchmarks.parts.accuracy.ways import BSP, DDP, FEW, Way, ways_on
from benchmarks.parts.arguments import add_keep, add_pictures, new_parser
from benchmarks.parts.machine import machine, machine_line
from benchmarks.parts.papers.drawing import draw
from benchmarks.parts.papers.figure import Fact
from benchmarks.parts.scratch import scratch_of
from benchmarks.parts.spread import framed
from benchmarks.parts.stores import need
from dayfly.errors import RequestError
from dayfly.life.sessions import Session

#: Numbers of workers; on the first one all ways are trained.
_WORKERS = (2, 4)
_SEEDS, _ROUNDS, _QUICK_EPOCHS = 5, 2, 2
#: The first seed that settings are chosen with, and how many there are.
CHOOSING, _CHOOSING_SEEDS = 100, 2
_RATE = 10.0


def run(args: Sequence[str]) -> dict[str, Any]:
    """Measure; returns the result, see `benchmarks/README.md`. Raises RunFailed if a run fails."""
    asked = _arguments(args)
    forms = [FORMS[name] for name in asked.models]
    if asked.quick:
        forms = [replace(one, epochs=_QUICK_EPOCHS, timed_epochs=_QUICK_EPOCHS) for one in forms]
    if asked.choose:
        forms = [
            replace(one, rate=rate, title=f"{one.name}, rate {rate:g}")
            for one in forms
            for rate in RATES
        ]
    on_what, numbers = machine(), tuple(asked.workers)
    parts: dict[str, list[dict[str, Any]]] = {}
    with Session.open() as session:
        scratch = scratch_of(session)
        with Curves(asked.keep, scratch) as curves:
            of_form = {one: _curves(curves, one, numbers, asked) for one in forms}
        way_in = capped.lines(scratch, max(numbers), 1e6 * asked.rate)
        with nullcontext() if asked.curves else way_in as sides:
            for form, by_number in of_form.items():
                wanted = targets(by_number[numbers[0]][BSP])
                parts[form.title or form.name] = found = []
                for workers, of_ways in by_number.items():
                    took: Mapping[str, Sequence[capped.Took]] = {}
                    if sides is not None:
                        took = capped.measure(sides, form, list(of_ways), workers, asked.rounds)
                    found += rows(of_ways, wanted, took, workers)
    made = figures(parts)
    return {
        "machine": on_what,
        "rate_mb_per_s": None if asked.curves else asked.rate,
        "rounds": 0 if asked.curves else asked.rounds,
        "batch": BATCH,
        "seeds": list(asked.seeds),
        "choose": asked.choose,
        "quick": asked.quick,
        "parts": parts,
        "facts": [asdict(fact) for one in made for fact in one.facts],
        "pictures": [str(draw(one, asked.pictures)) for one in made if asked.pictures],
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person."""
    how = f"{result['batch']} samples of a step of each worker; seeds: {len(result['seeds'])}"
    if result["rate_mb_per_s"] is not None:
        how += f"\n{result['rate_mb_per_s']:g} MB/s each way by tc tbf; rounds: {result['rounds']}"
    facts = [Fact(**one) for one in result["facts"]]
    said = [f"{one.what}\n  here {one.ours}; KubeML: {one.theirs}" for one in facts]
    return framed(machine_line(result["machine"]), how, *tables(result["parts"]), *said)


def _curves(
    curves: Curves, form: Form, numbers: tuple[int, ...], asked: argparse.Namespace
) -> dict[int, dict[Way, list[Curve]]]:
    """Curves of a form, by number of workers, way and seed."""
    found: dict[int, dict[Way, list[Curve]]] = {}
    for workers in numbers:
        ways = FEW if asked.choose or asked.quick else ways_on(workers, numbers)
        found[workers] = {
            way: [curves.of(form, way, workers, seed) for seed in asked.seeds] for way in ways
        }
        by_bsp = found[workers].get(BSP, [])
        for seed, ours, theirs in zip(asked.seeds, by_bsp, found[workers][DDP], strict=False):
            check_alike(form, seed, ours, theirs)
    return found


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("accuracy", "Seconds to a target accuracy, beside torch DDP over gloo.")
    parser.add_argument(
        "--models", nargs="+", choices=FORMS, metavar="NAME", help=f"of {', '.join(FORMS)}"
    )
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        metavar="N",
        help="2 or more each; all ways on the first, some on the others (default: "
        f"{' '.join(map(str, _WORKERS))})",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help=f"default: {_SEEDS}")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument(
        "--rate",
        type=float,
        default=_RATE,
        metavar="MB/s",
        help=f"of each worker, each way (default: {_RATE:g})",
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help=f"of an epoch's seconds (default: {_ROUNDS})"
    )
    parser.add_argument(
        "--curves", action="store_true", help="only accuracies by epoch; it needs no root"
    )
    parser.add_argument(
        "--choose",
        action="store_true",
        help=f"only curves, at the learning rates to choose from, with seeds from {CHOOSING} on "
        f"({_CHOOSING_SEEDS} unless --seeds says another number)",
    )
    add_keep(parser)
    add_pictures(parser)
    parser.add_argument(
        "--quick", action="store_true", help="short: to see that it works, not how fast"
    )
    asked = parser.parse_args(args)
    asked.models = list(dict.fromkeys(asked.models or (["lenet"] if asked.quick else FORMS)))
    few = asked.quick or asked.choose
    asked.workers = list(dict.fromkeys(asked.workers or (_WORKERS[:1] if few else _WORKERS)))
    _refuse(asked)
    asked.rounds = asked.rounds or (1 if asked.quick else _ROUNDS)
    asked.curves |= asked.choose
    usual = _CHOOSING_SEEDS if asked.choose else 1 if asked.quick else _SEEDS
    first = CHOOSING if asked.choose else asked.first_seed
    asked.seeds = range(first, first + (asked.seeds or usual))
    return asked


def _refuse(asked: argparse.Namespace) -> None:
    """Raise RequestError for what cannot be."""
    for workers in asked.workers:
        if workers < 2 or TRAIN % (BATCH * workers):
            raise RequestError(
                f"--workers {workers}: give 2 or more, of which {TRAIN} samples are whole steps of "
                f"{BATCH} each, such as 2, 4 or 8"
            )
    if not 0 < asked.rate < float("inf"):
        raise RequestError(f"--rate {asked.rate:g}: give MB/s above 0")
    for name in ("seeds", "rounds"):
        given = getattr(asked, name)
        if given is not None and given < 1:
            raise RequestError(f"--{name} {given}: give 1 or more")
    if not 0 <= asked.first_seed < CHOOSING:
        raise RequestError(f"--first-seed {asked.first_seed}: give 0 to {CHOOSING - 1}")
    if asked.curves or asked.choose:
        if asked.rounds is not None:
            raise RequestError("--rounds: nothing is timed with --curves or --choose; leave it out")
        return
    if not namespaces.possible():
        raise RequestError(
            "seconds behind tc tbf need root, ip and tc: sudo apt install iproute2, or give "
            "--curves"
        )
    need("redis-server", "redis-server")
