"""Reads what a run left in its directory, or has written so far."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dayfly.errors import RequestError
from dayfly.runs import events
from dayfly.runs.events import Json
from dayfly.runs.record import SCRIPT


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """A run's files, as parsed.

    record: `run.json`. running: whether a coordinator runs it right now. history, bill: None until
    the run has ended once. coordinator, workers: their events, in order of arrival; workers by
    rank. cut_lines: event lines that could not be read: a kill may cut the last one short.
    """

    directory: Path
    record: Json
    running: bool
    history: Json | None
    bill: Json | None
    coordinator: tuple[Json, ...]
    workers: Mapping[int, tuple[Json, ...]]
    cut_lines: int

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Raises RequestError if the directory holds no run, or one that cannot be read."""
        if not (directory / "run.json").is_file():
            raise RequestError(
                f"{str(directory)!r} holds no run to report: it has no run.json; "
                "name a run's directory, such as runs/<run id>"
            )
        try:
            return cls._read(directory)
        except OSError as error:
            raise RequestError(f"{error.filename} cannot be read: {error.strerror}") from error

    @classmethod
    def _read(cls, directory: Path) -> Self:
        record = tree_of(directory / "run.json")
        assert record is not None
        coordinator, cut_lines = events.read(directory / "events" / "coordinator.jsonl")
        workers = {}
        for file in events.worker_files(directory / "events"):
            rank = file.stem.removeprefix("worker-")
            if rank.isdecimal():
                workers[int(rank)], cut = events.read(file)
                cut_lines += cut
        return cls(
            directory=directory,
            record=record,
            running=record.get("status") == "running" and _is_locked(directory / "lock"),
            history=tree_of(directory / "history.json"),
            bill=tree_of(directory / "bill.json"),
            coordinator=coordinator,
            workers=dict(sorted(workers.items())),
            cut_lines=cut_lines,
        )

    @property
    def status(self) -> str:
        """`run.json`'s, but "interrupted" for a run whose coordinator died without a word."""
        status = str(self.record.get("status"))
        return "interrupted" if status == "running" and not self.running else status

    @property
    def of_script(self) -> bool:
        """Whether a script was run: it has lives of all workers, and no steps that are known."""
        return self.record.get("kind") == SCRIPT

    @property
    def result(self) -> Json:
        """The run's results; empty until it has ended once."""
        return self.record.get("result") or {}


def tree_of(file: Path) -> Json | None:
    """A JSON object, or None if the file is not there."""
    try:
        tree = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from error
    if not isinstance(tree, dict):
        raise RequestError(f"{file} cannot be read: it holds no JSON object")
    return tree


def _is_locked(file: Path) -> bool:
    """Whether a process runs the run: it holds this lock until its end, however that comes."""
    try:
        with file.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
