"""Workers that live and die together: when one ends before its time, all are ended.

    worker 0   ---------------WireError    its peer is gone: a consequence
    worker 1   -----------X ValueError     the cause
    worker 2   -------- returned           early, which is fine as long as the others live
    worker 3   ---------------killed       by the coordinator

What they did is theirs to keep. Whether they start again, all of them, is the caller's to decide
(see `restarts`). It knows functions and their reports, and nothing of what they run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from dayfly.errors import RunFailed, WireError
from dayfly.life.audience import Audience
from dayfly.life.ending import FOLLOWED_S, TICK_S, kill_all
from dayfly.life.platforms.base import Ended, Invocation, Outcome, Platform
from dayfly.life.reports import read_reports
from dayfly.life.rollback import CAUSE_S, by_themselves, is_wire_error, own_deaths
from dayfly.wire.channels.base import Channel
from dayfly.wire.keys import COORDINATOR, Key

#: The coordinator's sleep while workers ask it something, in seconds, and how long after an answer.
_BUSY_TICK_S = 0.002
_BUSY_S = 1.0


class Verdict(Enum):
    """How a generation ended."""

    DONE = "done"  # all returned
    STOPPED = "stopped"  # as asked
    DIED = "died"  # of the first of its ends, or of its channel
    LIFETIME = "lifetime"  # of the first of its ends: planned, for whoever keeps what it did


@dataclass(frozen=True, slots=True)
class GangEnd:
    """How a generation ended. ends: those that ended by themselves, before their time; the cause
    first. failure: of the channel itself, if it was that."""

    verdict: Verdict
    ends: tuple[Ended, ...] = ()
    failure: WireError | None = None


class Gang:
    """One generation.

    invocations: the call of each rank. attend: called whenever the coordinator looks, with the
    messages that wait for it, so that what workers ask is answered; whether they asked anything.
    stop_asked: whether to end all at once.
    """

    def __init__(
        self,
        *,
        platform: Platform,
        channel: Channel,
        invocations: Sequence[Invocation],
        attend: Callable[[Sequence[Key]], bool],
        stop_asked: Callable[[], bool],
        audience: Audience,
    ) -> None:
        self._platform = platform
        self._channel = channel
        self._ranks = {one.function: rank for rank, one in enumerate(invocations)}
        self._invocations = invocations
        self._attend = attend
        self._stop_asked = stop_asked
        self._audience = audience
        self._ended: list[Ended] = []  # and the audience was not told yet
        self._killed: set[str] = set()  # functions that this coordinator ended
        self._causes: list[Ended] = []
        self._read_next_s = 0.0
        self._busy_until_s = 0.0

    def run(self) -> GangEnd:
        """Until all have returned, or all were ended; none runs afterwards.

        Raises RunFailed if functions cannot be started, or do not end.
        """
        try:
            return self._run()
        except WireError as failure:
            self._kill()
            return self._end_early(failure)
        finally:
            kill_all(self._platform, self._ended, self._killed)
            self._tell_all()

    def _run(self) -> GangEnd:
        for rank, invocation in enumerate(self._invocations):
            self._audience.invoked(rank, invocation)
            self._platform.invoke(invocation)
        while self._platform.running():
            self._look()
            if self._stop_asked():
                self._kill()
                self._read(at_once=True)
                return GangEnd(Verdict.STOPPED)
            if self._tell_returned():
                self._wait_for_cause()
                self._kill()
                self._read(at_once=True)  # what they had said: traffic
                return self._end_early()
        self._read(at_once=True)
        return GangEnd(Verdict.DONE)

    def _look(self) -> None:
        """Sleep until something happens, and take what came."""
        busy = time.monotonic() < self._busy_until_s
        self._ended += self._platform.wait(_BUSY_TICK_S if busy else TICK_S)
        self._read(at_once=False)

    def _tell_returned(self) -> bool:
        """Tell of those that returned; whether others ended."""
        for one in [one for one in self._ended if one.outcome is Outcome.RETURNED]:
            self._ended.remove(one)
            self._audience.ended(self._rank(one), one, death=False)
        return bool(self._ended)

    def _wait_for_cause(self) -> None:
        """An error of the wire may come of another's death, which is heard of a little later."""
        until = time.monotonic() + CAUSE_S
        while all(is_wire_error(one) for one in self._ended) and time.monotonic() < until:
            if not self._platform.running():
                return
            self._look()
            self._tell_returned()

    def _kill(self) -> None:
        kill_all(self._platform, self._ended, self._killed, FOLLOWED_S)
        if left := self._platform.running():
            raise RunFailed(f"{', '.join(left)} did not end within {FOLLOWED_S:g} s of the kill")

    def _end_early(self, failure: WireError | None = None) -> GangEnd:
        # Who returned before the kill came ended in good order.
        self._tell_returned()
        early = by_themselves(self._ended, self._killed)
        self._causes = own_deaths(early, explained=failure is not None)
        others = [one for one in early if not any(one is cause for cause in self._causes)]
        ends = (*self._causes, *others)
        if self._causes:
            planned = self._causes[0].outcome is Outcome.LIFETIME
            return GangEnd(Verdict.LIFETIME if planned else Verdict.DIED, ends)
        return GangEnd(Verdict.DIED, ends, failure)

    def _tell_all(self) -> None:
        ended, self._ended = self._ended, []
        for one in ended:
            cause = any(one is cause for cause in self._causes)
            death = cause and one.outcome is not Outcome.LIFETIME
            self._audience.ended(self._rank(one), one, death=death)

    def _read(self, *, at_once: bool) -> None:
        """If not at once, no more often than listings are cheap."""
        keys: Sequence[Key] = ()
        if at_once or time.monotonic() >= self._read_next_s:
            self._read_next_s = time.monotonic() + self._channel.abilities.list_every_s
            keys = self._channel.waiting(COORDINATOR)
        for report in read_reports(self._channel, keys):
            self._audience.reported(report)
        if self._attend(keys):
            self._busy_until_s = time.monotonic() + _BUSY_S

    def _rank(self, ended: Ended) -> int:
        return self._ranks[ended.invocation.function]
