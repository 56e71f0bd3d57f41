"""`dayfly simulate PLAN.json`: a whole run in virtual time, its directory, and what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from dayfly.cli.catalogue import own_catalogue
from dayfly.cli.outcome import (
    DONE,
    FAILED,
    ActionFailure,
    attempt,
    kind_in_words,
    narrow_table,
    tell,
)
from dayfly.cli.values import lists_of
from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.life.reports import plain
from dayfly.planning.choose.front import counted
from dayfly.runs.result import Result
from dayfly.runs.signals import StopSignals
from dayfly.runs.simulation import SimulatedRun
from dayfly.runs.simulation import simulate as simulate_plan


def simulate(
    file: Path,
    keywords: Mapping[str, Any],
    run_dir: Path | None,
    own: Path | None,
    *,
    as_json: bool,
) -> int:
    """Simulate, write the run's directory, print what came of it; returns the exit code.

    Args:
        file: the plan's.
        keywords: of `dayfly.simulate`, with decline, the store's rate and the time of a call as
            their flags have them.
        run_dir: of the files; None: `runs/<run id>`.
        own: a catalogue of the user's.
        as_json: print one object.
    """

    def action() -> SimulatedRun:
        given = {name: value for name, value in keywords.items() if value is not None}
        given |= lists_of(given)
        if "decline" in given:
            given["decline"] = declining(given["decline"])
        if "store_bytes_per_s" in given:
            given["store_bytes_per_s"] *= 1e6
        if "invoke_call_s" in given:
            given["invoke_call_s"] /= 1000
        try:
            with StopSignals():
                return simulate_plan(file, **given, catalogue=own_catalogue(own), run_dir=run_dir)
        except OSError as error:
            raise DayflyError(f"the simulated run cannot be written: {in_short(error)}") from error

    run = attempt(action)
    if isinstance(run, ActionFailure):
        if as_json:
            print(Result(run_id=None, status=run.status, error=run.error).line(), flush=True)
        return run.code
    result = run.result
    if result.error is not None:
        tell(f"the run would fail: {result.error}")
    if as_json:
        print(json.dumps(plain({**asdict(result), **run.more}), allow_nan=False), flush=True)
    else:
        _print(run)
    tell(f"to see it: dayfly report {run.directory}")
    return FAILED if result.status == "failed" else DONE


def declining(text: str) -> tuple[tuple[float, float], ...]:
    """From `8:1,64:0.6`: functions, and the part of their bandwidth that is left.

    Raises RequestError for what is no such list.
    """
    try:
        pairs = [pair.split(":") for pair in text.split(",")]
        return tuple((float(functions), float(part)) for functions, part in pairs)
    except ValueError:
        raise RequestError(
            f"--decline {text!r} is no list of functions and parts: give them as in 8:1,64:0.6"
        ) from None


def _print(run: SimulatedRun) -> None:
    """A table for people, on standard output."""
    table = narrow_table(f"simulated: {run.request.scenario.words()}", show_header=False)
    table.add_column("what", no_wrap=True)
    table.add_column("figure", justify="right")
    table.add_column("more")
    for row in _rows(run):
        table.add_row(*row)
    Console(file=sys.stdout).print(table, markup=False, highlight=False)


def _rows(run: SimulatedRun) -> list[tuple[str, str, str]]:
    result, outcome = run.result, run.outcome
    kinds = ", ".join(
        f"{kind_in_words(kind)} ${usd:.6f}" for kind, usd in run.bill.by_kind.items() if usd
    )
    step = "-" if result.step_s is None else f"{result.step_s:.4f} s"
    predicted = run.request.plan.prediction
    rows = [
        ("workers", str(result.workers), ""),
        ("start-up time", _seconds(result.startup_s), "until the first step"),
        (
            "training time",
            _seconds(result.train_s),
            f"{counted(result.steps, 'step')} in {counted(result.epochs, 'epoch')}",
        ),
        ("total time", _seconds(result.total_s), "until the last function has ended"),
        ("step", step, "median of rank 0's"),
        ("cost", f"${result.cost_usd:.6f}", f"as on {result.price_list}: {kinds}"),
        ("billed", f"{result.billed_s:.1f} s", f"{result.gb_s:.1f} GB-s"),
        ("restarts", str(result.restarts), "of functions that died"),
        ("hand-overs", str(outcome.hand_overs), "to the next invocation, before the time limit"),
        ("rollbacks", str(outcome.rollbacks), "of all workers, to a checkpoint"),
        ("steps redone", str(outcome.redone_steps), "after rollbacks, of all workers together"),
        ("checkpoints", str(outcome.checkpoints), ""),
    ]
    if worst := outcome.worst:
        rows.append(
            (
                "worst worker",
                str(worst["rank"]),
                f"computed {worst['computed_s']:.2f} s, the median {worst['median_s']:.2f} s",
            )
        )
    if predicted is not None:
        rows.append(
            (
                "the plan said",
                f"{predicted.total_s:.2f} s",
                f"total time, ${predicted.cost_usd:.6f}, steps of {predicted.step_s:.4f} s",
            )
        )
    rows.append(("files", "", str(run.directory)))
    return rows


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"
