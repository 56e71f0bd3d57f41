"""The process of the command: invokes workers, starts dead ones again, commits checkpoints.

It knows functions, messages and checkpoints, nothing of models: what a worker is told and what its
records mean is the caller's, `runs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dayfly.errors import RunFailed
from dayfly.life import checkpoints
from dayfly.life.checkpoints import Checkpoint, Part
from dayfly.life.deaths import Deaths
from dayfly.life.faults import Faults
from dayfly.life.platforms.base import Ended, Invocation, Outcome, Platform
from dayfly.life.reports import Report, read_reports
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, Key
from dayfly.wire.store import FileStore

#: Longest sleep of the coordinator's loop, in seconds.
_TICK_S = 0.05
#: How long workers have to stop in order, with a checkpoint, when asked to, in seconds.
STOP_GRACE_S = 10.0
#: How long functions may take to be gone after they were killed, in seconds.
_END_TIMEOUT_S = 5.0

#: All workers are asked to stop after their step, by the presence of this message.
STOP = Key(FOREVER, "stop", COORDINATOR, EVERYONE)


def trimmed(step: int) -> Key:
    """The message that says: the log before `step` is gone, so there is room again."""
    return Key(step, "trimmed", COORDINATOR, EVERYONE)


class Audience(Protocol):
    """Who wants to know what happens in the life of a run."""

    def invoked(self, rank: int, invocation: Invocation) -> None:
        """A function was started."""

    def ended(self, rank: int, ended: Ended, *, death: bool) -> None:
        """A function ended: it returned, or it died."""

    def reported(self, report: Report) -> None:
        """A worker sent records."""

    def committed(self, checkpoint: Checkpoint) -> None:
        """A checkpoint counts from now on."""

    def stopping(self) -> None:
        """The workers were asked to stop."""


@dataclass(slots=True)
class _Worker:
    rank: int
    attempt: int = -1
    started_from: int = 0
    caught_up: bool = False
    status: str | None = None


class Coordinator:
    """One life of a run, from the checkpoint it starts from to its end.

    invocation: the call of a rank's attempt, from (rank, attempt, the checkpoint to start from, the
    step before which the log is trimmed). stop_asked: whether to end the
    run in order, at the next step.
    """

    def __init__(
        self,
        *,
        platform: Platform,
        channel: Channel,
        store: FileStore,
        world_size: int,
        checkpoint: Checkpoint,
        invocation: Callable[[int, int, Checkpoint, int], Invocation],
        stop_asked: Callable[[], bool],
        audience: Audience,
        faults: Faults,
    ) -> None:
        self._platform = platform
        self._channel = channel
        self._read_next_s = 0.0
        self._store = store
        self._invocation = invocation
        self._stop_asked = stop_asked
        self._audience = audience
        self._faults = faults
        self._workers = [_Worker(rank) for rank in range(world_size)]
        self._checkpoint = checkpoint
        self._trimmed_step = checkpoint.step
        # Checkpoints whose parts are coming in: step -> rank -> what it wrote.
        self._pending: dict[int, dict[int, tuple[Part, ...]]] = {}
        self._deaths = Deaths()
        self._frontier = checkpoint.step
        self._stop_by: float | None = None
        # "done" or "stopped", once the checkpoint is committed after which the workers end so.
        self._over: str | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The latest committed checkpoint."""
        return self._checkpoint

    def run(self) -> str:
        """Until all workers are done or stopped; returns which: "done" or "stopped".

        Raises RunFailed with the cause when a cause killed three times in a row.
        """
        try:
            return self._run()
        finally:
            self._end_all()

    def _run(self) -> str:
        self._faults.at(self._checkpoint.step, "begin")
        for worker in self._workers:
            self._invoke(worker)
        self._faults.at(self._checkpoint.step, "invoked")
        while any(worker.status is None for worker in self._workers):
            ended = self._platform.wait(_TICK_S)
            # What ended has said all by now.
            self._read_reports(at_once=bool(ended))
            for one in ended:  # all of them first, as the run may end with any of them
                self._audience.ended(_rank(one), one, death=one.outcome is not Outcome.RETURNED)
            for one in ended:
                self._note_end(one)
            self._trim()
            if self._stop_overdue():
                return "stopped"
        self._read_reports(at_once=True)
        statuses = {worker.status for worker in self._workers}
        return "done" if statuses == {"done"} else "stopped"

    def _end_all(self) -> None:
        """Kill what still runs, after a failure or a stop that was not heeded, and meter it."""
        for function in self._platform.running():
            self._platform.cancel(function)
        until = time.monotonic() + _END_TIMEOUT_S
        while self._platform.running() and time.monotonic() < until:
            try:
                for ended in self._platform.wait(_TICK_S):
                    self._audience.ended(_rank(ended), ended, death=False)
            except RunFailed:
                time.sleep(_TICK_S)  # it starts nothing any more, but still tells what ended

    def _invoke(self, worker: _Worker) -> None:
        worker.attempt += 1
        worker.started_from = self._checkpoint.step
        worker.caught_up = False
        invocation = self._invocation(
            worker.rank, worker.attempt, self._checkpoint, self._trimmed_step
        )
        self._audience.invoked(worker.rank, invocation)
        self._platform.invoke(invocation)

    def _note_end(self, ended: Ended) -> None:
        worker = self._workers[_rank(ended)]
        if ended.outcome is not Outcome.RETURNED:
            cause = self._deaths.note(ended, self._frontier)
            if cause is not None:
                raise RunFailed(cause)
        elif ended.result is not None and ended.result["status"] != "handed over":
            worker.status = ended.result["status"]
            return
        if self._over is not None:
            # It died after its last part: its peers are gone, and nothing is left to be done.
            worker.status = self._over
            return
        self._faults.at(self._checkpoint.step, "again")
        self._invoke(worker)

    def _read_reports(self, *, at_once: bool) -> None:
        """Act on what workers say; if not at once, no more often than listings are cheap."""
        if not at_once and time.monotonic() < self._read_next_s:
            return
        self._read_next_s = time.monotonic() + self._channel.abilities.list_every_s
        for report in read_reports(self._channel):
            for record in report.records:
                self._note(report, record)
            self._audience.reported(report)

    def _note(self, report: Report, record: Mapping[str, Any]) -> None:
        worker = self._workers[report.rank]
        match record["kind"]:
            case "caught up":
                worker.caught_up = worker.caught_up or report.attempt == worker.attempt
                self._frontier = max(self._frontier, record["step"])
            case "step":
                self._frontier = max(self._frontier, record["step"] + 1)
                self._faults.at(record["step"], "step")
            case "part":
                parts = tuple(Part(**part) for part in record["parts"])
                pending = self._pending.setdefault(record["step"], {})
                pending[report.rank] = parts
                if len(pending) == len(self._workers):
                    self._commit(record["step"], pending)
                    self._over = record["then"]

    def _commit(self, step: int, pending: Mapping[int, tuple[Part, ...]]) -> None:
        del self._pending[step]
        if step <= self._checkpoint.step:
            return
        self._faults.at(step, "commit")
        parts = [part for rank in sorted(pending) for part in pending[rank]]
        self._checkpoint = checkpoints.commit(self._store, step, parts)
        self._faults.at(step, "committed")
        self._audience.committed(self._checkpoint)

    def _trim(self) -> None:
        """Drop the log before the checkpoint, unless a worker still reads it."""
        step = self._checkpoint.step
        if step <= self._trimmed_step or any(
            worker.status is None and not worker.caught_up and worker.started_from < step
            for worker in self._workers
        ):
            return
        self._channel.trim(step)
        self._faults.at(step, "trim")
        checkpoints.discard_others(self._store, self._checkpoint)
        self._trimmed_step = step
        self._channel.put_bytes(trimmed(step), b"")

    def _stop_overdue(self) -> bool:
        """Pass a wish to stop on to the workers; whether they had their time."""
        if self._stop_by is None:
            if self._stop_asked():
                self._channel.put_bytes(STOP, b"")
                self._audience.stopping()
                self._stop_by = time.monotonic() + STOP_GRACE_S
            return False
        return time.monotonic() > self._stop_by


def _rank(ended: Ended) -> int:
    """Functions are named `worker-<rank>`."""
    return int(ended.invocation.function.rpartition("-")[2])
