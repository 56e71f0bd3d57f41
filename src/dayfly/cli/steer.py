"""`dayfly stop` and `dayfly runs`: stop a run from another terminal, and list runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from dayfly.errors import RequestError, RunFailed, in_short
from dayfly.life.control import ask
from dayfly.runs.directory import RECORD, holder
from dayfly.runs.record import read_record
from dayfly.wire.stores.files import FileStore

#: The default directory of runs; `--run-dir` of a run names another.
USUAL = Path("runs")
_LOOK_S = 0.2


def directory_of(run: str) -> Path:
    """The directory of a run that is named by it, or by its id if it is below `runs/`.

    Raises RequestError if there is none.
    """
    for directory in (Path(run).expanduser(), USUAL / run):
        if (directory / RECORD).is_file():
            return directory.absolute()
    for row in _rows(USUAL):  # of a run whose directory has a name of its own
        if row["run_id"] == run:
            return Path(row["directory"])
    raise RequestError(
        f"there is no run {run!r}: give its directory, or the id of one below {USUAL.absolute()}"
    )


def stop(run: str, timeout_s: float) -> None:
    """Ask a run to end in order, with a checkpoint, and wait until it has.

    Raises RequestError if nobody runs it, and RunFailed if it has not ended in time.
    """
    directory = directory_of(run)
    status = read_record(directory)["status"]
    if status != "running":
        print(f"{directory} is {status} already")
        return
    if holder(directory) is None:
        raise RequestError(
            f"no process runs {directory}: its coordinator was killed; dayfly train --resume "
            f"{directory} goes on with it"
        )
    ask(FileStore(directory), "stop")
    until = time.monotonic() + timeout_s
    while holder(directory) is not None:
        if time.monotonic() > until:
            raise RunFailed(
                f"{directory} has not ended {timeout_s:g} s after it was asked to: process "
                f"{holder(directory)} runs it"
            )
        time.sleep(_LOOK_S)
    print(f"{directory} is {read_record(directory)['status']}")


def list_runs(directory: Path, *, as_json: bool) -> None:
    """Print the runs right below a directory, the latest last.

    Raises RequestError if the directory cannot be read.
    """
    rows = sorted(_rows(directory), key=lambda row: row["began_at"])
    if as_json:
        print(json.dumps(rows))
        return
    console = Console()
    if not rows:
        console.print(f"no runs in {directory.absolute()}", highlight=False, soft_wrap=True)
        return
    # An id is to be copied, so it is never shortened.
    name = Column("run", no_wrap=True, min_width=max(len(row["run_id"]) for row in rows))
    table = Table(name, "status", "epochs", "val_loss", "USD", "began", box=None)
    for row in rows:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["began_at"]))
        loss, cost = row["val_loss"], row["cost_usd"]
        table.add_row(
            row["run_id"],
            row["status"],
            str(row["epochs"]),
            "" if loss is None else f"{loss:.4f}",
            "" if cost is None else f"{cost:.6f}",
            began,
        )
    console.print(table)


def _rows(directory: Path) -> list[dict[str, Any]]:
    try:
        found = sorted(directory.iterdir()) if directory.is_dir() else []
    except OSError as error:
        raise RequestError(f"{directory} cannot be read: {error.strerror}") from error
    return [_row(one) for one in found if (one / RECORD).is_file()]


def _row(directory: Path) -> dict[str, Any]:
    """What is known of a run; one whose coordinator was killed is "lost"."""
    try:
        record = read_record(directory)
        status = record["status"]
        if status == "running" and holder(directory) is None:
            status = "lost"
        result = record.get("result") or {}
        return {
            **{name: result.get(name, usual) for name, usual in _EMPTY.items()},
            "run_id": record["run_id"],
            "status": status,
            "error": record.get("error"),
            "began_at": float(record["began_at"]),
            "directory": str(directory.absolute()),
        }
    except (RequestError, LookupError, TypeError, ValueError, AttributeError) as error:
        damaged = {"run_id": directory.name, "status": "damaged", "error": in_short(error)}
        return {**_EMPTY, **damaged, "directory": str(directory.absolute())}


_EMPTY: dict[str, Any] = {
    "run_id": None,
    "status": None,
    "error": None,
    "epochs": 0,
    "steps": 0,
    "val_loss": None,
    "val_accuracy": None,
    "cost_usd": None,
    "began_at": 0.0,
    "directory": None,
}
