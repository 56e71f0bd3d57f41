"""When a run gives up: three deaths of one cause without a completed step between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from dayfly.life.platforms.base import Ended, Outcome

#: Deaths of one cause, without a completed step between them, that fail the run.
DEATHS_OF_ONE_CAUSE = 3
#: Kills from outside say nothing about the job, so they do not count towards the three. But no
#: mixture of causes is a reason to start again for ever.
DEATHS_WITHOUT_A_STEP = 100

_REMEDIES = {
    Outcome.OUT_OF_MEMORY: (
        "raise --memory or --stage-memory, lower the batch size, use more --micro-batches, "
        "workers or replicas, or cut the model into more stages by --cut"
    ),
    Outcome.LIFETIME: "raise --lifetime, so that a step and a start fit, or use more workers",
    Outcome.RETURNED: "raise --lifetime, so that more steps and a checkpoint fit",
}
_GPU_REMEDY = (
    "give each function more of a GPU by --gpu, lower the batch size, or use more --micro-batches"
)


@dataclass(slots=True)
class _Count:
    """Deaths in a row, without a completed step between them."""

    deaths: int = 0
    frontier: int = -1

    def add(self, frontier: int) -> int:
        """Count one more, with so many steps completed; returns the deaths in a row."""
        self.deaths = self.deaths + 1 if frontier == self.frontier else 1
        self.frontier = frontier
        return self.deaths


@dataclass(slots=True)
class Deaths:
    """The deaths of a run so far; planned hand-overs and cancelled functions are none.

    A hand-over that loses what was done, as all workers go back to a checkpoint before it, counts
    like a death here.
    """

    _any: _Count = field(default_factory=_Count)
    _by_cause: dict[tuple[str, Outcome, str], _Count] = field(default_factory=dict)

    def note(self, ended: Ended, frontier: int) -> str | None:
        """Count a death; returns the cause if the run is to fail with it.

        frontier: completed steps of the run so far.
        """
        deaths = self._any.add(frontier)
        if deaths >= DEATHS_WITHOUT_A_STEP:
            return cause(ended, frontier, f"the last of {deaths} deaths in a row")
        if ended.outcome is Outcome.KILLED:
            return None
        deaths = self._by_cause.setdefault(_kind(ended), _Count()).add(frontier)
        if deaths < DEATHS_OF_ONE_CAUSE:
            return None
        return cause(ended, frontier, f"{deaths} times in a row")

    def note_channel(self, error: str, frontier: int) -> str | None:
        """Count a failure of the channel itself; returns the cause as `note` does."""
        failures = self._by_cause.setdefault(("", Outcome.RAISED, ""), _Count()).add(frontier)
        if failures < DEATHS_OF_ONE_CAUSE:
            return None
        return (
            f"the channel failed in step {frontier}, {failures} times in a row without a completed "
            f"step: {error}"
        )


def _kind(ended: Ended) -> tuple[str, Outcome, str]:
    """What makes two deaths one cause: one worker's exceptions of one type, whatever they say.

    Each worker counts for itself, as one event may hit them all: lifetimes end together.
    """
    detail = ""
    if ended.outcome is Outcome.RAISED:
        detail = (ended.error or "").partition(":")[0]
    elif ended.outcome is Outcome.EXITED:
        detail = ended.detail
    return ended.invocation.function, ended.outcome, detail


def cause(ended: Ended, frontier: int, how_often: str) -> str:
    """Why a run fails, for people: who, what, where, how often, what to do."""
    text = f"{in_words(ended)} in step {frontier}, {how_often} without a completed step"
    if ended.on_gpu:
        text += f": {_GPU_REMEDY}"
    elif ended.outcome in _REMEDIES:
        text += f": {_REMEDIES[ended.outcome]}"
    if ended.outcome is Outcome.RAISED and ended.detail:
        text += f"\n\n{ended.detail}"
    return text


def in_words(ended: Ended) -> str:
    """Who, and what happened to it: `worker 1 was killed from outside (killed by SIGKILL ...)`."""
    who = ended.invocation.function.replace("-", " ")
    what = {
        Outcome.RETURNED: "handed over to its successor",
        Outcome.RAISED: f"raised {ended.error}",
        Outcome.OUT_OF_MEMORY: f"ran out of memory ({ended.detail})",
        Outcome.LIFETIME: f"came to the end of its lifetime ({ended.detail})",
        Outcome.EXITED: f"ended itself ({ended.detail})",
        Outcome.KILLED: f"was killed from outside ({ended.detail})",
        Outcome.CANCELLED: f"was ended by its platform ({ended.detail})",
    }[ended.outcome]
    return f"{who} {what}"
