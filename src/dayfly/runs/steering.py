"""Runs under way, from another program or machine: where one is kept, and requests to it.

whoever asks    control/000000  <- scale, workers 8         and then looks at the run's events
coordinator     answers by an event: refused, and why; or the generation that has 8 workers
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from dayfly.dataclass_json import dump
from dayfly.errors import RequestError, RunFailed
from dayfly.life.control import Request, ask
from dayfly.life.leadership import LeaderWatch
from dayfly.runs.changes import Changes
from dayfly.runs.directory import RECORD, holder
from dayfly.runs.event_segments import read_segments
from dayfly.runs.events import told_events
from dayfly.runs.following import DirectoryEvents, StoreEvents
from dayfly.runs.home import USUAL, local_directory, record_in
from dayfly.runs.record import read_record
from dayfly.runs.result import HANDING_OVER
from dayfly.specs.events import ChangeAnswered, EpochTold, GenerationBegun, event_from
from dayfly.wire.stores import open_store
from dayfly.wire.stores.base import Store
from dayfly.wire.stores.files import FileStore

#: Who tells of epochs, as all workers tell the same.
_FIRST = "worker-0"
#: Seconds between two looks at a run: in a directory, in a store.
_LOOK_S, _FAR_LOOK_S = 0.2, 2.0
#: How long somebody who looks on waits for the next coordinator of a run that was handed over.
_SUCCESSOR_S = 300.0


class KeptRun:
    """A run, where it is kept: a directory, or a store, whose leader is asked instead of a lock.

    Args:
        name: as people name it.
        store: of the run.
        directory: None: a store keeps it.
    """

    def __init__(self, name: str, store: Store, directory: Path | None) -> None:
        self.name = name
        self.store = store
        self.directory = directory
        self._leader = LeaderWatch(store)

    @classmethod
    def named(cls, run: str) -> Self:
        """Returns the run of a directory, a URL, or the id of one below `runs/`.

        Raises:
            RequestError: there is none.
        """
        if "://" in run:
            return cls._at(run.rstrip("/"))
        return cls.in_directory(directory_of(run))

    @classmethod
    def in_directory(cls, directory: Path) -> Self:
        """Returns the run of a directory, which may be the copy of one in a store.

        Raises:
            RequestError: there is none.
        """
        if (url := read_record(directory).get("store")) is not None:
            return cls._at(str(url))
        return cls(str(directory), FileStore(directory), directory)

    @classmethod
    def _at(cls, url: str) -> Self:
        return cls(url, open_store(url), None)

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

    @property
    def status(self) -> str:
        """As of its record."""
        return str(self.record()["status"])

    @property
    def under_way(self) -> bool:
        """Whether it is neither over nor stopped, by its record."""
        return self.status in ("running", HANDING_OVER)

    def goes_on(self) -> bool:
        """Whether somebody runs it, or took it over from a coordinator that handed it over.

        Waits for the next coordinator for `_SUCCESSOR_S`.
        """
        until_s = time.monotonic() + _SUCCESSOR_S
        while self.runner is None:
            if self.status != HANDING_OVER or time.monotonic() > until_s:
                return False
            time.sleep(self.look_s)
        return True

    def check_run(self) -> None:
        """Raise RequestError if nobody runs it, though it is under way."""
        if not self.goes_on():
            raise RequestError(
                f"no process runs {self.name}: its coordinator was killed, or the next one did not "
                f"begin; dayfly train --resume {self.name} goes on with it"
            )

    def record(self) -> Mapping[str, Any]:
        """Its `run.json`. Raises RequestError if there is none."""
        return record_in(self.store) if self.directory is None else read_record(self.directory)

    def events(self) -> DirectoryEvents | StoreEvents:
        """What happens in it, from its beginning."""
        if self.directory is None:
            return StoreEvents(self.store)
        return DirectoryEvents(self.directory / "events")

    def last_epoch(self) -> EpochTold | None:
        """The latest epoch that its events tell of; None: they tell of none."""
        if self.directory is None:
            records = (
                record
                for _, segment in read_segments(self.store, last_first=True)
                for of, record in reversed(segment)
                if of == _FIRST and record.get("kind") == EpochTold.kind
            )
            told = (event_from(_FIRST, one, str(self.store)) for one in records)
            return next((one for one in told if isinstance(one, EpochTold)), None)
        file, last = self.directory / "events" / f"{_FIRST}.jsonl", None
        for one in told_events(file, [EpochTold.kind]) if file.exists() else ():
            last = one if isinstance(one, EpochTold) else last
        return last

    @contextmanager
    def asking(self, asked: str) -> Iterator[None]:
        """While a request is left, and waited for: Ctrl-C says that it stays.

        Args:
            asked: what the run is to have done, as of `wait`.
        """
        try:
            yield
        except KeyboardInterrupt:
            words = f"the request stays: {self.name} is still to be {asked}"
            raise KeyboardInterrupt(words) from None

    def wait(self, asked: str, until: Callable[[], bool], timeout_s: float) -> None:
        """Waits until the run has done what it was asked to, or nobody runs it any more.

        Args:
            asked: what it was asked to have done, such as `ended`.
            until: whether it has.
            timeout_s: longest wait.

        Raises:
            RunFailed: it goes on without having done it, after `timeout_s`.
        """
        ends_s = time.monotonic() + timeout_s
        while True:
            goes_on = self.goes_on()  # asked first: what is written until then is seen
            if until() or not goes_on:
                return
            if time.monotonic() > ends_s:
                raise RunFailed(
                    f"{self.name} has not {asked} {timeout_s:g} s after it was asked to, and may "
                    f"still do so: {self.runner} runs it"
                )
            time.sleep(self.look_s)


def directory_of(run: str) -> Path:
    """Returns the directory of a run that is named by it, or by its id if it is below `runs/`.

    Raises:
        RequestError: there is none.
    """
    for directory in (Path(run).expanduser(), USUAL / run, *_called(run)):
        if (directory / RECORD).is_file():
            return directory.absolute()
    raise RequestError(
        f"there is no run {run!r}: give its directory, its URL in a store, or the id of one below "
        f"{USUAL.absolute()}"
    )


def to_read(run: str) -> Path:
    """Returns the directory in which a run can be read; of one in a store, that of a copy.

    Args:
        run: its directory, URL or id.

    Raises:
        RequestError: there is no such run, or it cannot be copied.
    """
    if "://" in run:
        return local_directory(run)
    return Path(run) if Path(run).exists() else directory_of(run)


def stop(run: str, timeout_s: float) -> str:
    """Asks a run to end in order, with a checkpoint, and waits until it has.

    Args:
        run: its directory, URL or id.
        timeout_s: longest wait for its end.

    Returns:
        What became of it, in a sentence.

    Raises:
        RequestError: nobody runs it.
        RunFailed: it has not ended in time.
    """
    kept = KeptRun.named(run)
    if not kept.under_way:
        return f"{kept.name} is {kept.status} already"
    kept.check_run()
    with kept.asking("ended"):
        ask(kept.store, Request(kind="stop"))
        kept.wait("ended", lambda: False, timeout_s)
    if kept.status == "running":
        raise RunFailed(f"{kept.name} was not stopped: its coordinator ended without a word")
    return f"{kept.name} is {kept.status}"


def scale(run: str, changes: Changes, timeout_s: float) -> str:
    """Asks a run to go on by another plan, and waits until it does.

    Args:
        run: its directory, URL or id.
        changes: settings from the next boundary between two steps on.
        timeout_s: longest wait.

    Returns:
        From which step on it has which plan, in a sentence.

    Raises:
        RequestError: nobody runs it, or its coordinator refuses the change.
        RunFailed: it ended before the change, or has not changed in time.
    """
    kept = KeptRun.named(run)
    if not kept.under_way:
        raise RequestError(
            f"{kept.name} is {kept.status}: only a run under way changes its plan; "
            f"dayfly train --resume {kept.name} takes other settings, too"
        )
    kept.check_run()
    events = kept.events()
    for _ in events.look():
        pass  # what was before the request
    answers: list[GenerationBegun | str] = []
    with kept.asking("changed"):
        number = ask(kept.store, Request(kind="scale", changes=dump(changes.given)))
        kept.wait("changed", lambda: _answered(events, number, answers), timeout_s)
    match answers:
        case [str(refused)]:
            raise RequestError(f"{kept.name}: {refused}")
        case [GenerationBegun() as begun]:
            return f"{kept.name} from step {begun.first_step} on: {begun.changes}"
    if kept.status == "running":
        raise RunFailed(
            f"the coordinator of {kept.name} was killed before the plan could change: "
            f"dayfly train --resume {kept.name} carries it out"
        )
    raise RunFailed(f"{kept.name} was {kept.status} before its plan could change")


def _answered(
    events: DirectoryEvents | StoreEvents,
    number: int,
    answers: list[GenerationBegun | str],
) -> bool:
    """Whether the answer to a request came; it is put among the answers."""
    for _, event in events.look():
        match event:
            case GenerationBegun(request=request) if request == number:
                answers.append(event)
            case ChangeAnswered(request=request, refused=str(refused)) if request == number:
                answers.append(refused)
    return bool(answers)


def _called(run: str) -> Iterator[Path]:
    """Directories below `runs/` of the run with this id, whatever they are called."""
    for directory in sorted(USUAL.iterdir()) if USUAL.is_dir() else ():
        if (directory / RECORD).is_file():
            try:
                found = read_record(directory).get("run_id") == run
            except RequestError:
                continue  # a damaged one has no id
            if found:
                yield directory
