"""The process of the command: invokes workers, starts dead ones again, commits checkpoints.

Where nothing is kept from which a worker could catch up alone, it ends all of them when one ends
before its time, and they start anew together; see `rollback`. It knows functions, messages and
checkpoints, nothing of models: what a worker is told and what its records mean is the caller's,
`runs`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dayfly.errors import RunFailed, SureToFail, WireError
from dayfly.life import checkpoints
from dayfly.life.attempts import WorkerState, may_trim, status_after
from dayfly.life.audience import Audience
from dayfly.life.commits import Checkpoint, Part, Uncommitted
from dayfly.life.ending import FOLLOWED_S, TICK_S, kill_all
from dayfly.life.faults import Faults
from dayfly.life.platforms.base import Ended, Invocation, Outcome, Platform
from dayfly.life.reports import Report, read_reports
from dayfly.life.rollback import (
    ROLLED_BACK,
    Past,
    by_themselves,
    judge,
    own_deaths,
    patience_s,
    redone_steps,
)
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, EVERYONE, FOREVER, Key
from dayfly.wire.stores.base import Store

#: How long workers have to stop in order, with a checkpoint, when asked to, in seconds.
STOP_GRACE_S = 10.0

#: How a worker ends that found out why the run cannot go on: all find it out in the same step.
FAILED = "failed"
#: How long the others then have to end, too, and to say what they had to, in seconds.
FAILED_GRACE_S = 5.0

#: All workers are asked to stop after their step, by the presence of this message.
STOP = Key(FOREVER, "stop", COORDINATOR, EVERYONE)


def trimmed(step: int) -> Key:
    """The message that says: the log before `step` is gone, so there is room again."""
    return Key(step, "trimmed", COORDINATOR, EVERYONE)


class Coordinator:
    """One generation of a run, from the checkpoint it starts from to its end, or to a rollback.

    replays: whether a worker that starts again catches up alone. past: the generations before it
    in the same life. invocation: the call of a rank's attempt, from (rank, attempt, the checkpoint
    to start from, the step before which the log is trimmed). stop_asked: whether to end the run in
    order, at the next step.
    """

    def __init__(
        self,
        *,
        platform: Platform,
        channel: Channel,
        store: Store,
        world_size: int,
        replays: bool,
        past: Past,
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
        self._replays = replays
        self._past = past
        self._workers = [
            WorkerState(rank, past.attempts.get(rank, -1)) for rank in range(world_size)
        ]
        self._checkpoint = checkpoint
        self._trimmed_step = checkpoint.step
        self._uncommitted = Uncommitted(world_size, checkpoint.step)
        self._reached = checkpoint.step  # completed steps, in this generation
        self._ended: list[Ended] = []  # and nothing has followed from it yet
        self._killed: set[str] = set()  # functions that this coordinator ended
        self._stop_by: float | None = None
        self._failure: str | None = None  # as the first worker says that found it out
        self._fail_by = math.inf
        # "done" or "stopped", once the checkpoint is committed after which the workers end so.
        self._over: str | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The latest committed checkpoint."""
        return self._checkpoint

    def run(self) -> str:
        """Until all workers are done or stopped, or have to start anew from the checkpoint.

        Returns which: "done", "stopped" or `ROLLED_BACK`. Raises RunFailed with the cause if
        `deaths` says that the run is to be given up.
        """
        try:
            return self._run()
        except WireError as failure:
            if self._replays:
                raise
            return self._roll_back(failure)
        finally:
            self._end_all()

    def _run(self) -> str:
        self._faults.at(self._checkpoint.step, "begin")
        begins_at = time.monotonic() + self._past.pause_s
        for worker in self._workers:
            worker.start_at = begins_at
        self._start_due()
        self._faults.at(self._checkpoint.step, "invoked")
        while any(worker.status is None for worker in self._workers):
            self._ended += self._platform.wait(TICK_S)
            # What ended has said all by now.
            self._read_reports(at_once=bool(self._ended))
            self._note_failures()
            if self._replays:
                self._restart_ended()
            elif self._note_returned():
                return self._roll_back()
            self._trim()
            if self._stop_overdue():
                return "stopped"
            self._start_due()
        self._read_reports(at_once=True)
        if self._failure is not None:
            raise SureToFail(self._failure)
        statuses = {worker.status for worker in self._workers}
        return "done" if statuses == {"done"} else "stopped"

    def _note_failures(self) -> None:
        """Raise RunFailed with what a worker found out, once the others had time to end, too."""
        for one in self._ended:
            if self._failure is None and one.result and one.result["status"] == FAILED:
                self._failure = one.result["error"]
                self._fail_by = time.monotonic() + FAILED_GRACE_S
        if self._failure is not None and time.monotonic() > self._fail_by:
            raise SureToFail(self._failure)

    def _restart_ended(self) -> None:
        """Tell of all that ended first, as the run may end with any of them."""
        ended, self._ended = self._ended, []
        for one in ended:
            self._audience.ended(_rank(one), one, death=one.outcome is not Outcome.RETURNED)
        for one in ended:
            self._note_end(one)

    def _note_returned(self) -> bool:
        """Note workers that ended in their time; whether there are others."""
        for one in list(self._ended):
            worker = self._workers[_rank(one)]
            worker.status = status_after(one, self._over)
            if worker.status is None:
                continue
            self._ended.remove(one)
            self._audience.ended(worker.rank, one, death=one.outcome is not Outcome.RETURNED)
        return bool(self._ended)

    def _roll_back(self, failure: WireError | None = None) -> str:
        """End all workers; the next generation starts from the checkpoint.

        failure: of the channel itself, if it was that. Raises RunFailed as `run` does.
        """
        try:
            try:
                if failure is None:
                    self._wait_for_others()
                kill_all(self._platform, self._ended, self._killed, FOLLOWED_S)
                self._read_reports(at_once=True)  # what they had said: parts, steps, traffic
            except WireError as error:
                failure = failure or error
                kill_all(self._platform, self._ended, self._killed, FOLLOWED_S)
        finally:
            early = by_themselves(self._ended, self._killed)
            deaths = own_deaths(early, explained=failure is not None)
            for one in self._ended:
                death = any(one is other for other in deaths)
                self._audience.ended(_rank(one), one, death=death)
            self._ended = []
        if self._platform.running():
            left = ", ".join(self._platform.running())
            raise RunFailed(f"{left} did not end within {FOLLOWED_S:g} s of the kill")
        if self._failure is not None:
            raise SureToFail(self._failure)
        if self._over is not None:
            return self._over
        why = judge(early, failure, self._checkpoint.step, self._past, time.monotonic())
        if self._stop_by is not None or self._stop_asked():
            return "stopped"  # to start all again would only redo what was done
        self._faults.at(self._checkpoint.step, "roll back")
        step, world_size = self._checkpoint.step, len(self._workers)
        redone = redone_steps(early, self._reached, step, world_size)
        self._audience.rolled_back(self._reached, step, redone, why)
        return ROLLED_BACK

    def _wait_for_others(self) -> None:
        """Give them time, if there is anything to wait for; not more than a stop leaves them."""
        began = time.monotonic()
        while self._platform.running() and not self._stop_overdue():
            if time.monotonic() - began > patience_s(
                self._ended, self._checkpoint.step, self._may_come
            ):
                return
            self._ended += self._platform.wait(TICK_S)
            self._read_reports(at_once=False)

    def _may_come(self, step: int) -> bool:
        """Whether a checkpoint can still be committed: those whose parts are missing live."""
        living = {_number(function) for function in self._platform.running()}
        return self._uncommitted.may_come(step, living)

    def _end_all(self) -> None:
        """Kill what still runs, after a failure or a stop that was not heeded, and meter it."""
        try:
            kill_all(self._platform, self._ended, self._killed)
        finally:
            for ended in self._ended:
                self._audience.ended(_rank(ended), ended, death=False)
            self._ended = []

    def _start_due(self) -> None:
        """Start the functions whose time has come; while the run is to stop, all of them."""
        for worker in self._workers:
            if worker.start_at is not None and (
                self._stop_by is not None or worker.start_at <= time.monotonic()
            ):
                self._invoke(worker)

    def _invoke(self, worker: WorkerState) -> None:
        worker.starts(self._checkpoint.step)
        self._past.attempts[worker.rank] = worker.attempt
        invocation = self._invocation(
            worker.rank, worker.attempt, self._checkpoint, self._trimmed_step
        )
        self._audience.invoked(worker.rank, invocation)
        self._platform.invoke(invocation)

    def _note_end(self, ended: Ended) -> None:
        worker = self._workers[_rank(ended)]
        worker.status = status_after(ended, self._over)
        if worker.status is not None:
            return
        pause_s = 0.0
        if ended.outcome is not Outcome.RETURNED:
            now = time.monotonic()
            decision = self._past.deaths.note(ended, self._past.frontier, now)
            if decision.failure is not None:
                raise decision.failure
            pause_s = decision.pause_s
        self._faults.at(self._checkpoint.step, "again")
        worker.start_at = time.monotonic() + pause_s

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
                self._note_reached(record["step"])
            case "step":
                self._note_reached(record["step"] + 1)
                self._faults.at(record["step"], "step")
            case "part":
                parts = tuple(Part(**part) for part in record["parts"])
                whole = self._uncommitted.add(record["step"], report.rank, parts)
                if whole is not None:
                    self._commit(record["step"], whole, record["then"])

    def _note_reached(self, step: int) -> None:
        self._reached = max(self._reached, step)
        self._past.frontier = max(self._past.frontier, step)

    def _commit(self, step: int, parts: Sequence[Part], then: str | None) -> None:
        """Commit the checkpoint before `step`: first durably, then for all who go by it.

        then: how the run ends after it, if it does.
        """
        self._faults.at(step, "commit")
        self._checkpoint = checkpoints.commit(self._store, step, parts)
        self._uncommitted.committed(step)
        self._over = then
        self._faults.at(step, "committed")
        self._audience.committed(self._checkpoint)

    def _trim(self) -> None:
        """Drop the log before the checkpoint, unless a worker still reads it."""
        step = self._checkpoint.step
        if not may_trim(step, self._trimmed_step, self._workers):
            return
        self._channel.trim(step)
        self._faults.at(step, "trim")
        checkpoints.discard_others(self._store, self._checkpoint)
        self._trimmed_step = step
        self._channel.tell(trimmed(step))

    def _stop_overdue(self) -> bool:
        """Pass a wish to stop on to the workers; whether they had their time."""
        if self._stop_by is None:
            if self._stop_asked():
                self._channel.tell(STOP)
                self._audience.stopping()
                self._stop_by = time.monotonic() + STOP_GRACE_S
            return False
        return time.monotonic() > self._stop_by


def _rank(ended: Ended) -> int:
    return _number(ended.invocation.function)


def _number(function: str) -> int:
    """Functions are named `worker-<rank>`."""
    return int(function.rpartition("-")[2])
