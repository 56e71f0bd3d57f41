"""`dayfly runs rm`: removes what dayfly wrote of a run, and nothing else.

    lock of the run | run.json must be readable | what dayfly wrote | run.json | lock | directory

A kill in the middle leaves a directory with `run.json`, which can be removed again. Files that are
not dayfly's stay, and the directory with them; links are removed, and never followed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dayfly import owned
from dayfly.errors import RequestError
from dayfly.life.leadership import LeaderWatch
from dayfly.runs.directory import LOCK, RECORD, is_ours, locked
from dayfly.runs.home import record_in
from dayfly.runs.record import read_record
from dayfly.wire.stores import open_store


@dataclass(frozen=True, slots=True)
class Removable:
    """What may be removed.

    Attributes:
        run_id: of the run.
        original: URL of the run in a store, if this is only a copy of it; None: it is the run.
    """

    run_id: str
    original: str | None = None


def removable(run: str | Path) -> Removable:
    """Checks that a run may be removed.

    Args:
        run: its directory, or its URL in a store.

    Returns:
        The run, and what stays of it elsewhere.

    Raises:
        RequestError: there is no run, somebody runs it, or its directory is another user's, or a
            link.
    """
    if isinstance(run, str) and "://" in run:
        store = open_store(run.rstrip("/"))
        record = record_in(store)
        head = LeaderWatch(store).look()
        if head is not None:
            raise RequestError(f"{run} is being run by {head.where}: stop it first (dayfly stop)")
        run_id = str(record["run_id"])
        if store.url.rstrip("/").rpartition("/")[2] != run_id:
            raise RequestError(
                f"{run} is no place that dayfly made for the run {run_id} alone: remove it there"
            )
        return Removable(run_id)
    directory = Path(run)
    with owned.opened(directory) as fd:
        if fd is None:
            raise RequestError(f"{str(directory)!r} is no directory, or a link: name the directory")
        if os.fstat(fd).st_uid != os.geteuid():
            raise RequestError(f"{str(directory)!r} belongs to another user, who can remove it")
    record = read_record(directory)
    with locked(directory):
        return Removable(str(record["run_id"]), record.get("store"))


def remove_run(run: str | Path) -> list[str]:
    """Removes a run.

    Args:
        run: its directory, or its URL in a store. Of a run in a store the directory is a copy,
            and goes alone.

    Returns:
        Names of files in the directory that stay, as dayfly did not write them.

    Raises:
        RequestError: as of `removable`, or something cannot be removed.
    """
    removable(run)
    if isinstance(run, str) and "://" in run:
        store = open_store(run.rstrip("/"))
        store.clear()
        return []
    directory = Path(run)
    with locked(directory), owned.opened(directory) as fd:
        if fd is None:
            raise RequestError(f"{str(directory)!r} was removed meanwhile")
        last = (RECORD, LOCK)
        for name in [one for one in sorted(os.listdir(fd)) if one not in last]:
            if is_ours(name, of_a_run=True):
                owned.remove_entry(name, fd)
        left = [one for one in sorted(os.listdir(fd)) if one not in last]
        stuck = [one for one in left if is_ours(one, of_a_run=True)]
        if stuck:
            raise RequestError(f"{directory / stuck[0]} cannot be removed: check whose it is")
        for name in last:
            owned.remove_entry(name, fd)
    with suppress(OSError):
        directory.rmdir()
    return left
