"""What follows from what happens to a generation of workers. Pure: no clock, no store, no process.

    begins                                 Start 0, Start 1, …
    heard   records of a worker            Commit a checkpoint whose parts are all there
            whom it waits for              Ask that one for heartbeats      silent: EndSilent
            rank 0's of an epoch           Decide whether the run goes on
    saw     functions ended, or a tick     ONE: Start the dead one again     ALL: EndAll
            the plan is to change          AskToStop: all end at the checkpoint of one step
    gone    all were ended                 over: they start again, unless the policy gives up

A generation may warm up while the one before it trains:

    begins -> waits, waits, … -> ready -> goes, from the checkpoint that the other one ended with

Each event changes the state and gives the actions that follow, in order: they are generated one by
one, and the state goes on once one is carried out. `over` says how the generation ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dayfly.errors import RunFailed, SureToFail, WireError
from dayfly.life import actions
from dayfly.life.actions import Actions
from dayfly.life.commits import CheckpointPart, Uncommitted
from dayfly.life.deaths import DEATHS_OF_ONE_CAUSE, PATIENCE, Restart, RestartPolicy, Verdict
from dayfly.life.ends import GenerationEnd, by_themselves, in_a_line, patience_s, status_after
from dayfly.life.platforms.base import Ended, Outcome
from dayfly.life.reports import DONE, FAILED, STOPPED, Report
from dayfly.life.silence import Silence
from dayfly.life.worker_state import Past, WorkerState
from dayfly.specs.events import rank_of
from dayfly.specs.generations import GenerationPlan
from dayfly.specs.pace import MOST_SHARE, end_in_order_s, warm_ahead_s

#: How long workers have to stop in order, with a checkpoint, once they hear of it, in seconds.
STOP_GRACE_S = 10.0
#: How long the others have to end, too, once a worker found out why the run fails, in seconds.
FAILED_GRACE_S = 5.0
#: How long functions may take to be gone after they were killed so that others follow, in seconds.
FOLLOWED_S = 60.0
#: How long functions may take to be gone once their successors go on, in seconds.
LEAVE_S = 5.0

#: How a generation ended: with the run's status, its failure, or all are to start again.
Over = str | RunFailed | GenerationEnd


class Generation:
    """The state of one generation.

    Args:
        plan: of it.
        policy: who starts again, whether and when.
        past: of the generations before; it goes on with this one.
        waiting: whether its workers warm up, and wait for `goes`.

    Attributes:
        ended: functions that ended, and nothing has followed from it yet.
        killed: names of those that the supervisor ended.
        over: how the generation ended, once it has.
        waiting: whether its workers wait for `goes`.
        changing: whether its workers were asked to end, so that the next generation goes on.
    """

    def __init__(
        self, plan: GenerationPlan, policy: RestartPolicy, past: Past, *, waiting: bool = False
    ) -> None:
        self.ended: list[Ended] = []
        self.killed: set[str] = set()
        self.over: Over | None = None
        self.waiting = waiting
        self.changing = False
        self._past = past
        self._workers = [WorkerState(rank) for rank in range(plan.world_size)]
        self._began: set[int] = set()  # ranks that have loaded their state
        self._silence = Silence(policy.heartbeat_s, past.silences)
        self._lost_warm = 0  # workers that died while they waited
        self._leave_by: float | None = None
        self._take(plan, policy)
        self._last: str | None = None  # how the run ends after the checkpoint that was committed
        self._failure: str | None = None  # of the run, as the first worker says that found it out
        self._fail_by = math.inf
        self._stop_by: float | None = None
        self._ending_since: float | None = None  # all are to be ended
        self._lost: WireError | None = None  # the channel

    def _take(self, plan: GenerationPlan, policy: RestartPolicy) -> None:
        """Begin with a plan, at the checkpoint that it names."""
        self._plan, self._policy = plan, policy
        self._past.frontier = max(self._past.frontier, plan.first_step)
        self._checkpoint_step = self._trimmed_step = self._reached = plan.first_step
        self._uncommitted = Uncommitted(plan.world_size, plan.first_step)
        if not self.waiting:  # else the one before goes on
            self._past.states.keep(plan.first_step)

    @property
    def ready(self) -> bool:
        """Whether all workers are warm."""
        return not self.ended and all(worker.warm for worker in self._workers)

    @property
    def passes_on(self) -> bool:
        """Whether nothing but the ends of its functions is left, and the next generation may go."""
        return self.changing and self._last == STOPPED and self._stop_by is None

    @property
    def begun(self) -> bool:
        """Whether all workers have loaded their state, and told so with equal digests."""
        return self.over is None and len(self._began) == len(self._workers)

    @property
    def _one(self) -> bool:
        """Whether one that died starts again alone, as far as the policy knows by now."""
        return self._policy.restart is Restart.ONE

    @property
    def complete(self) -> bool:
        """Whether nothing is left for any worker to do."""
        return all(worker.status is not None for worker in self._workers)

    def begins(self, now: float) -> Actions:
        """All start, after the pause that the one before left."""
        began, invoked = ("warm", "warming") if self.waiting else ("begin", "invoked")
        yield actions.Pass(self._checkpoint_step, began)
        pause_s, self._past.pause_s = self._past.pause_s, 0.0
        for worker in self._workers:
            worker.start_at = now + pause_s
        yield from self._start_due(now)
        yield actions.Pass(self._checkpoint_step, invoked)

    def waits(self, now: float) -> Actions:
        """A look at workers that wait; `over` says why they cannot begin, if they cannot."""
        self._note_starts(now)
        ended, self.ended = self.ended, []
        for one in ended:
            death = one.outcome is not Outcome.RETURNED  # else its life went by as it waited
            yield actions.Tell(one, death=death)
            self._lost_warm += death
            if self._lost_warm >= DEATHS_OF_ONE_CAUSE:
                self.over = RunFailed(f"the next generation's {in_a_line(one)} as it warmed up")
                return
            worker = self._workers[rank_of(one.invocation.function)]
            worker.warm, worker.start_at = False, now + PATIENCE.pause_s(self._lost_warm)
        yield from self._start_due(now)

    def goes(self, plan: GenerationPlan, policy: RestartPolicy) -> Actions:
        """The workers wait no more: they begin at the checkpoint of a plan.

        Args:
            plan: the same as before, but for the checkpoint.
            policy: from now on.
        """
        self.waiting = False
        self._take(plan, policy)
        for worker in self._workers:
            worker.started_from = plan.first_step
        yield actions.Pass(plan.first_step, "begin")

    def renewal_due(self, now: float) -> bool:
        """Whether successors are to warm up, so that they are warm before a lifetime ends.

        Never where that would take more than a part of each lifetime: workers hand over one by one
        then, and successors start cold.
        """
        past = self._past
        if self.changing or self._stop_by is not None:
            return False
        for worker in self._workers:
            life_s = self._plan.layout[worker.rank].spec.lifetime_s
            if life_s is None or worker.status is not None or worker.start_s is None:
                continue
            end_s = end_in_order_s(past.step_s, past.checkpoint_s, life_s)
            ahead_s = warm_ahead_s(past.start_s, self._policy.hears_stop_s, end_s)
            if ahead_s < MOST_SHARE * life_s and now > worker.started_at + life_s - ahead_s:
                return True
        return False

    def heard(self, report: Report) -> Actions:
        """A worker's report came in."""
        worker = self._workers[report.rank]
        self._silence.hear(report, worker.attempt)
        for record in report.records:
            match record["kind"]:
                case "start" | "warm" as kind:
                    worker.warm = worker.warm or report.attempt == worker.attempt
                    if kind == "start" and not self._differs(worker.rank, "loaded", record):
                        self._began.add(worker.rank)
                case "caught up":
                    worker.caught_up = worker.caught_up or report.attempt == worker.attempt
                    self._note_reached(record["step"])
                case "step":
                    self._past.step_s = max(self._past.step_s, record.get("step_s", 0.0))
                    self._note_reached(record["step"] + 1)
                    yield actions.Pass(record["step"], "step")
                case "epoch" if report.rank == 0:
                    yield actions.Decide(record["step"], record["record"])
                case "part" if self.changing and self._differs(worker.rank, "computed", record):
                    return  # its checkpoint would be of two states
                case "part":
                    step, parts = (
                        record["step"],
                        tuple(CheckpointPart(**part) for part in record["parts"]),
                    )
                    spent_s = max(self._past.checkpoint_s, record.get("seconds", 0.0))
                    self._past.checkpoint_s = spent_s
                    whole = self._uncommitted.add(step, report.rank, parts)
                    if whole is not None:
                        yield actions.Commit(step, tuple(whole))
                        self._checkpoint_step, self._last = step, record["then"]
                        self._uncommitted.committed(step)
                        self._past.states.keep(step)

    def saw(
        self,
        *,
        running: Sequence[str],
        stop_asked: bool,
        now: float,
        change_asked: bool = False,
    ) -> Actions:
        """A look at what `ended`, which may be nothing.

        Args:
            running: names of the functions that live.
            stop_asked: the run is to end.
            now: seconds of a monotonic clock.
            change_asked: the run is to go on by another plan.
        """
        self._note_failure(now)
        self._note_starts(now)
        if self.over is None and self._ending_since is None:
            yield from self._note_ends(now)
        if self.over is not None:
            return
        step = self._checkpoint_step
        read = any(worker.reads_log_before(step) for worker in self._workers)
        if step > self._trimmed_step and not self.ended and not read:
            yield actions.Trim(step)
            self._trimmed_step = step
        if stop_asked and self._stop_by is None and not self.complete:
            self._stop_by = now
            if self._policy.stops_in_order:
                self._stop_by += self._policy.hears_stop_s + STOP_GRACE_S
                yield actions.AskToStop()
        elif change_asked and not (self.changing or self.complete):
            self.changing = True
            yield actions.AskToStop(changes=True)
        # Nobody runs, or will: such as where nothing is left to pay for a start.
        nobody = not running and all(worker.start_at is None for worker in self._workers)
        if self.ended and (self._ending_since is not None or not self._stop_overdue(now)):
            yield from self._end_all(running, now)
        elif self.complete:
            done = all(worker.status == DONE for worker in self._workers)
            self.over = DONE if done else STOPPED
            if self._failure is not None:
                self.over = SureToFail(self._failure)
        elif self._stop_overdue(now, nobody) or self._leaves_late(now):
            self.over = STOPPED
        else:
            yield from self._start_due(now)
            yield from self._silence.look(self._workers, self._past.frontier, now)

    def take(self, ended: Ended) -> bool:
        """A function ended. Returns whether that counts: not if a later attempt has followed."""
        invocation = ended.invocation
        counts = invocation.attempt == self._workers[rank_of(invocation.function)].attempt
        if counts:
            self.ended.append(self._silence.cause_of(ended))
        return counts

    def lose_channel(self, error: WireError, now: float) -> None:
        """The channel failed: all are to be ended."""
        self._lost = self._lost or error
        self._ending_since = now if self._ending_since is None else self._ending_since

    def gone(self, *, running: Sequence[str], stop_asked: bool, now: float) -> Actions:
        """All were ended so that others follow; but for those of `running`, that did not end."""
        end = self._end()
        yield from self.untold()
        if running:
            left = ", ".join(running)
            self.over = RunFailed(f"{left} did not end within {FOLLOWED_S:g} s of the kill")
        elif self._failure is not None:
            self.over = SureToFail(self._failure)
        elif self._last is not None:
            self.over = self._last
        else:
            decision = self._policy.all_ended(end, now)
            self._past.pause_s = decision.pause_s
            if decision.failure is not None:
                self.over = decision.failure
            elif self._stop_by is not None or stop_asked:
                self.over = STOPPED  # to start all again would only redo what was done
            else:
                yield actions.Pass(self._checkpoint_step, "roll back")
                self.over = end

    def untold(self) -> Actions:
        """Tell of what ended, and nothing else will follow from."""
        causes = [] if self._ending_since is None else self._end().causes
        ended, self.ended = self.ended, []
        for one in ended:
            death = one in causes and one.outcome not in self._policy.planned
            yield actions.Tell(one, death=death)

    def _end(self) -> GenerationEnd:
        return GenerationEnd(
            by_themselves(self.ended, self.killed),
            self._lost,
            checkpoint_step=self._checkpoint_step,
            reached=self._reached,
            frontier=self._past.frontier,
            world_size=len(self._workers),
        )

    def _differs(self, rank: int, did: str, record: Mapping[str, Any]) -> bool:
        """Whether a worker tells of another state than others did; the run fails then."""
        wrong = self._past.states.note(f"worker {rank} {did}", record)
        if wrong is not None:
            self.over = SureToFail(wrong)
        return wrong is not None

    def _note_failure(self, now: float) -> None:
        """The run fails with what a worker found out, once the others had time to end, too."""
        for one in self.ended:
            if self._failure is None and one.result and one.result["status"] == FAILED:
                self._failure = one.result["error"]
                self._fail_by = now + FAILED_GRACE_S
        if self._failure is not None and now > self._fail_by:
            self.over = SureToFail(self._failure)

    def _note_ends(self, now: float) -> Actions:
        """Tell of ends, before the run ends with any of them, and start again whom that is for.

        Where all start again, those who have to stay in `ended`.
        """
        again: list[Ended] = []
        for one in list(self.ended):
            worker = self._workers[rank_of(one.invocation.function)]
            worker.status = status_after(one, self._last)
            if worker.status is None and not self._one:
                continue
            self.ended.remove(one)
            again += [one] * (worker.status is None)
            yield actions.Tell(one, death=one.outcome is not Outcome.RETURNED)
        for one in again:
            decision = Verdict()
            if one.outcome is not Outcome.RETURNED:
                decision = self._policy.died(one, self._past.frontier, now)
            if decision.failure is not None:
                self.over = decision.failure
                return
            yield actions.Pass(self._checkpoint_step, "again")
            worker = self._workers[rank_of(one.invocation.function)]
            worker.start_at = now + decision.pause_s

    def _end_all(self, running: Sequence[str], now: float) -> Actions:
        """End all at once, or once there is nothing more to wait for."""
        if self._ending_since is None:
            self._ending_since = now
        living = {rank_of(function) for function in running}
        may_come = partial(self._uncommitted.may_come, living=living)
        longest_s = patience_s(self.ended, self._checkpoint_step, may_come)
        waited_s = now - self._ending_since
        if not running or waited_s >= longest_s or self._stop_overdue(now):
            yield actions.EndAll()

    def _stop_overdue(self, now: float, nobody: bool = False) -> bool:
        """Whether the workers had their time to stop; `nobody`: there are none."""
        return self._stop_by is not None and (nobody or now >= self._stop_by)

    def _leaves_late(self, now: float) -> bool:
        """Whether functions live on that have nothing to do any more."""
        if self.passes_on and self._leave_by is None:
            self._leave_by = now + LEAVE_S
        return self._leave_by is not None and now > self._leave_by

    def _note_starts(self, now: float) -> None:
        for worker in self._workers:
            if worker.warm and worker.start_s is None:
                worker.start_s = now - worker.started_at
                self._past.started(worker.started_at, now)

    def _start_due(self, now: float) -> Actions:
        """Start the functions whose time has come; while the run is to stop, all of them."""
        latest = now if self._stop_by is None else math.inf
        for worker in self._workers:
            if worker.start_at is not None and worker.start_at <= latest:
                worker.starts(self._past.attempt(worker.rank), self._checkpoint_step, now)
                yield actions.Start(worker.rank, worker.attempt, self._trimmed_step)

    def _note_reached(self, step: int) -> None:
        self._reached = max(self._reached, step)
        self._past.frontier = max(self._past.frontier, step)
