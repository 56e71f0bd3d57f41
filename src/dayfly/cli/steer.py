"""`dayfly stop`, `follow` and `runs`: runs that were begun in another terminal, or are over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from dayfly.errors import RequestError, RunFailed, in_short
from dayfly.life.control import ask
from dayfly.life.leadership import HEAD, LeaderWatch
from dayfly.runs.directory import RECORD, holder
from dayfly.runs.display import Lines
from dayfly.runs.following import DirectoryEvents, StoreEvents, Teller
from dayfly.runs.home import USUAL, found, record_in
from dayfly.runs.record import SCRIPT, read_record
from dayfly.runs.result import HANDING_OVER
from dayfly.specs.events import Ended
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import Store, StoreError
from dayfly.wire.stores.files import FileStore

#: Seconds between two looks at a run that is to end: in a directory, in a store.
_LOOK_S, _FAR_LOOK_S = 0.2, 2.0
#: How long somebody who looks on waits for the next coordinator of a run that was handed over.
_SUCCESSOR_S = 300.0


class _Kept:
    """A run, where it is kept: a directory, or a store, whose leader is asked instead of a lock."""

    def __init__(self, name: str, store: Store, directory: Path | None) -> None:
        self.name = name
        self.store = store
        self.directory = directory
        self._leader = LeaderWatch(store)

    @property
    def runner(self) -> str | None:
        """Who runs it; None: nobody, as far as can be told."""
        if self.directory is not None:
            pid = holder(self.directory)
            return None if pid is None else f"process {pid}"
        head = self._leader.look()
        return None if head is None else head.where

    @property
    def look_s(self) -> float:
        """Seconds between two looks at it."""
        return _FAR_LOOK_S if self.directory is None else _LOOK_S

    def goes_on(self) -> bool:
        """Whether somebody runs it, or took it over from a coordinator that handed it over.

        Waits for the next coordinator for `_SUCCESSOR_S`.
        """
        until_s = time.monotonic() + _SUCCESSOR_S
        while self.runner is None:
            if self.record()["status"] != HANDING_OVER or time.monotonic() > until_s:
                return False
            time.sleep(self.look_s)
        return True

    def record(self) -> Mapping[str, Any]:
        """Its `run.json`. Raises RequestError if there is none."""
        return record_in(self.store) if self.directory is None else read_record(self.directory)


def directory_of(run: str) -> Path:
    """The directory of a run that is named by it, or by its id if it is below `runs/`.

    Raises RequestError if there is none.
    """
    for directory in (Path(run).expanduser(), USUAL / run):
        if (directory / RECORD).is_file():
            return directory.absolute()
    for row in rows_of(str(USUAL)):  # of a run whose directory has a name of its own
        if row["run_id"] == run:
            return Path(row["directory"])
    raise RequestError(
        f"there is no run {run!r}: give its directory, its URL in a store, or the id of one below "
        f"{USUAL.absolute()}"
    )


def to_read(run: str) -> Path:
    """The directory in which a run can be read; of one in a store, that of a copy.

    Raises RequestError if there is no such run, or it cannot be copied.
    """
    if "://" in run:
        return found(run)
    return Path(run) if Path(run).exists() else directory_of(run)


def stop(run: str, timeout_s: float) -> None:
    """Ask a run to end in order, with a checkpoint, and wait until it has.

    Raises RequestError if nobody runs it, and RunFailed if it has not ended in time.
    """
    kept = _in_store(run.rstrip("/")) if "://" in run else _in_directory(directory_of(run))
    status = kept.record()["status"]
    if status not in ("running", HANDING_OVER):
        print(f"{kept.name} is {status} already")
        return
    if not kept.goes_on():
        raise RequestError(
            f"no process runs {kept.name}: its coordinator was killed, or the next one did not "
            f"begin; dayfly train --resume {kept.name} goes on with it"
        )
    ask(kept.store, "stop")
    until = time.monotonic() + timeout_s
    while kept.goes_on():
        if time.monotonic() > until:
            raise RunFailed(
                f"{kept.name} has not ended {timeout_s:g} s after it was asked to: {kept.runner} "
                "runs it"
            )
        time.sleep(kept.look_s)
    if (status := kept.record()["status"]) == "running":
        raise RunFailed(f"{kept.name} was not stopped: its coordinator ended without a word")
    print(f"{kept.name} is {status}")


def follow(run: str) -> str:
    """Show what happens in a run until nobody runs it any more; returns its status.

    Raises RequestError if there is no such run.
    """
    kept = _in_store(run.rstrip("/")) if "://" in run else _in_directory(directory_of(run))
    untold = (Ended,) if kept.record().get("kind") == SCRIPT else ()
    directory = kept.directory
    events = StoreEvents(kept.store) if directory is None else DirectoryEvents(directory / "events")
    teller = Teller(Lines(Console()), untold)
    while True:
        goes_on = kept.goes_on()  # asked first: what is written until then is shown
        for source, event in events.look():
            teller.tell(source, event)
        if not goes_on:
            status = kept.record()["status"]
            return "lost" if status in ("running", HANDING_OVER) else str(status)
        time.sleep(kept.look_s)


def _in_store(url: str) -> _Kept:
    return _Kept(url, open_store(url), None)


def _in_directory(directory: Path) -> _Kept:
    """A run by its directory, which may be the copy of one in a store."""
    if (url := read_record(directory).get("store")) is not None:
        return _in_store(str(url))
    return _Kept(str(directory), FileStore(directory), directory)


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
        kept = _in_store(place) if "://" in place else _in_directory(Path(place))
        if kept.store.stat(RECORD) is None and kept.store.stat(HEAD) is not None:
            return _unbegun(place, kept.runner)
        record = kept.record()
        status = record["status"]
        if status == "running" and kept.runner is None:
            status = "lost"
        result = record.get("result") or {}
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
