"""`dayfly bench distributed`: torch.distributed programs over dayfly, beside gloo.

    examples   plain DDP and pipeline programs, over files in memory beside gloo
    overlap    DDP over a slow store, beside communicating after the backward pass
    small      an all-reduce of one number, beside gloo
    gpu        DDP and FSDP2 with several processes on one GPU, beside gloo

All four, unless some are named. The programs are plain torch; only the backend of the default
group differs. A process a rank, one thread each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from rich.table import Table

from benchmarks.parts import on_gpu, overlap, side_by_side
from benchmarks.parts.arguments import add_parts, asked_parts, new_parser, refuse_figures
from benchmarks.parts.examples import (
    EXAMPLES,
    OVERLAP_FEW_IMAGES,
    OVERLAP_IMAGES,
    SMALL_EXAMPLES,
)
from benchmarks.parts.machine import machine, machine_line
from benchmarks.parts.stores import running
from dayfly.errors import RequestError
from dayfly.life.sessions import Session

_PARTS = {
    "examples": "DDP and pipelines, beside gloo",
    "overlap": "DDP over a slow store, beside communicating after the backward pass",
    "small": "an all-reduce of one number, beside gloo",
    "gpu": "DDP and FSDP2 with several processes on one GPU",
}
_WORKERS, _OVERLAP_WORKERS = (2, 4), (2,)
_ROUNDS, _QUICK_ROUNDS = 6, 2
#: Seconds that a side is measured in a round; an all-reduce of one number is short.
_SECONDS, _SMALL_SECONDS, _QUICK_SECONDS = 1.2, 0.2, 0.1
_OVERLAP_ROUNDS_SHARE = 2
_RATE, _LATENCY_MS = 40.0, 5.0
_NO_GPU = "DDP and FSDP2 on a GPU were left out: this machine has none"


def run(args: Sequence[str]) -> dict[str, Any]:
    """Measure; returns the result, see `benchmarks/README.md`.

    Raises RequestError for what cannot be measured here, RunFailed if a process fails, or if two
    sides did not do the same.
    """
    asked = _arguments(args)
    parts = asked_parts(asked, _PARTS)
    has_gpu = torch.cuda.is_available()
    if asked.gpu and not has_gpu:
        raise RequestError("--gpu: torch finds no GPU on this machine; leave it out")
    began, on_what = time.monotonic(), machine()
    result: dict[str, Any] = {"machine": on_what, "quick": asked.quick, "rounds": asked.rounds}
    slow = overlap.Slow(mb_per_s=asked.rate, latency_ms=asked.latency)
    with Session.open() as session, running("files", session) as store:
        if "examples" in parts or "small" in parts:
            with side_by_side.Sides(max(asked.workers), session, store) as sides:
                if "examples" in parts:
                    chosen = {name: EXAMPLES[name] for name in asked.programs or EXAMPLES}
                    result["examples"] = sides.measure(
                        chosen, asked.workers, asked.rounds, asked.seconds
                    )
                if "small" in parts:
                    seconds = min(asked.seconds, _SMALL_SECONDS)
                    result["small"] = sides.measure(
                        SMALL_EXAMPLES, asked.workers, asked.rounds, seconds
                    )
        if "overlap" in parts:
            rounds = max(1, asked.rounds // _OVERLAP_ROUNDS_SHARE)
            result["overlap"] = overlap.measure(
                session,
                store,
                asked.overlap_workers,
                slow,
                rounds,
                asked.seconds,
                OVERLAP_FEW_IMAGES if asked.quick else OVERLAP_IMAGES,
            )
        if "gpu" in parts:
            result["gpu"] = (
                has_gpu
                and on_gpu.measure(session, store, asked.workers, asked.rounds, asked.seconds)
            ) or None
    result["wall_s"] = time.monotonic() - began
    return result


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person."""
    rounds = result["rounds"]
    whole = Table.grid(padding=(1, 0))
    whole.add_row(machine_line(result["machine"]))
    if result.get("examples"):
        heading = f"a step over files in memory, median of {rounds} rounds"
        whole.add_row(side_by_side.table(result["examples"], heading, EXAMPLES))
    if result.get("overlap"):
        whole.add_row(overlap.table(result["overlap"], len(result["overlap"][0]["seconds"])))
    if result.get("small"):
        heading = f"small messages over files in memory, median of {rounds} rounds"
        whole.add_row(side_by_side.table(result["small"], heading, SMALL_EXAMPLES))
    if result.get("gpu"):
        whole.add_row(on_gpu.table(result["gpu"], rounds))
    elif "gpu" in result:
        whole.add_row(_NO_GPU)
    return whole


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(
        "distributed", "torch.distributed programs over dayfly, beside gloo.", "MB: 10^6 bytes."
    )
    add_parts(parser, _PARTS)
    parser.add_argument(
        "--programs",
        nargs="+",
        choices=list(EXAMPLES),
        metavar="NAME",
        help=f"examples, of {', '.join(EXAMPLES)} (default: all)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        choices=_WORKERS,
        metavar="N",
        help="numbers of processes, 2 or 4 (default: both; 2 for overlap)",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=_RATE,
        metavar="MB/s",
        help=f"of the slow store, each way (default: {_RATE:g})",
    )
    parser.add_argument(
        "--latency",
        type=float,
        default=_LATENCY_MS,
        metavar="MS",
        help=f"of a request to the slow store (default: {_LATENCY_MS:g})",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"default: {_ROUNDS}, or {_QUICK_ROUNDS} if --quick; half as many for overlap",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help="about how long a side is measured in a round "
        f"(default: {_SECONDS:g}, or {_QUICK_SECONDS:g} if --quick)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="short: to see that it works, not how fast"
    )
    asked = parser.parse_args(args)
    asked.rounds = asked.rounds or (_QUICK_ROUNDS if asked.quick else _ROUNDS)
    asked.seconds = asked.seconds or (_QUICK_SECONDS if asked.quick else _SECONDS)
    asked.overlap_workers = asked.workers or _OVERLAP_WORKERS
    asked.workers = asked.workers or _WORKERS
    _refuse(asked)
    return asked


def _refuse(asked: argparse.Namespace) -> None:
    """Raise RequestError for figures that cannot be."""
    refuse_figures(asked, ("rate", "rounds", "seconds"))
    for name in asked.programs or ():
        if not set(EXAMPLES[name].processes) & set(asked.workers):
            fit = " or ".join(map(str, EXAMPLES[name].processes))
            raise RequestError(f"--programs {name} takes {fit} processes: give --workers {fit}")
