"""What a command prints and exits with when it is over.

Standard output has one JSON object with `--json`, or the summary for a person; everything else goes
to standard error. Exit codes: 0 done, 1 the run failed, 2 the request was wrong, 130 Ctrl-C, 143
terminated.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rich.console import Console

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.runs.directory import PLAN
from dayfly.runs.display import StandardError
from dayfly.runs.result import Result
from dayfly.runs.signals import Stopped

DONE, FAILED, WRONG = 0, 1, 2


class Concluded(Protocol):
    """A run that is over or stopped, of a job or of a script."""

    @property
    def directory(self) -> Path:
        """Where its files are."""

    @property
    def result(self) -> Result:
        """What came of it."""

    @property
    def stopped_by(self) -> int | None:
        """The signal that ended it early, if one did."""

    @property
    def lives(self) -> int | None:
        """How often all workers lived; None where each has lives of its own."""

    @property
    def to_go_on(self) -> str | None:
        """What to type to go on with a run that is not done; None if nothing would."""


def conclude(action: Callable[[], Concluded], *, as_json: bool) -> int:
    """Do it, print what came of it, return the exit code."""
    errors = StandardError()
    try:
        run = action()
    except DayflyError as error:
        wrong = isinstance(error, RequestError)
        errors.print(f"dayfly: {error}", markup=False, highlight=False, soft_wrap=True)
        if as_json:
            _say(Result(run_id=None, status="failed", error=str(error)).line())
        return WRONG if wrong else FAILED
    except Exception as error:
        # A mistake of dayfly's own, or of the machine: all there is to know, and still the JSON.
        traceback.print_exc()
        errors.print(f"dayfly: failed unexpectedly: {in_short(error)}", markup=False)
        if as_json:
            _say(Result(run_id=None, status="failed", error=in_short(error)).line())
        return FAILED
    except Stopped as stop:
        errors.print(f"dayfly: {stop}", highlight=False)
        if as_json:
            _say(Result(run_id=None, status="stopped").line())
        return 128 + stop.number
    result = run.result
    if result.status == "failed":
        errors.print(f"dayfly: {result.error}", markup=False, highlight=False, soft_wrap=True)
    if result.status != "done" and run.to_go_on is not None:
        errors.print(run.to_go_on, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        _print_compared(run, errors)
        _say(result.line())
    else:
        _say(_summary(run))
        _print_compared(run, Console())
    if run.stopped_by is not None and result.status != "done":
        return 128 + run.stopped_by
    return FAILED if result.status == "failed" else DONE


def shown(action: Callable[[], None], *, as_json: bool = False) -> int:
    """Do what only prints; return the exit code, and say what was wrong with the request.

    as_json: as an object on standard output, too.
    """
    try:
        action()
    except DayflyError as error:
        StandardError().print(f"dayfly: {error}", markup=False, highlight=False, soft_wrap=True)
        if as_json:
            _say(json.dumps({"error": str(error)}))
        return WRONG if isinstance(error, RequestError) else FAILED
    return DONE


def _print_compared(run: Concluded, console: Console) -> None:
    """What was predicted of a run by a plan, beside what it took."""
    if (run.directory / PLAN).is_file():
        from dayfly.cli.report import print_compared  # which no other run needs

        print_compared(run, console)


def _say(text: str) -> None:
    """On standard output; that nobody reads it any more changes nothing of what came of a run."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What is still in the buffer must not fail at the interpreter's end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _summary(run: Concluded) -> str:
    result = run.result
    metered = result.price_list is not None  # else its results could not be written
    rows = {
        "status": result.status,
        "accuracy": None if result.val_accuracy is None else f"{result.val_accuracy:.1%}",
        "loss": None if result.train_loss is None else f"{result.train_loss:.4f}",
        "validation loss": None if result.val_loss is None else f"{result.val_loss:.4f}",
        "time": f"{result.wall_s:.1f} s{_steps(result)}",
        "lives": None if run.lives is None else str(run.lives),
        "restarts": str(result.restarts),
        "bill": f"${result.cost_usd:.6f} as on {result.price_list}: "
        f"{result.billed_s:.1f} s billed, {result.gb_s:.1f} GB-s"
        if metered
        else None,
        "traffic": f"{result.bytes_up / 1e6:.1f} MB up, {result.bytes_down / 1e6:.1f} MB down, "
        f"{result.requests} requests"
        if metered
        else None,
        "files": str(run.directory),
    }
    shown = {name: value for name, value in rows.items() if value is not None}
    return "\n".join(f"{name:<17}{value}" for name, value in shown.items())


def _steps(result: Result) -> str:
    """Nothing of a script, which counts its steps itself."""
    if result.step_s is None and not result.steps:
        return ""
    return f", {result.steps} steps of {_milliseconds(result.step_s)}"


def _milliseconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1000:.1f} ms"
