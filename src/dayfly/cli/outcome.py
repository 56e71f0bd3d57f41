"""What a command prints and exits with when it is over.

Standard output has one JSON object with `--json`, or the summary for a person; everything else goes
to standard error. Exit codes: 0 done, 1 the run failed, 2 the request was wrong, 130 Ctrl-C, 143
terminated.

What draws in the terminal is loaded once something is drawn.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dayfly.errors import DayflyError, RequestError, in_short
from dayfly.runs.directory import PLAN
from dayfly.runs.result import Result
from dayfly.runs.signals import Stopped

if TYPE_CHECKING:
    from rich.table import Table

    from dayfly.runs.run import Run
    from dayfly.runs.scripts.record import ScriptRun

T = TypeVar("T")
DONE, FAILED, WRONG = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ActionFailure:
    """What ended an action early.

    Args:
        status: failed or stopped.
        error: what was wrong; None: a signal stopped it.
        code: of the exit.
    """

    status: str
    error: str | None
    code: int


def attempt(action: Callable[[], T]) -> T | ActionFailure:
    """Does an action; says on standard error what ended it early."""
    try:
        return action()
    except DayflyError as error:
        tell(f"dayfly: {error}")
        return ActionFailure(
            "failed", str(error), WRONG if isinstance(error, RequestError) else FAILED
        )
    except Exception as error:
        # A mistake of dayfly's own, or of the machine: all there is to know, and still the JSON.
        traceback.print_exc()
        tell(f"dayfly: failed unexpectedly: {in_short(error)}")
        return ActionFailure("failed", in_short(error), FAILED)
    except Stopped as stop:
        tell(f"dayfly: {stop}")
        return ActionFailure("stopped", None, 128 + stop.number)
    except KeyboardInterrupt as stop:
        tell(f"dayfly: {str(stop) or 'stopped by SIGINT'}")
        return ActionFailure("stopped", None, 128 + signal.SIGINT)


def tell(text: str) -> None:
    """Prints a line on standard error as it is."""
    from dayfly.runs.display import StandardError

    StandardError().print(text, markup=False, highlight=False, soft_wrap=True)


def narrow_table(title: str | None = None, **more: Any) -> Table:
    """Returns a table as narrow as it can be: a terminal has 80 columns."""
    from rich import box
    from rich.table import Table

    look: dict[str, Any] = {"box": box.SIMPLE, "padding": (0, 1, 0, 0), "pad_edge": False}
    return Table(title=title, title_justify="left", **look, **more)


def kind_in_words(kind: str) -> str:
    """Returns a kind of dollars of a bill as people read it."""
    return "invocations" if kind == "invocation_requests" else kind.replace("_", " ")


def conclude(action: Callable[[], Run | ScriptRun], *, as_json: bool) -> int:
    """Does what gives a run, prints what came of it, returns the exit code."""
    run = attempt(action)
    if isinstance(run, ActionFailure):
        if as_json:
            say(Result(run_id=None, status=run.status, error=run.error).line())
        return run.code
    result = run.result
    if result.status == "failed":
        tell(f"dayfly: {result.error}")
    if result.status != "done" and run.to_go_on is not None:
        tell(run.to_go_on)
    if as_json:
        _print_compared(run, as_json=True)
        say(result.line())
    else:
        say(_summary(run))
        _print_compared(run, as_json=False)
    if run.stopped_by is not None and result.status != "done":
        return 128 + run.stopped_by
    return FAILED if result.status == "failed" else DONE


def shown(action: Callable[[], None], *, as_json: bool = False) -> int:
    """Does what only prints; returns the exit code, and says what was wrong with the request.

    Args:
        as_json: as an object on standard output, too.
    """
    failure = attempt(action)
    if failure is None:
        return DONE
    if as_json:
        say(json.dumps({"error": failure.error}))
    return failure.code


def _print_compared(run: Run | ScriptRun, *, as_json: bool) -> None:
    """What was predicted of a run by a plan, beside what it took."""
    if (run.directory / PLAN).is_file():
        from rich.console import Console

        from dayfly.cli.report import print_compared  # which no other run needs
        from dayfly.runs.display import StandardError

        print_compared(run, StandardError() if as_json else Console())


def say(text: str) -> None:
    """On standard output; that nobody reads it any more changes nothing of what came of a run."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What is still in the buffer must not fail at the interpreter's end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _status(run: Run | ScriptRun) -> str:
    result = run.result
    if result.stop_reason is None:
        return result.status
    count = result.epochs
    epochs = f", after {count} epoch{'s' * (count > 1)}" if count else ""
    return f"{result.status}{epochs} ({result.stop_reason})"


def _summary(run: Run | ScriptRun) -> str:
    result = run.result
    metered = result.price_list is not None  # else its results could not be written
    rows = {
        "status": _status(run),
        "best epoch": None if result.best_epoch is None else str(result.best_epoch),
        "accuracy": None if result.val_accuracy is None else f"{result.val_accuracy:.1%}",
        "loss": None if result.train_loss is None else f"{result.train_loss:.4f}",
        "validation loss": None if result.val_loss is None else f"{result.val_loss:.4f}",
        "start-up time": _seconds(result.startup_s),
        "training time": None
        if result.train_s is None
        else f"{_seconds(result.train_s)}{_steps(result)}",
        "total time": _seconds(result.total_s),
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


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s"


def _milliseconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1000:.1f} ms"
