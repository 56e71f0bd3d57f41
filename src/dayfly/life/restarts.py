"""How often workers that live and die together may start again, and why they do not any more."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dayfly.errors import in_short
from dayfly.life.deaths import in_words
from dayfly.life.gang import GangEnd, Verdict
from dayfly.life.platforms.base import Ended, Outcome
from dayfly.life.rollback import is_wire_error

#: Lives in a row that ended at their lifetime, and kept nothing, that fail a run.
LIVES_IN_VAIN = 3


@dataclass(slots=True)
class Restarts:
    """Counts the restarts of one run. max_restarts: after deaths; lifetimes that end are planned.

    deaths: restarts after deaths, so far. in_vain: lives in a row that kept nothing. mistake: the
    exception of the life before, if that kept nothing.
    """

    max_restarts: int
    deaths: int = 0
    in_vain: int = 0
    mistake: str | None = None

    def after(self, end: GangEnd, *, kept: bool, where: str) -> str | None:
        """Count one; returns why the run fails instead, if it does.

        kept: whether anything was written in this life. where: where that was looked for.
        """
        if end.verdict is Verdict.LIFETIME:
            self.in_vain = 0 if kept else self.in_vain + 1
            self.mistake = None
            return _in_vain(end, where) if self.in_vain >= LIVES_IN_VAIN else None
        self.in_vain = 0
        before, self.mistake = self.mistake, None if kept else _mistake(end)
        if self.deaths >= self.max_restarts:
            return _given_up(end, _how_often(self.deaths, self.max_restarts))
        if self.mistake is not None and self.mistake == before:
            return _given_up(end, "twice in a row, and nothing was written in between")
        self.deaths += 1
        return None


def in_a_line(end: GangEnd) -> str:
    """What ended a generation: `worker 1 raised ValueError: no`."""
    if end.failure is not None:
        return f"the channel failed: {in_short(end.failure)}"
    return _line(end.ends[0])


def _in_vain(end: GangEnd, where: str) -> str:
    lifetime_s = end.ends[0].invocation.limits.lifetime_s
    return (
        f"{LIVES_IN_VAIN} lives in a row came to the end of their {lifetime_s:g} s, and nothing "
        f"was written below {where} meanwhile: save a checkpoint there, such as when "
        "dayfly.checkpoint_due() says so, and load it at the start, or give a longer --lifetime"
    )


def _mistake(end: GangEnd) -> str | None:
    """What a script raised by itself: it would most likely do so again."""
    first = end.ends[0] if end.failure is None else None
    if first is None or first.outcome is not Outcome.RAISED or is_wire_error(first):
        return None
    return first.error


def _how_often(restarts: int, max_restarts: int) -> str:
    times = "once" if restarts == 1 else f"{restarts} times"
    done = f"all had started again {times}" if restarts else "no restart"
    return f"{done}, as --max-restarts {max_restarts} allows"


def _given_up(end: GangEnd, how_often: str) -> str:
    """The cause with its traceback first, then the others in a line each."""
    text = in_a_line(end)
    first = end.ends[0] if end.failure is None else None
    if first is not None and first.outcome is Outcome.OUT_OF_MEMORY:
        text += ": raise --memory, lower the batch size, or use more workers"
    elif first is not None and os.strerror(errno.ENOSPC) in (first.error or ""):
        text += ": make room where it writes, or, for its output, in the run's directory"
    text += f" ({how_often})"
    if first is not None:
        text += "".join(f"\n\n{trace}" for trace in _traceback(first))
    others = end.ends[1:] if first is not None else end.ends
    return text + "".join(f"\nalso: {_line(one)}" for one in others)


def _traceback(ended: Ended) -> Iterator[str]:
    if ended.outcome is Outcome.RAISED and ended.detail:
        yield ended.detail
    elif ended.outcome is Outcome.OUT_OF_MEMORY and "\n" in ended.detail:
        yield ended.detail.partition("\n")[2]


def _line(ended: Ended) -> str:
    return in_words(replace(ended, detail=ended.detail.partition("\n")[0]))
