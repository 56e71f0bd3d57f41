"""A job's callbacks in the coordinator: those that decide are deciders, those that hear listeners.

on_epoch_end    a decider: asked at the boundary, its answer is stored     (deciders.py)
on_event        a listener: hears from a queue, in a thread of its own     (listeners.py)
on_run_start    before any function is started; on_run_end: with the results, once all is heard
"""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

from dayfly.callbacks.base import Callback, overrides
from dayfly.callbacks.loggers import logger
from dayfly.callbacks.monitor import Monitor
from dayfly.callbacks.usual import EarlyStopping
from dayfly.errors import RequestError, RunFailed, in_short
from dayfly.job import Job
from dayfly.runs.changes import Changes
from dayfly.runs.deciders import Boundary, Decider, Decision
from dayfly.runs.home import KEPT
from dayfly.runs.keywords import ChangeKeywords, check_keywords, shows
from dayfly.runs.listeners import Listener
from dayfly.runs.result import Result
from dayfly.runs.settings import Settings
from dayfly.specs.events import Event
from dayfly.training.logged import TRAIN, VAL
from dayfly.training.replica import notes_learning_rates

Record = dict[str, Any]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LONGEST_REASON = 100


class View:
    """The run as its callbacks see it: a `RunView`. Its history may be read by any thread.

    Args:
        run_id: the run's.
        directory: of its files.
        job: what is trained.
        check_changes: raises RequestError for changes of the plan that cannot be.
    """

    def __init__(
        self,
        run_id: str,
        directory: Path,
        job: Job,
        check_changes: Callable[[Changes], None],
    ) -> None:
        self.run_id, self.directory, self.job = run_id, directory, job
        self._check_changes = check_changes
        self.result: Result | None = None
        self._history: dict[int, Mapping[str, Any]] = {}
        self._asked: list[Decision] | None = None
        self._asking = 0  # the thread that asks

    @property
    def history(self) -> list[Record]:
        """Copies of the records so far, in order."""
        return [dict(record) for _, record in sorted(self._history.items())]

    def note(self, history: Mapping[int, Mapping[str, Any]]) -> None:
        """The epochs that are known by now, by number."""
        self._history = dict(history)  # another one: a thread may read the former

    @contextmanager
    def asked(self, boundary: Boundary) -> Iterator[list[Decision]]:
        """While a callback may decide; gives what it decided."""
        self._asking = threading.get_ident()
        self._asked, before = [], self._history
        self.note({int(one["epoch"]): one for one in boundary.history})
        try:
            yield self._asked
        finally:
            self._asked, self._history = None, before

    def stop(self, reason: str = "callback") -> None:
        """Ends the run at the boundary; see `RunView`."""
        if not isinstance(reason, str) or not 0 < len(reason.strip()) <= _LONGEST_REASON:
            raise RequestError(f"run.stop({reason!r}): give a reason of 1 to 100 characters")
        self._may_decide("stop").append(Decision(reason))

    def keep(self, name: str) -> None:
        """Keeps the weights of the boundary; see `RunView`."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RequestError(
                f"run.keep({name!r}): give a name of letters, digits, '-', '_' and '.', such as "
                "epoch-3"
            )
        self._may_decide("keep").append(Decision(keep=(f"{KEPT}/{name}.safetensors",)))

    @shows(ChangeKeywords)
    def scale(self, **changes: Unpack[ChangeKeywords]) -> None:
        """Changes the plan from the boundary on; see `RunView`."""
        decided = self._may_decide("scale")
        check_keywords(changes, Changes, beside=View.scale)
        asked = Changes(**changes)
        self._check_changes(asked)
        decided.append(Decision(changes=asked))

    def _may_decide(self, what: str) -> list[Decision]:
        """What is decided at this boundary so far. Raises RequestError if it is none."""
        if self._asked is None or threading.get_ident() != self._asking:
            raise RequestError(
                f"run.{what} was called outside of on_epoch_end, where nothing can be decided: "
                "override on_epoch_end and call it there"
            )
        return self._asked


class Callbacks:
    """A run's callbacks.

    Args:
        job: its own.
        settings: that ask for more: early stopping, loggers.
        view: of the run.
        note: told of one that is switched off.
        logged: names of the values that the job's step logs.

    Raises:
        RequestError: a logger's package is missing, or a value is watched that nobody measures.
    """

    def __init__(
        self,
        job: Job,
        settings: Settings,
        view: View,
        note: Callable[[str], None],
        logged: Sequence[str] = (),
    ) -> None:
        self._all = [*job.callbacks]
        if settings.patience is not None:
            monitor = Monitor.of(settings.monitor, settings.mode)
            self._all.append(EarlyStopping(monitor.name, settings.patience, monitor.mode))
        self._all += [logger(text) for text in settings.log]
        self._view, self._note = view, note
        self._off: set[int] = set()
        self._failed: RunFailed | None = None
        for flag, monitor in watched(job, settings):
            check_watched(flag, monitor, job, logged)

    @property
    def deciders(self) -> list[Decider]:
        """Those that are asked at a boundary."""
        asked = [
            (number, one) for number, one in enumerate(self._all) if overrides(one, "on_epoch_end")
        ]
        return [_Asked(self, one, f"callback {n} {_named(one)}") for n, one in asked]

    @property
    def listeners(self) -> list[Listener]:
        """Those that hear of events."""
        return [self._listener(one) for one in self._all if overrides(one, "on_event")]

    def start(self) -> None:
        """Calls `on_run_start`. Raises RunFailed if one fails that is not optional."""
        for one in self._all:
            self._call(one, "on_run_start")

    def end(self, result: Result) -> None:
        """Calls `on_run_end` of all. Raises RunFailed with the first that fails, at the end."""
        self._view.result = result
        first: RunFailed | None = None
        for one in self._all:
            try:
                self._call(one, "on_run_end")
            except RunFailed as failed:
                first = first or failed
        if first is not None:
            raise first

    def check(self) -> None:
        """Raises RunFailed if one failed in its own thread."""
        if self._failed is not None:
            raise self._failed

    def decided(self, callback: Callback, boundary: Boundary) -> Decision | None:
        """What a callback decides at a boundary."""
        with self._view.asked(boundary) as found:
            self._call(callback, "on_epoch_end", dict(boundary.history[-1]))
        return Decision.of_all(found) if found else None

    def _listener(self, callback: Callback) -> Listener:
        def listen(source: str, event: Event) -> None:
            try:
                self._call(callback, "on_event", event)
            except RunFailed as failed:
                self._failed = self._failed or failed

        listen.__name__ = type(callback).__name__
        return listen

    def _call(self, callback: Callback, method: str, *given: Any) -> None:
        if id(callback) in self._off:
            return
        try:
            getattr(callback, method)(self._view, *given)
        except (Exception, SystemExit) as error:
            what = f"callback {type(callback).__name__} failed in {method}"
            self._off.add(id(callback))
            if callback.optional:
                self._note(f"{what}, and is switched off: {in_short(error)}")
                return
            own = error.__traceback__ and error.__traceback__.tb_next  # without this function
            text = "".join(traceback.format_exception(error.with_traceback(own)))
            raise RunFailed(f"{what}:\n{text.rstrip()}") from error


class _Asked(Decider):
    """A callback that is asked at boundaries."""

    def __init__(self, callbacks: Callbacks, callback: Callback, name: str) -> None:
        self._callbacks, self._callback, self._name = callbacks, callback, name

    @property
    def name(self) -> str:
        return self._name

    def decide(self, boundary: Boundary) -> Decision | None:
        return self._callbacks.decided(self._callback, boundary)


def watched(job: Job, settings: Settings) -> Iterator[tuple[str, Monitor]]:
    """The values of the history that decide about a run: who names them, and what they are."""
    if settings.keep is not None or settings.patience is not None:
        yield "--monitor", Monitor.of(settings.monitor, settings.mode)
    for one in job.callbacks:
        if isinstance(one, EarlyStopping):
            yield "EarlyStopping: monitor", one.monitor


def check_watched(flag: str, monitor: Monitor, job: Job, logged: Sequence[str] = ()) -> None:
    """Raises RequestError if a value is in no record of the history.

    Args:
        flag: that names it.
        monitor: of the value.
        job: of the run.
        logged: names of the values that its step logs.
    """
    known = ["train_loss", "val_loss", "val_accuracy", *job.metrics]
    known += [prefix + one for one in logged for prefix in (TRAIN, VAL)]
    if notes_learning_rates(job):
        known.append("lr")
    if (name := monitor.name) not in known:
        raise RequestError(f"{flag} {name}: the history has {', '.join(known)}: give one of these")


def _named(callback: Callback) -> str:
    """All that a callback of dayfly's depends on; the digest of the job says it of others."""
    own = isinstance(callback, EarlyStopping)
    return repr(callback) if own else f"{type(callback).__module__}.{type(callback).__qualname__}"
