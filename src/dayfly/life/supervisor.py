"""Keeps a run alive: starts its workers, hears them, and starts them again, one or all.

    plan k -> open its channel -> start the workers -> look -> look -> … -> over
      ^                                                                      |
      +--- the next generation: all start again, or the plan has changed ----+

What follows from what it sees is decided by `Generation`; here it is carried out. What runs is a
`Workload`: the supervisor knows functions, messages and checkpoints, and nothing of models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from dayfly.errors import RunFailed, WireError
from dayfly.life import actions, checkpoints
from dayfly.life.commits import Checkpoint, CheckpointPart
from dayfly.life.deaths import Restart
from dayfly.life.ends import GenerationEnd
from dayfly.life.faults import Faults
from dayfly.life.generation import FOLLOWED_S, Generation, Over, Past, rank_of
from dayfly.life.platforms.base import Invocation, Platform
from dayfly.life.reports import STOP, STOPPED, decided, read_reports, trimmed
from dayfly.life.workload import RunListener, Workload
from dayfly.specs.generations import GenerationPlan
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.stores.base import Store, StoreError

#: Longest sleep of the loop, in seconds; and while workers ask something, until `_BUSY_S` seconds
#: after an answer.
TICK_S = 0.05
_BUSY_TICK_S = 0.002
_BUSY_S = 1.0
#: How long functions may take to be gone after they were killed at the end of a run, in seconds.
LAST_S = 5.0


@dataclass(slots=True, kw_only=True)
class Supervisor:
    """All generations of a run that one process supervises.

    Args:
        workload: what runs.
        platform: where; it runs nothing else.
        store: of the run's checkpoints.
        stop_asked: whether the run is to end.
        listener: is told what happens.
        faults: of this process.
    """

    workload: Workload
    platform: Platform
    store: Store
    stop_asked: Callable[[], bool]
    listener: RunListener
    faults: Faults
    _past: Past = field(default_factory=Past)
    _plan: GenerationPlan = field(init=False)
    _channel: Channel = field(init=False)
    _generation: Generation = field(init=False)
    _checkpoint: Checkpoint = field(init=False)  # the latest that was committed here
    _read_next_s: float = 0.0
    _busy_until_s: float = 0.0

    def run(self) -> str:
        """One generation after another, until the run is over; returns "done" or "stopped".

        Raises RunFailed with the cause if the policy gives up, or functions cannot be started or
        ended.
        """
        while True:
            over = self._live(self.workload.plan())
            if isinstance(over, RunFailed):
                raise over
            if isinstance(over, GenerationEnd):
                self.workload.starts_again(over)
                if self.stop_asked():
                    return STOPPED
            elif over != STOPPED or self.stop_asked() or not self.workload.change_asked():
                return over
            self.workload.changes()

    def _live(self, plan: GenerationPlan) -> Over:
        """One generation, of which nothing runs afterwards."""
        self.listener.begins(plan)
        with self.workload.open(plan) as self._channel:
            self._plan = plan
            self._read_next_s = self._busy_until_s = 0.0
            generation = Generation(plan, self.workload.policy, self._past)
            self._generation = generation
            try:
                return self._watch()
            except WireError as failure:
                if self.workload.policy.restart is Restart.ONE:
                    raise
                generation.lose_channel(failure, time.monotonic())
                return self._end_all()
            finally:
                if self._kill(LAST_S) and generation.over == STOPPED:
                    with suppress(WireError, StoreError):  # it stops anyway
                        self._hear(at_once=True)
                self._carry_out(generation.untold())

    def _watch(self) -> Over:
        """Look, hear, decide, act; until the generation is over."""
        generation = self._generation
        self._carry_out(generation.begins(time.monotonic()))
        while generation.over is None:
            busy = time.monotonic() < self._busy_until_s
            ended = self.platform.wait(_BUSY_TICK_S if busy else TICK_S)
            generation.ended += ended
            self._hear(at_once=bool(ended))  # what ended has said all by now
            self._carry_out(
                generation.saw(
                    running=self.platform.running(),
                    stop_asked=self.stop_asked(),
                    change_asked=self.workload.change_asked(),
                    now=time.monotonic(),
                )
            )
        if generation.complete:
            self._hear(at_once=True)
        return generation.over

    def _carry_out(self, found: actions.Actions) -> None:
        for action in found:
            match action:
                case actions.Start(rank, attempt, trimmed_step):
                    spec = self.workload.function(self._plan, rank)
                    if spec is None:
                        continue
                    invocation = Invocation(
                        function=f"worker-{rank}",
                        attempt=attempt,
                        handler=self.workload.handler,
                        payload=self.workload.payload(self._plan, rank, attempt, trimmed_step),
                        spec=spec,
                    )
                    self.listener.invoked(rank, invocation)
                    self.platform.invoke(invocation)
                case actions.Tell(ended, death):
                    self.listener.ended(rank_of(ended), ended, death=death)
                case actions.Commit(step, parts):
                    self._commit(step, parts)
                case actions.Trim(step):
                    self._channel.trim(step)
                    self.faults.at(step, "trim")
                    checkpoints.discard_others(self.store, self._checkpoint)
                    self._channel.tell(trimmed(step))
                case actions.Decide(step, record):
                    answer = self.workload.decide(step, record)
                    if answer is not None:
                        self._channel.put_bytes(decided(step), answer)
                        self.faults.at(step, "answered")
                        self._busy_until_s = time.monotonic() + _BUSY_S
                case actions.AskToStop(changes):
                    self._channel.tell(STOP)
                    if not changes:
                        self.listener.stopping()
                case actions.EndAll():
                    self._end_all()
                case actions.Pass(step, place):
                    self.faults.at(step, place)

    def _commit(self, step: int, parts: Sequence[CheckpointPart]) -> None:
        """Commit the checkpoint before `step`: first durably, then for all who go by it."""
        self.faults.at(step, "commit")
        self._checkpoint = checkpoints.commit(self.store, step, parts)
        self.workload.committed(self._checkpoint)
        self.faults.at(step, "committed")
        self.listener.committed(self._checkpoint)

    def _hear(self, *, at_once: bool) -> None:
        """Act on what workers say; if not at once, no more often than listings are cheap."""
        keys: Sequence[Key] = ()
        if at_once or time.monotonic() >= self._read_next_s:
            self._read_next_s = time.monotonic() + self._channel.abilities.list_every_s
            keys = self._channel.waiting(COORDINATOR)
        for report in read_reports(self._channel, keys):
            self._carry_out(self._generation.heard(report))
            self.listener.reported(report)
        if self.workload.serve(keys):
            self._busy_until_s = time.monotonic() + _BUSY_S

    def _end_all(self) -> Over:
        """End all workers, so that others can follow."""
        generation = self._generation
        self._kill(FOLLOWED_S)
        try:
            self._hear(at_once=True)  # what they had said: parts, steps, traffic
        except WireError as failure:
            generation.lose_channel(failure, time.monotonic())
        running, stop_asked = self.platform.running(), self.stop_asked()
        now = time.monotonic()
        self._carry_out(generation.gone(running=running, stop_asked=stop_asked, now=now))
        assert generation.over is not None, "all are gone"
        return generation.over

    def _kill(self, timeout_s: float) -> bool:
        """Kill what still runs, and wait for its end. Returns whether anything ran.

        What runs after `timeout_s` is left.
        """
        running = self.platform.running()
        for function in running:
            self._generation.killed.add(function)
            self.platform.cancel(function)
        until = time.monotonic() + timeout_s
        while self.platform.running() and time.monotonic() < until:
            try:
                self._generation.ended += self.platform.wait(TICK_S)
            except RunFailed:
                time.sleep(TICK_S)  # it starts nothing any more, but still tells what ended
        return bool(running)
