"""What a supervisor remembers of its workers: of one generation, and of all that it had."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dayfly.life.deaths import Count


@dataclass(slots=True)
class States:
    """What workers of all generations tell of the states of their replicas: digests. Pure.

        step 716   generation 3   worker 0 computed a1f0   worker 1 computed a1f0
                   generation 4   worker 0 loaded a1f0     worker 1 loaded 77c2: another state

    Replicas of a stage have equal states before a step, whether they computed it or loaded it from
    the step's checkpoint, and whenever they did. Where the cut or the protocol changes, states are
    not the same; weights are, and so are sums of their digests over all stages:

        step 716   generation 3   stage 0 of cut 3   5   stage 1 of cut 3   4     together 9
                   generation 4   the whole model    9
    """

    _told: dict[tuple[int, str], tuple[str, str]] = field(default_factory=dict)
    _stages: dict[tuple[int, tuple[int, ...]], dict[int, Mapping[str, str]]] = field(
        default_factory=dict
    )
    _sums: dict[tuple[int, str], tuple[str, int]] = field(default_factory=dict)

    def note(self, who: str, record: Mapping[str, Any]) -> str | None:
        """Notes a worker's record; returns what is wrong with its state, or None.

        Args:
            who: the worker, and whether it `computed` or `loaded` the state.
            record: with the `step` before which the state is, what of the model the worker `holds`
                in words, if not all of it, and the state's `digest`; None or missing: it goes on
                within a round, where replicas differ. `sums` of digests, by what they are of in
                words, are of the worker's `stage` of a `cut`; missing: there are none.
        """
        if (digest := record.get("digest")) is None:
            return None
        step, holds = record["step"], record.get("holds", "")
        other, expected = self._told.setdefault((step, holds), (who, digest))
        if digest == expected:
            return self._note_sums(who, step, record)
        of = f" of {holds}" if holds else ""
        return _differing(
            f"{who} another state{of} before step {step} than {other}", digest, expected
        )

    def _note_sums(self, who: str, step: int, record: Mapping[str, Any]) -> str | None:
        """As `note`, of what states of other cuts and protocols have in common."""
        if (sums := record.get("sums")) is None:
            return None
        cut = tuple(record["cut"])
        stages = self._stages.setdefault((step, cut), {})
        stages[record["stage"]] = sums
        if len(stages) <= len(cut):
            return None  # others have not told yet
        for what in sorted({what for one in stages.values() for what in one}):
            total = sum(int(one.get(what, "0"), 16) for one in stages.values()) % 2**128
            other, expected = self._sums.setdefault((step, what), (who, total))
            if total != expected:
                said = f"{who} other {what} before step {step} than {other}"
                return _differing(said, f"{total:032x}", f"{expected:032x}")
        return None

    def keep(self, step: int) -> None:
        """Forgets other steps: those before are over, and those after may be computed anew."""
        self._told = {place: one for place, one in self._told.items() if place[0] == step}
        self._stages = {place: one for place, one in self._stages.items() if place[0] == step}
        self._sums = {place: one for place, one in self._sums.items() if place[0] == step}


def _differing(said: str, digest: str, expected: str) -> str:
    return (
        f"{said} (digests {digest} and {expected}): let the job make the same model, optimizer and "
        "scheduler in every process, and these load all that they save"
    )


@dataclass(slots=True, kw_only=True)
class Past:
    """What the generations of one supervisor share.

    Args:
        frontier: completed steps of the run, the most that there ever were.
        attempts: the latest of each rank.
        pause_s: before the functions of the next generation start, in seconds.
        step_s, checkpoint_s: the longest step, and the longest time to write a worker's part of a
            checkpoint.
        first_start_s, later_start_s: the longest start of a function until it was warm: of those
            that began before any was, for which their platform may have had to start itself, and of
            those after it. 0: there was none.
        warm_at: when the first function was warm, by the supervisor's clock in seconds.
        silences: of each rank, without a completed step between them.
        states: that workers told of.
    """

    frontier: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    pause_s: float = 0.0
    step_s: float = 0.0
    checkpoint_s: float = 0.0
    first_start_s: float = 0.0
    later_start_s: float = 0.0
    warm_at: float = math.inf
    silences: dict[int, Count] = field(default_factory=dict)
    states: States = field(default_factory=States)

    @property
    def start_s(self) -> float:
        """How long a successor takes to be warm, at most, as far as it is known, in seconds."""
        return self.later_start_s or self.first_start_s

    def started(self, began: float, now: float) -> None:
        """A function that began at `began` is warm."""
        if began < self.warm_at:
            self.first_start_s = max(self.first_start_s, now - began)
        else:
            self.later_start_s = max(self.later_start_s, now - began)
        self.warm_at = min(self.warm_at, now)

    def attempt(self, rank: int) -> int:
        """Returns the number of a rank's next attempt."""
        self.attempts[rank] = self.attempts.get(rank, -1) + 1
        return self.attempts[rank]


@dataclass(slots=True)
class WorkerState:
    """One worker of a generation.

    Args:
        attempt: the latest.
        started_from: the step of the checkpoint that it started from.
        caught_up: whether that attempt reads the message log no more.
        warm: whether it has all that it needs but the checkpoint.
        started_at: when its function was started, by the supervisor's clock in seconds.
        start_s: how long it took to be warm; None: it is not yet.
        status: how the worker ended, once nothing is left for it to do.
        start_at: when its next function is to start, by the supervisor's clock in seconds; None:
            one runs, or none is needed.
    """

    rank: int
    attempt: int = -1
    started_from: int = 0
    caught_up: bool = False
    warm: bool = False
    started_at: float = 0.0
    start_s: float | None = None
    status: str | None = None
    start_at: float | None = None

    def starts(self, attempt: int, from_step: int, now: float) -> None:
        """A new attempt begins at the checkpoint before `from_step`."""
        self.attempt, self.started_from, self.started_at = attempt, from_step, now
        self.caught_up, self.warm, self.start_s, self.start_at = False, False, None, None

    def reads_log_before(self, step: int) -> bool:
        """Whether it may read messages of earlier steps."""
        return self.status is None and not self.caught_up and self.started_from < step
