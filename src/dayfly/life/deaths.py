"""When a run gives up, and how long a worker waits before it starts again. Pure: it reads no clock.

    what ended a worker                          the run fails
    an exception of the job                      at its second coming at the same step and line
    anything else from inside, by one cause      at the third, without a completed step between them
    kills from outside                           never by their number

Whatever the causes, a run fails that got no step further for a quarter of an hour since a death.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from dayfly.errors import RunFailed, SureToFail, in_short
from dayfly.life.ends import GenerationEnd, from_outside, in_words
from dayfly.life.failure import Origin
from dayfly.life.platforms.base import Ended, Outcome
from dayfly.life.reports import KEPT_BY_WORKER

#: Deaths of one cause from inside, without a completed step between them, that fail the run.
DEATHS_OF_ONE_CAUSE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long deaths are borne with that get in the way of a run without being its fault.

    Args:
        without_progress_s: seconds from a death on without any progress, after which it is given
            up.
        first_pause_s: before the second start in a row; twice as long before each that follows, and
            at most longest_pause_s. Seconds.
    """

    without_progress_s: float = 15 * 60.0
    first_pause_s: float = 0.05
    longest_pause_s: float = 30.0

    def pause_s(self, deaths: int) -> float:
        """How long to wait with a start after so many deaths in a row, at least one."""
        if deaths < 2:
            return 0.0
        # Beyond 2^30 times the first pause it is the longest one anyway.
        return min(self.first_pause_s * 2.0 ** min(deaths - 2, 30), self.longest_pause_s)


PATIENCE = Patience()


class Restart(Enum):
    """Who starts again after a worker's death."""

    ONE = "one"  # the dead one, which catches up from what the channel kept
    ALL = "all"  # all, in the next generation


_REMEDIES = {
    Outcome.OUT_OF_MEMORY: (
        "raise --memory or --stage-memory, lower the batch size, use more --micro-batches, "
        "workers or replicas, or cut the model into more stages by --cut"
    ),
    Outcome.LIFETIME: "raise --lifetime, so that a step and a start fit, or use more workers",
    Outcome.RETURNED: "raise --lifetime, so that more steps and a checkpoint fit",
    Outcome.SILENT: "find out what stops functions there; their logs say how far they came",
    Outcome.KILLED: "find out what kills processes here, such as too little memory of the machine",
}
#: The same under a protocol by which workers hand over between rounds alone.
_BY_ROUNDS = dict.fromkeys(
    (Outcome.LIFETIME, Outcome.RETURNED),
    "workers hand over between rounds only: raise --lifetime, so that a start, a checkpoint and "
    "three rounds fit, or give a smaller --k",
)
_GPU_REMEDY = (
    "give each function more of a GPU by --gpu, lower the batch size, or use more --micro-batches"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows from a death: the run fails with `failure`, or there is a start in `pause_s`."""

    failure: RunFailed | None = None
    pause_s: float = 0.0


class RestartPolicy(ABC):
    """Which workers start again after a death, whether and when. It counts, and reads no clock.

    Attributes:
        restart: one worker, or all.
        planned: outcomes of functions that are no deaths.
        stops_in_order: whether workers that are asked to stop end by themselves, after a
            checkpoint; otherwise they are killed.
        hears_stop_s: longest time until a worker looks whether it is asked to stop.
        heartbeat_s: between two heartbeats of a worker for which a peer waits; None: there are
            none.
    """

    restart: Restart
    planned: Sequence[Outcome] = ()
    stops_in_order = True
    hears_stop_s: float = 0.0
    heartbeat_s: float | None = None

    def died(self, ended: Ended, frontier: int, now: float) -> Verdict:
        """Counts a death, and decides what follows, where one starts again.

        Args:
            ended: the function that died.
            frontier: completed steps of the run so far.
            now: seconds of a monotonic clock.
        """
        return self.all_ended(GenerationEnd([ended], frontier=frontier), now)

    @abstractmethod
    def all_ended(self, end: GenerationEnd, now: float) -> Verdict:
        """Counts the end of a generation before its work was done, and decides what follows.

        Args:
            end: how it ended.
            now: seconds of a monotonic clock.
        """


@dataclass(slots=True)
class Count:
    """Events in a row, without progress between them.

    Args:
        number: of them.
        since: when the first was; by the caller's clock, in seconds.
    """

    number: int = 0
    since: float = 0.0
    _progress: int = -1

    def add(self, progress: int, now: float = 0.0) -> int:
        """Counts one more; returns how many there are in a row.

        Args:
            progress: rises with progress.
        """
        if progress != self._progress:
            self.number, self.since, self._progress = 0, now, progress
        self.number += 1
        return self.number

    def in_row(self, progress: int) -> int:
        """Returns how many there are in a row by now; `progress` as of `add`."""
        return self.number if progress == self._progress else 0


@dataclass(slots=True)
class Deaths(RestartPolicy):
    """The deaths of a job's run so far: its policy. Hand-overs and cancelled functions are none.

    A hand-over that loses what was done, as all workers go back to a checkpoint before it, counts
    like a death here.

    Args:
        by_rounds: whether workers hand over between rounds of several steps alone.
    """

    restart: Restart = Restart.ONE
    hears_stop_s: float = 0.0
    heartbeat_s: float | None = None
    patience: Patience = PATIENCE
    by_rounds: bool = False
    _all: Count = field(default_factory=Count)
    _by_function: dict[str, Count] = field(default_factory=dict)
    _by_cause: dict[tuple[str, Outcome, str], Count] = field(default_factory=dict)
    #: Exceptions of the job so far, and how many steps were completed then.
    _raised: dict[tuple[str, str, str | None, int | None], int] = field(default_factory=dict)

    def died(self, ended: Ended, frontier: int, now: float) -> Verdict:
        self._all.add(frontier, now)
        if self._came_before(ended, frontier):
            return Verdict(failure=SureToFail(_same_again(ended, frontier)))
        if not from_outside(ended):
            deaths = self._by_cause.setdefault(_kind(ended), Count()).add(frontier)
            if deaths >= DEATHS_OF_ONE_CAUSE:
                often = f"{deaths} times in a row"
                return Verdict(failure=RunFailed(self._cause(ended, frontier, often)))
        if (too_long := self._too_long(now)) is not None:
            return Verdict(failure=RunFailed(self._cause(ended, frontier, too_long)))
        deaths = self._by_function.setdefault(ended.invocation.function, Count()).add(frontier)
        return Verdict(pause_s=self.patience.pause_s(deaths))

    def all_ended(self, end: GenerationEnd, now: float) -> Verdict:
        if end.first is None and end.lost is not None:
            return self._channel_failed(in_short(end.lost), end.frontier, now)
        counted = end.causes or [one for one in end.hand_overs if _is_lost(one, end)]
        found = [self.died(one, end.frontier, now) for one in counted]
        failing = (one for one in found if one.failure is not None)
        pause_s = max((one.pause_s for one in found), default=0.0)
        return next(failing, Verdict(pause_s=pause_s))

    def _channel_failed(self, error: str, frontier: int, now: float) -> Verdict:
        self._all.add(frontier, now)
        failures = self._by_cause.setdefault(("", Outcome.RAISED, ""), Count()).add(frontier)
        often = self._too_long(now)
        if failures >= DEATHS_OF_ONE_CAUSE:
            often = f"{failures} times in a row"
        if often is None:
            return Verdict(pause_s=self.patience.pause_s(failures))
        text = f"the channel failed in step {frontier}, {often} without a completed step: {error}"
        return Verdict(failure=RunFailed(text))

    def _cause(self, ended: Ended, frontier: int, how_often: str) -> str:
        return cause(ended, frontier, how_often, by_rounds=self.by_rounds)

    def _came_before(self, ended: Ended, frontier: int) -> bool:
        """Whether it is an exception of the job that this worker raised before, at the same place.

        Of one that was raised outside of any step, such as where the model is built, it counts only
        if no step was completed meanwhile.
        """
        if (failure := ended.failure) is None or failure.origin is not Origin.JOB:
            return False
        what = ended.invocation.function, failure.kind, failure.place, failure.step
        before = self._raised.get(what)
        self._raised[what] = frontier
        return before is not None and (failure.step is not None or before == frontier)

    def _too_long(self, now: float) -> str | None:
        """How often there were deaths, in words, if there was no progress for too long."""
        dead_s = now - self._all.since
        if dead_s <= self.patience.without_progress_s:
            return None
        return f"the last of {self._all.number} deaths in {dead_s:.0f} s"


def _is_lost(hand_over: Ended, end: GenerationEnd) -> bool:
    """Whether nothing is kept of it: what it did is redone, and that must not go on for ever."""
    assert hand_over.result is not None
    kept, step = hand_over.result["kept"], hand_over.result["step"]
    if kept == KEPT_BY_WORKER:
        return bool(step != end.checkpoint_step)
    return kept is None or step > end.checkpoint_step


def _same_again(ended: Ended, frontier: int) -> str:
    failure = ended.failure
    assert failure is not None, "an exception came again"
    step = frontier if failure.step is None else failure.step
    return (
        f"{in_words(ended)} in step {step}, twice at {failure.place}: it would come again, so the "
        f"run ends here\n\n{failure.traceback}"
    )


def _kind(ended: Ended) -> tuple[str, Outcome, str]:
    """What makes two deaths one cause: one worker's exceptions of one type, whatever they say.

    Each worker counts for itself, as one event may hit them all: lifetimes end together.
    """
    detail = ""
    if ended.failure is not None:
        detail = ended.failure.kind
    elif ended.outcome is Outcome.EXITED:
        detail = ended.detail
    return ended.invocation.function, ended.outcome, detail


def cause(ended: Ended, frontier: int, how_often: str, *, by_rounds: bool = False) -> str:
    """Why a run fails, for people: who, what, where, how often, what to do."""
    remedies = _REMEDIES | _BY_ROUNDS if by_rounds else _REMEDIES
    text = f"{in_words(ended)} in step {frontier}, {how_often} without a completed step"
    if ended.on_gpu:
        text += f": {_GPU_REMEDY}"
    elif ended.outcome in remedies:
        text += f": {remedies[ended.outcome]}"
    if ended.failure is not None and ended.failure.traceback:
        text += f"\n\n{ended.failure.traceback}"
    return text
