"""From a request to a script's run: `begin` starts one, `resume` goes on with one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dayfly.errors import RequestError
from dayfly.life.faults import Fault
from dayfly.runs import preloads
from dayfly.runs.directory import being_prepared
from dayfly.runs.display import Display
from dayfly.runs.function_resources import resources_of
from dayfly.runs.home import local_directory
from dayfly.runs.listeners import Listener
from dayfly.runs.run_context import RunRequest, begun, resumed
from dayfly.runs.scripts.coordinator import ScriptCoordinator
from dayfly.runs.scripts.logs import Output
from dayfly.runs.scripts.record import FILES, Script, ScriptRecord, ScriptRun, ScriptSettings


def begin(
    what: str,
    args: Sequence[str],
    settings: ScriptSettings,
    *,
    module: bool = False,
    output: Output,
    **request: Any,
) -> ScriptRun:
    """Checks a request, makes the run's directory and runs the script on all workers.

    Args:
        what: a file, or the name of a module.
        args: of the script.
        settings: of the run.
        module: `what` is a module's name.
        output: where the functions' output is shown.
        request: fields of `RunRequest`.

    Returns:
        The run; if it failed once it had begun, its result has the error.

    Raises:
        RequestError: before any function is started, leaving nothing.
    """
    cwd = Path.cwd()
    script = Script.find(what, module=module, cwd=cwd)
    resources_of(settings)  # before anything is made
    name = what.rpartition(".")[2] if module else Path(what).stem
    with begun(name, settings, preloads.SCRIPT, RunRequest(**request)) as (context, facts):
        directory = context.home.directory
        with being_prepared(directory):
            (directory / FILES).mkdir()
        record = ScriptRecord(**facts, script=script, args=tuple(args), cwd=str(cwd))
        return ScriptCoordinator(record, context, output).start()


def resume(
    run: str | Path,
    *,
    directory: Path | None = None,
    display: Display,
    output: Output,
    listeners: Sequence[Listener] = (),
    faults: Sequence[Fault] = (),
    asked_at: float | None = None,
    **changes: Any,
) -> ScriptRun:
    """Starts the script of a run again, in the next generation; it has its files of before.

    Args:
        run: its directory, or its URL in a store.
        directory: for a copy of a run in a store; None: `runs/<run id>`.
        output: where the functions' output is shown.
        display, listeners, faults, asked_at: see `RunRequest`.
        changes: settings that override the run's from now on, such as `lifetime_s`; None: as
            before.

    Returns:
        The run. One that is done is returned as it is, which is said.

    Raises:
        RequestError: the directory holds no run of a script, another process runs it, or the script
            is another one by now.
    """
    directory = local_directory(run, directory)
    record = ScriptRecord.load(directory)
    if record.status == "done" and record.result is not None:
        display.note("it was done already: nothing was started")
        return ScriptRun(directory, record.result, lives=record.generation + 1)
    if (changed := record.script.changed()) is not None:
        raise RequestError(changed)
    if not Path(record.cwd).is_dir():
        raise RequestError(f"the run began in {record.cwd}, which is not there any more")
    known = {name: value for name, value in changes.items() if value is not None}
    request = RunRequest(display, directory, listeners, faults, asked_at)
    opened = resumed(record, directory, known, preloads.SCRIPT, request)
    with opened as (context, _, record):
        (directory / FILES).mkdir(exist_ok=True)
        return ScriptCoordinator(record, context, output).start()
