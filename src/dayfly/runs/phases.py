"""Where the seconds of a run went: start-up time, training time, and the end, by its events.

    asked     functions invoked     first step    last step, validation       over
      |=== command ===|=== workers ===|========= training =========|==== end ====|
      |======= start-up time =========|======= training time ======|
      |============================= total time =================================|

A run of several lives of its coordinator spends each phase once in each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise

from dayfly.runs.events import Events
from dayfly.specs.events import Begun, EpochTold, Event, Invoked, RoundTold, StepTold


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Seconds of each phase. A life of the coordinator without a step is all start-up.

    Attributes:
        command_s: from the request to the first invocation.
        workers_s: from the first invocation to the first step.
        training_s: from the first step to the end of the last step or validation.
        end_s: from the end of training to the end of the run.
    """

    command_s: float = 0.0
    workers_s: float = 0.0
    training_s: float = 0.0
    end_s: float = 0.0

    @property
    def start_s(self) -> float:
        """Start-up time: from the request to the first step."""
        return self.command_s + self.workers_s

    def __add__(self, other: Phases) -> Phases:
        names = [one.name for one in fields(Phases)]
        return Phases(**{name: getattr(self, name) + getattr(other, name) for name in names})


def phases(
    events: Events, *, asked_at: float | None = None, over_at: float | None = None
) -> Phases:
    """Returns the phases of a run.

    Args:
        events: all of the run's.
        asked_at: Unix time at which its first life was asked for; None: as the run itself knows.
        over_at: Unix time at which its last life was over; None: its last event.
    """
    lives = list(_lives(events.coordinator))
    total = Phases()
    for number, life in enumerate(lives):
        before = lives[number + 1][0].at if number + 1 < len(lives) else math.inf
        first = life[0].asked_at if isinstance(life[0], Begun) else life[0].at
        if number == 0 and asked_at is not None:
            first = asked_at
        heard = [
            one
            for records in events.workers.values()
            for one in records
            if life[0].at <= one.at < before
        ]
        last = max(one.at for one in (*life, *heard))
        if number == len(lives) - 1 and over_at is not None:
            last = over_at
        invoked = min((one.at for one in life if isinstance(one, Invoked)), default=last)
        steps = [
            (one.began_s, one.began_s + s) for one in heard if (s := step_s_of(one)) is not None
        ]
        began = min((began for began, _ in steps), default=last)
        validated = [one.at for one in heard if isinstance(one, EpochTold)]
        ended = max((*(ended for _, ended in steps), *validated), default=last)
        moments = (first, invoked, began, ended, last)
        spent = (max(0.0, after - before) for before, after in pairwise(moments))
        names = ("command_s", "workers_s", "training_s", "end_s")
        total += Phases(**dict(zip(names, spent, strict=True)))
    return total


def _lives(coordinator: tuple[Event, ...]) -> Iterator[list[Event]]:
    """The coordinator's records of each life; earlier versions did not say where one begins."""
    life: list[Event] = []
    for one in coordinator:
        if isinstance(one, Begun) and life:
            yield life
            life = []
        life.append(one)
    if life:
        yield life


def step_s_of(record: Event) -> float | None:
    """How long what it tells of took, in seconds, if it tells of steps."""
    match record:
        case StepTold():
            return record.step_s
        case RoundTold():
            return record.round_s
    return None
