"""Keeps a run alive: starts its workers, hears them, and starts them again, one or all.

    plan k -> open its channel -> start the workers -> look -> look -> … -> over
      ^                                                                      |
      +----------- all start again, in the next generation ------------------+

What follows from what it sees is decided by `Generation`; here it is carried out. What runs is a
`Workload`: the supervisor knows functions, messages and checkpoints, and nothing of models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from dayfly.errors import DayflyError, RunFailed, WireError
from dayfly.life import checkpoints
from dayfly.life.audience import Audience
from dayfly.life.commits import Checkpoint, Part
from dayfly.life.faults import Faults
from dayfly.life.generation import (
    FOLLOWED_S,
    Action,
    AskToStop,
    Commit,
    EndAll,
    Generation,
    Over,
    Pass,
    Past,
    Start,
    Tell,
    Trim,
    rank_of,
)
from dayfly.life.platforms.base import Invocation, Platform
from dayfly.life.reports import STOP, STOPPED, read_reports, trimmed
from dayfly.life.workload import Restart, Workload
from dayfly.specs.generations import GenerationPlan
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.stores.base import Store

#: Longest sleep of the loop, in seconds; and while workers ask something, until `_BUSY_S` seconds
#: after an answer.
TICK_S = 0.05
_BUSY_TICK_S = 0.002
_BUSY_S = 1.0
#: How long functions may take to be gone after they were killed at the end of a run, in seconds.
LAST_S = 5.0


class Supervisor:
    """All generations of a run that one process supervises.

    Args:
        workload: what runs.
        platform: where; it runs nothing else.
        store: of the run's checkpoints.
        stop_asked: whether the run is to end.
        audience: is told what happens.
        faults: of this process.
        past: what is known of earlier generations.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        platform: Platform,
        store: Store,
        stop_asked: Callable[[], bool],
        audience: Audience,
        faults: Faults,
        past: Past,
    ) -> None:
        self._workload = workload
        self._platform = platform
        self._store = store
        self._stop_asked = stop_asked
        self._audience = audience
        self._faults = faults
        self._past = past
        self._plan: GenerationPlan
        self._channel: Channel
        self._generation: Generation
        self._checkpoint: Checkpoint  # the latest that was committed here
        self._read_next_s = 0.0
        self._busy_until_s = 0.0

    def run(self) -> str:
        """One generation after another, until the run is over; returns "done" or "stopped".

        Raises RunFailed with the cause if the policy gives up, or functions cannot be started or
        ended.
        """
        while True:
            over = self._live(self._workload.plan())
            if isinstance(over, RunFailed):
                raise over
            if isinstance(over, str):
                return over
            self._workload.starts_again(over)
            if self._stop_asked():
                return STOPPED

    def _live(self, plan: GenerationPlan) -> Over:
        """One generation, of which nothing runs afterwards."""
        self._audience.begins(plan)
        with self._workload.open(plan) as self._channel:
            self._plan = plan
            self._read_next_s = self._busy_until_s = 0.0
            self._generation = generation = Generation(
                restart=self._workload.restart,
                policy=self._workload.policy,
                world_size=plan.world_size,
                first_step=plan.first_step,
                stops_in_order=self._workload.stops_in_order,
                past=self._past,
            )
            try:
                return self._watch()
            except WireError as failure:
                if self._workload.restart is Restart.ONE:
                    raise
                generation.lose_channel(failure, time.monotonic())
                return self._end_all()
            finally:
                if self._kill(LAST_S) and generation.over == STOPPED:
                    with suppress(DayflyError):  # it stops anyway
                        self._hear(at_once=True)
                self._carry_out(generation.untold())

    def _watch(self) -> Over:
        """Look, hear, decide, act; until the generation is over."""
        generation = self._generation
        self._carry_out(generation.begins(time.monotonic()))
        while generation.over is None:
            busy = time.monotonic() < self._busy_until_s
            ended = self._platform.wait(_BUSY_TICK_S if busy else TICK_S)
            generation.ended += ended
            self._hear(at_once=bool(ended))  # what ended has said all by now
            running, stop_asked = self._platform.running(), self._stop_asked()
            now = time.monotonic()
            self._carry_out(generation.saw(running=running, stop_asked=stop_asked, now=now))
        if generation.complete:
            self._hear(at_once=True)
        return generation.over

    def _carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Start(rank, attempt, trimmed_step):
                    invocation = self._invocation(rank, attempt, trimmed_step)
                    self._audience.invoked(rank, invocation)
                    self._platform.invoke(invocation)
                case Tell(ended, death):
                    self._audience.ended(rank_of(ended), ended, death=death)
                case Commit(step, parts):
                    self._commit(step, parts)
                case Trim(step):
                    self._channel.trim(step)
                    self._faults.at(step, "trim")
                    checkpoints.discard_others(self._store, self._checkpoint)
                    self._channel.tell(trimmed(step))
                case AskToStop():
                    if self._workload.stops_in_order:
                        self._channel.tell(STOP)
                        self._audience.stopping()
                case EndAll():
                    self._end_all()
                case Pass(step, place):
                    self._faults.at(step, place)

    def _invocation(self, rank: int, attempt: int, trimmed_step: int) -> Invocation:
        return Invocation(
            function=f"worker-{rank}",
            attempt=attempt,
            handler=self._workload.handler,
            payload=self._workload.payload(self._plan, rank, attempt, trimmed_step),
            spec=self._plan.layout[rank].spec,
        )

    def _commit(self, step: int, parts: Sequence[Part]) -> None:
        """Commit the checkpoint before `step`: first durably, then for all who go by it."""
        self._faults.at(step, "commit")
        self._checkpoint = checkpoints.commit(self._store, step, parts)
        self._workload.committed(self._checkpoint)
        self._faults.at(step, "committed")
        self._audience.committed(self._checkpoint)

    def _hear(self, *, at_once: bool) -> None:
        """Act on what workers say; if not at once, no more often than listings are cheap."""
        keys: Sequence[Key] = ()
        if at_once or time.monotonic() >= self._read_next_s:
            self._read_next_s = time.monotonic() + self._channel.abilities.list_every_s
            keys = self._channel.waiting(COORDINATOR)
        for report in read_reports(self._channel, keys):
            self._carry_out(self._generation.heard(report))
            self._audience.reported(report)
        if self._workload.serve(keys):
            self._busy_until_s = time.monotonic() + _BUSY_S

    def _end_all(self) -> Over:
        """End all workers, so that others can follow."""
        generation = self._generation
        self._kill(FOLLOWED_S)
        try:
            self._hear(at_once=True)  # what they had said: parts, steps, traffic
        except WireError as failure:
            generation.lose_channel(failure, time.monotonic())
        running, stop_asked = self._platform.running(), self._stop_asked()
        now = time.monotonic()
        self._carry_out(generation.gone(running=running, stop_asked=stop_asked, now=now))
        assert generation.over is not None, "all are gone"
        return generation.over

    def _kill(self, timeout_s: float) -> bool:
        """Kill what still runs, and wait for its end. Returns whether anything ran.

        What runs after `timeout_s` is left.
        """
        running = self._platform.running()
        for function in running:
            self._generation.killed.add(function)
            self._platform.cancel(function)
        until = time.monotonic() + timeout_s
        while self._platform.running() and time.monotonic() < until:
            try:
                self._generation.ended += self._platform.wait(TICK_S)
            except RunFailed:
                time.sleep(TICK_S)  # it starts nothing any more, but still tells what ended
        return bool(running)
