"""Keeps a run alive: starts its workers, hears them, and starts them again, one or all.

    plan k -> open its channel -> start the workers -> look -> look -> … -> over
      ^                                                 |                   |
      |                         plan k + 1: open, start, warm -> go --------+
      |                                                                     |
      +--- all start again, or the plan has changed and nobody is warm -----+

What follows from what it sees is decided by `Generation`; here it is carried out. What runs is a
`Workload`: the supervisor knows functions, messages and checkpoints, and nothing of models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from dayfly.errors import RequestError, RunFailed, WireError
from dayfly.life import actions, checkpoints
from dayfly.life.commits import Checkpoint, CheckpointPart
from dayfly.life.deaths import Restart
from dayfly.life.ends import GenerationEnd
from dayfly.life.faults import Faults
from dayfly.life.generation import FOLLOWED_S, Generation, Over
from dayfly.life.platforms.base import Ended, Invocation, Platform
from dayfly.life.reports import GO, STOP, STOPPED, asked, decided, fenced, read_reports, trimmed
from dayfly.life.worker_state import Past
from dayfly.life.workload import RunListener, Workload
from dayfly.specs.events import rank_of
from dayfly.specs.generations import GenerationPlan
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, Key
from dayfly.wire.stores.base import Store, StoreError

#: Longest sleep of the loop, in seconds; and while workers ask something or hand over, until
#: `_BUSY_S` seconds after the last of it.
TICK_S = 0.05
_BUSY_TICK_S = 0.002
_BUSY_S = 1.0
#: How long functions may take to be gone after they were killed at the end of a run, in seconds.
LAST_S = 5.0


@dataclass(slots=True, kw_only=True)
class _Cast:
    """A generation with its platform and channel, as it is supervised."""

    plan: GenerationPlan
    platform: Platform
    channel: Channel
    generation: Generation
    closing: ExitStack
    read_next_s: float = 0.0
    gone_on: bool = False  # its workers warmed up, and were told to go

    def has(self, function: str) -> bool:
        """Whether a function is one of its workers."""
        return function == self.plan.function(rank_of(function))


@dataclass(slots=True, kw_only=True)
class Supervisor:
    """All generations of a run that one process supervises.

    Args:
        workload: what runs, and where.
        store: of the run's checkpoints.
        stop_asked: whether the run is to end.
        listener: is told what happens.
        faults: of this process.
    """

    workload: Workload
    store: Store
    stop_asked: Callable[[], bool]
    listener: RunListener
    faults: Faults
    _past: Past = field(default_factory=Past)
    _now: _Cast = field(init=False)
    _next: _Cast | None = None  # warms up, or has gone on while the one before it ends
    _checkpoint: Checkpoint = field(init=False)  # the latest that was committed here
    _busy_until_s: float = 0.0
    _former: ExitStack | None = None  # of the generation before, until this one has begun

    def run(self) -> str:
        """One generation after another, until the run is over; returns "done" or "stopped".

        Raises RunFailed with the cause if the policy gives up, or functions cannot be started or
        ended.
        """
        try:
            return self._run()
        finally:
            self._discard()
            self._let_go()

    def _run(self) -> str:
        self._now = self._open(self.workload.plan())
        while True:
            over = self._live()
            if isinstance(over, RunFailed):
                raise over
            if self._next is not None:
                self._now, self._next = self._next, None
                continue
            if isinstance(over, GenerationEnd):
                self.workload.starts_again(over)
                if self.stop_asked():
                    return STOPPED
                if self.workload.change_asked() or self.workload.upcoming() is not None:
                    self.workload.changes(warm=False)
            elif over != STOPPED or self.stop_asked() or not self._now.generation.changing:
                return over
            else:
                self.workload.changes(warm=False)
            self._now = self._open(self.workload.plan())

    def _open(self, plan: GenerationPlan, *, waiting: bool = False) -> _Cast:
        """A generation that is to begin, or to warm up."""
        closing = ExitStack()
        if not waiting:
            self.listener.begins(plan)
        channel = closing.enter_context(self.workload.open(plan))
        generation = Generation(plan, self.workload.policy, self._past, waiting=waiting)
        return _Cast(
            plan=plan,
            platform=self.workload.platform(plan),
            channel=channel,
            generation=generation,
            closing=closing,
        )

    def _live(self) -> Over:
        """The present generation, of which nothing runs afterwards."""
        cast, generation = self._now, self._now.generation
        self._busy_until_s = 0.0
        with cast.closing:
            try:
                return self._watch()
            except WireError as failure:
                if self.workload.policy.restart is Restart.ONE:
                    raise
                generation.lose_channel(failure, time.monotonic())
                return self._end_all()
            finally:
                if self._next is not None and not self._next.gone_on:
                    self._discard()
                if self._kill(cast, LAST_S) and generation.over == STOPPED:
                    with suppress(WireError, StoreError):  # it stops anyway
                        self._hear(cast, at_once=True)
                self._carry_out(cast, generation.untold())
                self._let_go()
                if self._next is not None:  # it has gone on
                    self._former = cast.closing.pop_all()

    def _let_go(self) -> None:
        """Remove the messages of the generation before."""
        if (former := self._former) is not None:
            self._former = None
            former.close()

    def _watch(self) -> Over:
        """Look, hear, decide, act; until the generation is over."""
        cast, generation = self._now, self._now.generation
        if not cast.gone_on:
            self._carry_out(cast, generation.begins(time.monotonic()))
        while generation.over is None:
            busy = time.monotonic() < self._busy_until_s
            any_ended = self._wait(_BUSY_TICK_S if busy else TICK_S)
            self._hear(cast, at_once=any_ended)  # what ended has said all by now
            if generation.begun:
                self._let_go()
            self._look_ahead()
            self._carry_out(
                cast,
                generation.saw(
                    running=self._running(cast),
                    stop_asked=self.stop_asked(),
                    change_asked=self._change_asked(),
                    now=time.monotonic(),
                ),
            )
        if generation.complete:
            self._hear(cast, at_once=True)
        return generation.over

    def _look_ahead(self) -> None:
        """Warm up the workers of the next generation, and let them go once they may."""
        if self._next is not None and self._next.gone_on:
            return
        try:
            self._warm_up()
            if (following := self._next) is None:
                return
            if following.generation.over is not None:
                raise WireError(str(following.generation.over))
        except (WireError, RequestError) as failure:
            self._discard()
            self.workload.refuse(str(failure))
            return
        if self._now.generation.passes_on and following.generation.ready:
            self._go(following)

    def _warm_up(self) -> None:
        """Have workers of the next generation wait, if there is to be one that can."""
        generation, now = self._now.generation, time.monotonic()
        if generation.renewal_due(now):
            self.workload.renew()
        wanted = None if self.stop_asked() else self.workload.upcoming()
        if self._next is not None and self._next.plan is not wanted:
            self._discard()
        if wanted is None or (generation.changing and self._next is None):
            return  # what is asked for now takes place without them
        if self._former is not None:
            return  # the last change is not complete yet
        if self._next is None:
            self._next = self._open(wanted, waiting=True)
            self._carry_out(self._next, self._next.generation.begins(now))
        self._hear(self._next, at_once=False)
        self._carry_out(self._next, self._next.generation.waits(now))

    def _change_asked(self) -> bool:
        """Whether the workers are to end at the next boundary, so that others go on."""
        if self._next is not None:
            return self._next.generation.ready
        return self.workload.change_asked()

    def _go(self, following: _Cast) -> None:
        """Let the workers that waited go on from the checkpoint that counts."""
        self.workload.changes(warm=True)
        following.plan, following.gone_on = self.workload.plan(), True
        self.listener.begins(following.plan)
        self._carry_out(following, following.generation.goes(following.plan, self.workload.policy))
        following.channel.put_bytes(GO, self.workload.go())

    def _discard(self) -> None:
        """End what warmed up for nothing, or follows on what failed."""
        if (discarded := self._next) is not None:
            with discarded.closing:
                self._kill(discarded, LAST_S)
                self._next = None
                self._carry_out(discarded, discarded.generation.untold())

    def _carry_out(self, cast: _Cast, found: actions.Actions) -> None:
        together: list[actions.Start] = []  # with no other action between them
        for action in found:
            if isinstance(action, actions.Start):
                together.append(action)
                continue
            self._start(cast, together)
            together = []
            match action:
                case actions.Tell(ended, death):
                    rank = rank_of(ended.invocation.function)
                    self.listener.ended(cast.plan, rank, ended, death=death)
                case actions.Commit(step, parts):
                    self._commit(step, parts)
                case actions.Trim(step):
                    cast.channel.trim(step)
                    self.faults.at(step, "trim")
                    checkpoints.discard_others(self.store, self._checkpoint)
                    cast.channel.tell(trimmed(step))
                case actions.Decide(step, record):
                    answer = self.workload.decide(step, record)
                    if answer is not None:
                        cast.channel.put_bytes(decided(step), answer)
                        self.faults.at(step, "answered")
                        self._busy_until_s = time.monotonic() + _BUSY_S
                case actions.AskToStop(changes):
                    cast.channel.tell(STOP)
                    if changes:
                        self._busy_until_s = time.monotonic() + _BUSY_S
                    else:
                        self.listener.stopping()
                case actions.Ask(rank, attempt, True):
                    cast.channel.tell(asked(rank, attempt))
                case actions.Ask(rank, attempt, False):
                    cast.channel.drop([asked(rank, attempt)])
                case actions.EndSilent(rank, attempt):
                    cast.channel.tell(fenced(rank, attempt))
                    cast.platform.cancel(cast.plan.function(rank))
                case actions.EndAll():
                    self._end_all()
                case actions.Pass(step, point):
                    self.faults.at(step, point)
        self._start(cast, together)

    def _start(self, cast: _Cast, together: Sequence[actions.Start]) -> None:
        """Start workers' next functions together, but for those that cannot be had."""
        if together:
            cast.platform.invoke_all(self._invocations(cast, together))

    def _invocations(self, cast: _Cast, together: Sequence[actions.Start]) -> Iterator[Invocation]:
        plan = cast.plan
        for one in together:
            spec = self.workload.function(plan, one.rank)
            if spec is None:
                continue
            payload = self.workload.payload(
                plan, one.rank, one.attempt, one.trimmed_step, waits=cast.generation.waiting
            )
            invocation = Invocation(
                function=plan.function(one.rank),
                attempt=one.attempt,
                handler=self.workload.handler,
                payload=payload,
                spec=spec,
            )
            self.listener.invoked(plan, one.rank, invocation)
            yield invocation

    def _commit(self, step: int, parts: Sequence[CheckpointPart]) -> None:
        """Commit the checkpoint before `step`: first durably, then for all who go by it."""
        self.faults.at(step, "commit")
        self._checkpoint = checkpoints.commit(self.store, step, parts)
        self.workload.committed(self._checkpoint)
        self.faults.at(step, "committed")
        self.listener.committed(self._checkpoint)

    def _hear(self, cast: _Cast, *, at_once: bool) -> None:
        """Act on what workers say; if not at once, no more often than listings are cheap."""
        keys: Sequence[Key] = ()
        if at_once or time.monotonic() >= cast.read_next_s:
            cast.read_next_s = time.monotonic() + cast.channel.abilities.list_every_s
            keys = cast.channel.waiting(COORDINATOR)
        for report in read_reports(cast.channel, keys):
            self._carry_out(cast, cast.generation.heard(report))
            self.listener.reported(cast.plan, report)
        if self.workload.serve(keys):
            self._busy_until_s = time.monotonic() + _BUSY_S

    def _end_all(self) -> Over:
        """End all workers, so that others can follow."""
        cast, generation = self._now, self._now.generation
        self._kill(cast, FOLLOWED_S)
        try:
            self._hear(cast, at_once=True)  # what they had said: parts, steps, traffic
        except WireError as failure:
            generation.lose_channel(failure, time.monotonic())
        running, stop_asked = self._running(cast), self.stop_asked()
        now = time.monotonic()
        self._carry_out(cast, generation.gone(running=running, stop_asked=stop_asked, now=now))
        assert generation.over is not None, "all are gone"
        return generation.over

    def _kill(self, cast: _Cast, timeout_s: float) -> bool:
        """Kill what of a generation still runs, and wait for its end. Returns whether anything ran.

        What runs after `timeout_s` is left.
        """
        running = self._running(cast)
        for function in running:
            cast.generation.killed.add(function)
            cast.platform.cancel(function)
        until = time.monotonic() + timeout_s
        while self._running(cast) and time.monotonic() < until:
            try:
                self._wait(TICK_S)
            except RunFailed:
                time.sleep(TICK_S)  # it starts nothing any more, but still tells what ended
        return bool(running)

    def _wait(self, timeout_s: float) -> bool:
        """Wait for functions to end, and note for each generation which did; whether any did."""
        casts = [self._now, *([] if self._next is None else [self._next])]
        platforms = list({id(cast.platform): cast.platform for cast in casts}.values())
        ended: list[Ended] = []
        for number, platform in enumerate(platforms):
            ended += platform.wait(0.0 if number else timeout_s)
        for one in ended:
            for cast in casts:
                if cast.has(one.invocation.function) and not cast.generation.take(one):
                    rank = rank_of(one.invocation.function)
                    self.listener.ended(cast.plan, rank, one, death=False)  # it is billed
        return bool(ended)

    def _running(self, cast: _Cast) -> Sequence[str]:
        """Names of a generation's functions that live."""
        return [one for one in cast.platform.running() if cast.has(one)]
