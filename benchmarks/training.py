"""`dayfly bench training`: steps a second beside torch DDP over gloo; stages beside whole models.

    for each model, for each number of processes:
        round 0   dayfly  gloo
        round 1   gloo    dayfly
        round 2   dayfly  gloo
        ...

A round's ratio is of two runs that followed each other, so what else the machine does weighs on
both. Both sides train the same job: the first weights, batches, order, optimizer and number of
threads are equal, which is checked by the losses of every step.

With `--gpu` it measures something else, without a peer: LeNet on several functions of one GPU
(parts/shared_gpu.py).

dayfly's side is all that `dayfly.train` does by default: message log, reports and checkpoints
included. gloo's side keeps nothing and survives no death.

With `--virtual` instead: a step with virtual workers beside one without (see `parts.leaves`).
With `--pipelines` instead: models in stages beside FuncPipe's baselines, which train them whole, at
Lambda's caps (see `parts.pipelines`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.table import Table

from benchmarks.parts import leaves, own, shared_gpu
from benchmarks.parts.arguments import new_parser
from benchmarks.parts.machine import machine
from benchmarks.parts.measured import Measured, furthest_apart
from benchmarks.parts.peer import TorchDDP
from benchmarks.parts.pipelines.cases import CASES
from benchmarks.parts.pipelines.measure import measure
from benchmarks.parts.pipelines.shown import table as pipelines_table
from benchmarks.parts.scratch import scratch_of
from benchmarks.parts.workloads import WORKLOADS, Workload, workload_of
from dayfly.errors import RunFailed
from dayfly.life.sessions import Session
from dayfly.runs.display import StandardError
from dayfly.training.replica import build_model

_ROUNDS, _QUICK_ROUNDS = 3, 2
_WORKERS = (2, 4)


def run(args: Sequence[str]) -> dict[str, Any]:
    """Measure; returns the result, see `benchmarks/README.md`.

    Raises RunFailed if a side fails, or if the two did not do the same work.
    """
    asked = _arguments(args)
    rounds = asked.rounds or (_QUICK_ROUNDS if asked.quick else _ROUNDS)
    gpu = shared_gpu.gpu_to_measure() if asked.gpu else None
    on_what = machine()
    measured = _beside_gloo
    if asked.pipelines or asked.virtual:
        measured = _pipelines if asked.pipelines else _over_leaves
    began = time.monotonic()
    with Session.open() as session:
        scratch = scratch_of(session)
        if gpu is not None:
            shared = shared_gpu.measure(shared_gpu.FUNCTIONS, gpu, scratch, quick=asked.quick)
            took_s = time.monotonic() - began
            return {"machine": on_what, "quick": asked.quick, "wall_s": took_s, "gpu": shared}
        rows = measured(asked, rounds, scratch, session)
    return {
        "machine": on_what,
        "quick": asked.quick,
        "rounds": rounds,
        "pipelines": asked.pipelines,
        "virtual": asked.virtual,
        "wall_s": time.monotonic() - began,
        "rows": rows,
    }


def _beside_gloo(
    asked: argparse.Namespace, rounds: int, scratch: Path, session: Session
) -> list[dict[str, Any]]:
    rows = []
    for workload, data, workers in _worlds(asked, scratch):
        with TorchDDP(workload.name, asked.quick, data, workers, session) as peer:
            rows.append(_row(workload, workers, rounds, data, peer, asked.profile))
    return rows


def _over_leaves(
    asked: argparse.Namespace, rounds: int, scratch: Path, session: Session
) -> list[dict[str, Any]]:
    rows = []
    for workload, data, workers in _worlds(asked, scratch):
        rows += leaves.measure(workload, workers, rounds, data)
    return rows


def _worlds(asked: argparse.Namespace, scratch: Path) -> Iterator[tuple[Workload, Path, int]]:
    """Each model with its data, written once, and each number of workers."""
    for name in asked.models:
        workload = workload_of(name, asked.quick)
        data = scratch / f"data-{name}"
        workload.write_data(data)
        for workers in asked.workers:
            yield workload, data, workers


def _pipelines(
    asked: argparse.Namespace, rounds: int, scratch: Path, session: Session
) -> list[dict[str, Any]]:
    rows = []
    for name in asked.models:
        case = CASES[name].quick() if asked.quick else CASES[name]
        rows += measure(case, rounds, scratch)
    return rows


def table(result: Mapping[str, Any]) -> Table:
    """The result for a person: the rates, and under them, if measured, where the time goes."""
    if "gpu" in result:
        return shared_gpu.table(result["gpu"])
    if result["pipelines"]:
        return pipelines_table(result)
    if result["virtual"]:
        return leaves.table(result)
    on_what = result["machine"]
    whole = Table.grid(padding=(1, 0))
    whole.add_row(
        f"steps a second, median of {result['rounds']} rounds, on {on_what['cores']} cores of "
        f"{on_what['cpu']}\ntorch {on_what['torch']}, Python {on_what['python']}, load before: "
        f"{on_what['load']}"
    )
    rates = Table()
    rates.add_column("model", no_wrap=True)
    for title in ("n", "gradient", "batch", "dayfly", "gloo", "ratio", "spread"):
        rates.add_column(title, justify="right", no_wrap=True)
    for row in result["rows"]:
        rates.add_row(
            row["model"],
            str(row["workers"]),
            f"{row['gradient_mb']:.1f} MB",
            str(row["batch_size"]),
            f"{row['dayfly_steps_per_s']:.4g}",
            f"{row['gloo_steps_per_s']:.4g}",
            f"{row['ratio']:.2f}",
            f"{row['ratio_min']:.2f} to {row['ratio_max']:.2f}",
        )
    whole.add_row(rates)
    whole.add_row(
        "n: processes; ratio: dayfly / gloo of a round: the median, the least and the most"
    )
    for row in result["rows"]:
        if "profile" in row:
            whole.add_row(_profile_table(row))
    return whole


def _profile_table(row: Mapping[str, Any]) -> Table:
    profile = row["profile"]
    shown = Table(title=f"{row['model']} on {row['workers']}: ms a step, mean of all processes")
    sides = {
        "dayfly": profile["dayfly_ms"],
        "gloo": profile["gloo_ms"],
        "silent": profile["alone_ms"],
    }
    for side in sides:
        shown.add_column(side, no_wrap=True)
        shown.add_column("ms", justify="right", no_wrap=True)
    columns = [list(parts.items()) for parts in sides.values()]
    for number in range(max(map(len, columns))):
        cells: list[str] = []
        for column in columns:
            part, took_ms = column[number] if number < len(column) else ("", None)
            cells += [part, "" if took_ms is None else f"{took_ms:.3f}"]
        shown.add_row(*cells)
    shown.caption = (
        "silent: gloo's side without communication; an all-reduce of the whole gradient by gloo "
        f"takes {profile['gloo_reduce_ms']:.3f} ms"
    )
    return shown


def _row(
    workload: Workload, workers: int, rounds: int, data: Path, peer: TorchDDP, profile: bool
) -> dict[str, Any]:
    """One model on so many processes, both sides."""
    say = StandardError().print
    ours: list[Measured] = []
    theirs: list[Measured] = []
    apart = 0.0
    for number in range(rounds):
        run_dir = data.with_name(f"run-{workload.name}-{workers}-{number}")
        if number % 2 == 0:
            ours.append(own.train(workload, data, workers, run_dir))
            theirs.append(peer.train())
        else:
            theirs.append(peer.train())
            ours.append(own.train(workload, data, workers, run_dir))
        apart = max(apart, _same_work(workload, ours[-1], theirs[-1]))
        say(
            f"{workload.name} on {workers}, round {number + 1} of {rounds}: "
            f"dayfly {ours[-1].steps_per_s:.4g}, gloo {theirs[-1].steps_per_s:.4g} steps/s",
            highlight=False,
        )
    ratios = [a.steps_per_s / b.steps_per_s for a, b in zip(ours, theirs, strict=True)]
    parameters = sum(p.numel() for p in build_model(workload.job(data)).parameters())
    row: dict[str, Any] = {
        "model": workload.name,
        "workers": workers,
        "parameters": parameters,
        "gradient_mb": parameters * 4 / 1e6,
        "batch_size": workload.batch_size,
        "steps": workload.measured_steps,
        "dayfly_steps_per_s": median(one.steps_per_s for one in ours),
        "gloo_steps_per_s": median(one.steps_per_s for one in theirs),
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "rounds": [
            {"dayfly_steps_per_s": a.steps_per_s, "gloo_steps_per_s": b.steps_per_s}
            for a, b in zip(ours, theirs, strict=True)
        ],
        "dayfly_last_loss": ours[-1].losses[-1],
        "gloo_last_loss": theirs[-1].losses[-1],
        "losses_apart": apart,
    }
    if profile:
        row["profile"] = {
            "dayfly_ms": _mean_parts(ours),
            "gloo_ms": _mean_parts(theirs),
            "alone_ms": dict(peer.alone().parts_ms),
            "gloo_reduce_ms": peer.reduce_ms(),
        }
    return row


def _same_work(workload: Workload, ours: Measured, theirs: Measured) -> float:
    """How far apart the losses are at most; raises RunFailed if that is too far."""
    step, apart = furthest_apart(ours.losses, theirs.losses)
    if not apart <= workload.tolerance:
        raise RunFailed(
            f"the two sides did not train alike, so their speed says nothing: the loss of step "
            f"{step} of {workload.name} is {ours.losses[step]:.6g} by dayfly and "
            f"{theirs.losses[step]:.6g} by gloo"
        )
    return apart


def _mean_parts(runs: Sequence[Measured]) -> dict[str, float]:
    names = dict.fromkeys(name for one in runs for name in one.parts_ms)
    return {name: fmean(one.parts_ms.get(name, 0.0) for one in runs) for name in names}


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("training", "Steps a second of local functions beside torch DDP over gloo.")
    parser.add_argument(
        "--pipelines",
        action="store_true",
        help="models in stages beside whole ones, at Lambda's caps, in place of gloo",
    )
    parser.add_argument(
        "--virtual",
        action="store_true",
        help="steps with as many virtual workers as workers, twice and four times as many, beside "
        "steps without, in place of gloo",
    )
    parser.add_argument(
        "--models",
        type=lambda text: text.split(","),
        metavar="NAME,...",
        help=f"of {', '.join(WORKLOADS)}; with --pipelines, of {', '.join(CASES)} (default: all)",
    )
    parser.add_argument(
        "--workers",
        type=_numbers,
        metavar="N,...",
        help="numbers of processes (default: 2,4)",
    )
    parser.add_argument(
        "--rounds", type=_above_zero, help=f"default: {_ROUNDS}, or {_QUICK_ROUNDS} if --quick"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer steps and rounds: to see that it works"
    )
    parser.add_argument(
        "--profile", action="store_true", help="say also where the time of a step goes"
    )
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="only this: LeNet on 1, 2, 4 and 8 functions of one GPU; samples a second, and how "
        "busy it is",
    )
    asked = parser.parse_args(args)
    known = list(CASES if asked.pipelines else WORKLOADS)
    asked.models = asked.models or known
    for name in asked.models:
        if name not in known:
            parser.error(f"argument --models: {name!r} is none of {', '.join(known)}")
    if asked.pipelines and (asked.profile or asked.workers is not None):
        parser.error("--pipelines: the forms have their workers, and no profile: leave them out")
    if asked.virtual and (asked.profile or asked.pipelines):
        parser.error("--virtual: it is measured by itself: leave the others out")
    asked.workers = asked.workers or list(_WORKERS)
    return asked


def _numbers(text: str) -> list[int]:
    numbers = [_above_zero(part) for part in text.split(",")]
    for workers in numbers:
        if workers < 2 or any(one.batch_size % workers for one in WORKLOADS.values()):
            raise argparse.ArgumentTypeError(
                f"{workers} processes cannot share the batches evenly: give 2, 4, 8, 16 or 32"
            )
    return numbers


def _above_zero(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number above 0")
    return number
