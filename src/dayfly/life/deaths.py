"""When a run gives up: three deaths of one cause without a completed step between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dayfly.life.platforms.base import Ended, Outcome

#: Deaths of one cause, without a completed step between them, that fail the run.
DEATHS_OF_ONE_CAUSE = 3
#: Kills from outside say nothing about the job, so they do not count towards the three; but even
#: they are no reason to start again for ever.
KILLS_FROM_OUTSIDE = 100
#: Nor are deaths of ever other causes.
DEATHS_WITHOUT_A_STEP = 100

#: Where an object lies differs from death to death of one cause.
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")

_REMEDIES = {
    Outcome.OUT_OF_MEMORY: (
        "raise --memory, lower the batch size, use more workers, or set accumulate= in the job"
    ),
    Outcome.LIFETIME: "raise --lifetime, so that a step and a start fit, or use more workers",
}


@dataclass(slots=True)
class _Count:
    deaths: int = 0
    frontier: int = -1

    def add(self, frontier: int) -> None:
        """A death; a completed step since the one before it starts the count anew."""
        self.deaths = self.deaths + 1 if frontier == self.frontier else 1
        self.frontier = frontier


@dataclass(slots=True)
class Deaths:
    """The deaths of a run so far; planned hand-overs and cancelled functions are none."""

    total: int = 0
    _counts: dict[tuple[Outcome, str], _Count] = field(default_factory=dict)
    _all: _Count = field(default_factory=_Count)

    def note(self, ended: Ended, frontier: int) -> str | None:
        """Count a death; returns the cause if the run is to fail with it.

        frontier: completed steps of the run so far.
        """
        self.total += 1
        detail = ended.detail if ended.outcome is Outcome.EXITED else ended.error or ""
        count = self._counts.setdefault((ended.outcome, _ADDRESS.sub("0x", detail)), _Count())
        count.add(frontier)
        self._all.add(frontier)
        outside = ended.outcome is Outcome.KILLED
        most = KILLS_FROM_OUTSIDE if outside else DEATHS_OF_ONE_CAUSE
        if count.deaths < most and self._all.deaths < DEATHS_WITHOUT_A_STEP:
            return None
        return cause(ended, frontier, max(count.deaths, self._all.deaths))


def cause(ended: Ended, frontier: int, deaths: int) -> str:
    """Why a run fails, for people: who, what, where, how often, what to do."""
    who = ended.invocation.function.replace("-", " ")
    what = {
        Outcome.RAISED: f"raised {ended.error}",
        Outcome.OUT_OF_MEMORY: f"ran out of memory ({ended.detail})",
        Outcome.LIFETIME: f"came to the end of its lifetime ({ended.detail})",
        Outcome.EXITED: f"ended itself ({ended.detail})",
        Outcome.KILLED: f"was killed from outside ({ended.detail})",
    }[ended.outcome]
    text = f"{who} {what} in step {frontier}, and so did functions {deaths} times in a row"
    if ended.outcome in _REMEDIES:
        text += f": {_REMEDIES[ended.outcome]}"
    if ended.outcome is Outcome.RAISED and ended.detail:
        text += f"\n\n{ended.detail}"
    return text
