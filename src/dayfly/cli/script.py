"""`dayfly run`: from what was typed to a script's run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dayfly.errors import RequestError
from dayfly.runs.display import Display, Lines, StandardError
from dayfly.runs.scripts import launch
from dayfly.runs.scripts.record import ScriptRun, ScriptSettings


def run_script(
    script: str | None,
    args: Sequence[str],
    settings: Mapping[str, Any],
    *,
    module: bool,
    store: str | None,
    run_dir: Path | None,
    resume: str | None,
    as_json: bool,
    display: Display | None = None,
    asked_at: float,
) -> ScriptRun:
    """Begin a run, or go on with one. Raises RequestError for what cannot be.

    What the functions print goes to standard output, but with --json to standard error. asked_at:
    since when the user waits, in Unix seconds.
    """
    display = display or Lines(StandardError())
    output = sys.stderr if as_json else sys.stdout
    if resume is not None:
        refused = {"SCRIPT.py": script, "-m": module or None, "--store": store}
        for name, value in refused.items():
            if value is not None:
                raise RequestError(
                    f"--resume goes on with what is in the run's directory: leave out {name}"
                )
        return launch.resume(
            resume,
            directory=run_dir,
            display=display,
            output=output,
            asked_at=asked_at,
            **settings,
        )
    if script is None:
        raise RequestError("no script: name a Python file, or --resume DIR")
    return launch.begin(
        script,
        args,
        ScriptSettings(**settings),
        module=module,
        store=store,
        directory=run_dir,
        display=display,
        output=output,
        asked_at=asked_at,
    )
