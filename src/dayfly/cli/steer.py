"""`dayfly follow` and `dayfly runs`: runs that were begun in another terminal, or are over."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from dayfly.errors import RequestError, in_short
from dayfly.life.leadership import HEAD
from dayfly.runs.directory import RECORD
from dayfly.runs.display import Lines
from dayfly.runs.following import Teller
from dayfly.runs.home import found
from dayfly.runs.record import SCRIPT
from dayfly.runs.steering import KeptRun, directory_of
from dayfly.specs.events import Ended
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import StoreError


def to_read(run: str) -> Path:
    """The directory in which a run can be read; of one in a store, that of a copy.

    Raises RequestError if there is no such run, or it cannot be copied.
    """
    if "://" in run:
        return found(run)
    return Path(run) if Path(run).exists() else directory_of(run)


def follow(run: str) -> str:
    """Show what happens in a run until nobody runs it any more; returns its status.

    Raises RequestError if there is no such run.
    """
    kept = KeptRun.named(run)
    untold = (Ended,) if kept.record().get("kind") == SCRIPT else ()
    events = kept.events()
    teller = Teller(Lines(Console()), untold)
    while True:
        goes_on = kept.goes_on()  # asked first: what is written until then is shown
        for source, event in events.look():
            teller.tell(source, event)
        if not goes_on:
            return "lost" if kept.under_way else kept.status
        time.sleep(kept.look_s)


def rows_of(place: str) -> list[dict[str, Any]]:
    """What is known of the runs right below a directory or a store's URL, one dict a run.

    Raises RequestError if it cannot be read.
    """
    if "://" in place:
        store = open_store(place.rstrip("/"))
        return [_row(f"{store.url}/{folder}") for folder in store.folders()]
    directory = Path(place)
    try:
        found = sorted(directory.iterdir()) if directory.is_dir() else []
    except OSError as error:
        raise RequestError(f"{directory} cannot be read: {error.strerror}") from error
    return [_row(str(one.absolute())) for one in found if (one / RECORD).is_file()]


def _row(place: str) -> dict[str, Any]:
    """What is known of a run; one whose coordinator was killed is "lost"."""
    try:
        kept = KeptRun.named(place) if "://" in place else KeptRun.in_directory(Path(place))
        if kept.store.stat(RECORD) is None and kept.store.stat(HEAD) is not None:
            return _unbegun(place, kept.runner)
        record = kept.record()
        status = record["status"]
        if status == "running" and kept.runner is None:
            status = "lost"
        result = record.get("result") or {}
        if status in ("running", "lost") and (last := kept.last_epoch()) is not None:
            result = {**result, **last.record, "epochs": last.epoch, "steps": None}
        return {
            **{name: result.get(name, usual) for name, usual in _EMPTY.items()},
            "run_id": record["run_id"],
            "status": status,
            "error": record.get("error"),
            "began_at": float(record["began_at"]),
            "directory": place,
        }
    except (RequestError, StoreError, LookupError, TypeError, ValueError, AttributeError) as error:
        name = place.rpartition("/")[2]
        damaged = {"run_id": name, "status": "damaged", "error": in_short(error)}
        return {**_EMPTY, **damaged, "directory": place}


def _unbegun(place: str, runner: str | None) -> dict[str, Any]:
    """Of a place in a store that a command took for a run, and has not written it yet."""
    name = place.rpartition("/")[2]
    lost = "the command that was to begin it was killed before it had: remove what it left"
    status, error = ("lost", lost) if runner is None else ("starting", None)
    return {**_EMPTY, "run_id": name, "status": status, "error": error, "directory": place}


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
