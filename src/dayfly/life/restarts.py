"""How often workers that live and die together may start again, and why they do not any more.

    what ended them                              the run fails
    an exception at the same line as before   at its second coming, if nothing was kept between
    any other death from inside               after so many restarts as were asked for
    kills from outside                        after a quarter of an hour that kept nothing
    the end of a lifetime                     at the third in a row that kept nothing

What is kept is what the script writes. Pure: it reads no clock.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from dayfly.errors import RunFailed, SureToFail
from dayfly.life.deaths import PATIENCE, Count, Deaths, Patience, Restart, RestartPolicy, Verdict
from dayfly.life.ends import GenerationEnd, from_outside, in_a_line
from dayfly.life.failure import Origin
from dayfly.life.platforms.base import Ended, Outcome

#: Lives in a row that ended at their lifetime, and kept nothing, that fail a run.
LIVES_IN_VAIN = 3


@dataclass(slots=True)
class Restarts(RestartPolicy):
    """Counts the restarts of a script's run: its policy.

    Args:
        max_restarts: after deaths from inside; lifetimes that end are planned, and kills from
            outside say nothing about the script.
        written: what is there of what the script writes, equal as long as it writes nothing.
        where: that is, for people.
        deaths: restarts that counted, so far.
        in_vain: lives in a row that kept nothing.
        mistake: the exception of the life before, if that kept nothing.
    """

    restart = Restart.ALL
    planned = (Outcome.LIFETIME,)
    stops_in_order = False

    max_restarts: int
    patience: Patience = PATIENCE
    written: Callable[[], object] = lambda: None
    where: str = ""
    deaths: int = 0
    in_vain: int = 0
    mistake: tuple[str, ...] | None = None
    _before: object = None
    _kept: int = 0
    _killed: Count = field(default_factory=Count)

    def begins(self) -> None:
        """A generation begins: what is written from now on is kept of it."""
        self._before = self.written()

    def all_ended(self, end: GenerationEnd, now: float) -> Verdict:
        kept = self.written() != self._before
        self._kept += kept
        if end.planned:
            self.in_vain = 0 if kept else self.in_vain + 1
            self.mistake = None
            if self.in_vain < LIVES_IN_VAIN:
                return Verdict()
            return Verdict(failure=RunFailed(_in_vain(end, self.where)))
        self.in_vain = 0
        before, self.mistake = self.mistake, None if kept else _mistake(end)
        if end.first is not None and from_outside(end.first):
            return self._after_kill(end, now)
        if self.mistake is not None and self.mistake == before:
            text = _given_up(end, "twice in a row, and nothing was written in between")
            return Verdict(failure=SureToFail(text))
        if self.deaths >= self.max_restarts:
            text = _given_up(end, _how_often(self.deaths, self.max_restarts))
            return Verdict(failure=RunFailed(text))
        self.deaths += 1
        return Verdict()

    def _after_kill(self, end: GenerationEnd, now: float) -> Verdict:
        kills = self._killed.add(self._kept, now)
        killed_s = now - self._killed.since
        if killed_s > self.patience.without_progress_s:
            often = f"the last of {kills} kills in {killed_s:.0f} s in which nothing was written"
            return Verdict(failure=RunFailed(_given_up(end, often)))
        return Verdict(pause_s=self.patience.pause_s(kills))


class LoopRestarts(RestartPolicy):
    """A script's policy: all start again, until every rank is in a loop that catches up alone.

        rank 0    start ........ loop ............ X   starts again alone, as `Deaths` has it
        rank 1    start .. loop ......................

    Deaths from inside count towards `max_restarts` either way.

    Args:
        together: of all; has the bounds.
        workers: of a generation.
        hears_stop_s, heartbeat_s: see `RestartPolicy`; of a loop.
    """

    planned = (Outcome.LIFETIME,)
    stops_in_order = False

    def __init__(
        self,
        together: Restarts,
        workers: int,
        hears_stop_s: float = 0.0,
        heartbeat_s: float | None = None,
    ) -> None:
        self.together = together
        self.restart = Restart.ALL
        self.hears_stop_s, self.heartbeat_s = hears_stop_s, heartbeat_s
        self._workers = workers
        self._singly = Deaths(patience=together.patience)
        self._in_loop: dict[int, bool] = {}
        self._grouped = False

    def begins(self) -> None:
        """A generation begins: no rank is in a loop."""
        self.together.begins()
        self._in_loop = {}
        self._grouped = False
        self._decide()

    def entered(self, rank: int, *, alone: bool) -> None:
        """A rank is in a loop; `alone`: in which one that starts again catches up by itself."""
        self._in_loop[rank] = alone
        self._decide()

    def grouped(self) -> None:
        """A rank makes groups, whose members are numbered alike: all have to start again."""
        self._grouped = True
        self._decide()

    def died(self, ended: Ended, frontier: int, now: float) -> Verdict:
        verdict = self._singly.died(ended, frontier, now)
        if verdict.failure is not None or from_outside(ended) or ended.outcome in self.planned:
            return verdict
        if self.together.deaths >= self.together.max_restarts:
            end = GenerationEnd([ended], frontier=frontier)
            often = _how_often(self.together.deaths, self.together.max_restarts)
            return Verdict(failure=RunFailed(_given_up(end, often)))
        self.together.deaths += 1
        return verdict

    def all_ended(self, end: GenerationEnd, now: float) -> Verdict:
        return self.together.all_ended(end, now)

    def _decide(self) -> None:
        everybody = len(self._in_loop) == self._workers
        alone = everybody and all(self._in_loop.values()) and not self._grouped
        self.restart = Restart.ONE if alone else Restart.ALL
        self.stops_in_order = everybody


def _in_vain(end: GenerationEnd, where: str) -> str:
    lifetime_s = (end.first or end.hand_overs[0]).invocation.spec.lifetime_s
    return (
        f"{LIVES_IN_VAIN} lives in a row came to the end of their {lifetime_s:g} s, and nothing "
        f"was written below {where} meanwhile: save a checkpoint there, such as when "
        "dayfly.checkpoint_due() says so, and load it at the start, or give a longer --lifetime"
    )


def _mistake(end: GenerationEnd) -> tuple[str, ...] | None:
    """What a script raised by itself, and where: it would most likely do so again.

    All ranks run the same script, and which of them comes to it first differs from time to time.
    """
    if end.first is None or (failure := end.first.failure) is None:
        return None
    if failure.origin is Origin.WIRE:
        return None
    return failure.kind, failure.place or ""


def _how_often(restarts: int, max_restarts: int) -> str:
    times = "one restart" if restarts == 1 else f"{restarts} restarts"
    done = times if restarts else "no restart"
    return f"{done}, as --max-restarts {max_restarts} allows"


def _given_up(end: GenerationEnd, how_often: str) -> str:
    """The cause with its traceback first, then the others in a line each."""
    text, trace, first = end.in_words, "", end.first
    if first is not None and first.outcome is Outcome.OUT_OF_MEMORY:
        text += ": raise --memory, lower the batch size, or use more workers"
        trace = first.detail.partition("\n")[2]
    elif first is not None and first.outcome is Outcome.RAISED:
        trace = first.detail
        if os.strerror(errno.ENOSPC) in (first.error or ""):
            text += ": make room where it writes, or, for its output, in the run's directory"
    others = [in_a_line(one) for one in (*end.causes[1:], *end.consequences)]
    also = "".join(f"\nalso: {line}" for line in others)
    return f"{text} ({how_often})" + f"\n\n{trace}" * bool(trace) + also
