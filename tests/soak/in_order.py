"""A thousand events in one run, one after another: what they are, and how they are brought about.

    1 kill        2 resize        3 kill   4 kill        5 hand-over      6 kill       7 coordinator
    |             |               |        |             |                             |
    at once       asked for ------|--------|-- took place                              at once
                                                         waited for -- took place

Kills come at once, also while the run changes its size. One resize or hand-over is under way at a
time. The run computes as many steps as it has events, and some: a file holds its steps up while
events are behind, and it ends soon after the last one.
"""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Literal

import numpy as np

from dayfly.life.control import Request, ask
from dayfly.life.reports import HANDED_OVER
from dayfly.runs.following import DirectoryEvents
from dayfly.specs.events import (
    Begun,
    ChangeAnswered,
    Ended,
    Event,
    GenerationBegun,
    RolledBack,
    StepTold,
)
from dayfly.wire.stores.files import FileStore
from tests.runs import small
from tests.soak import processes
from tests.soak.by_chance import MOST_KILLS, sent
from tests.soak.one_run import Disturbance
from tests.soak.plan import LEAVES

Kind = Literal["kill", "resize", "hand-over", "coordinator"]
#: Of a hundred events.
_SHARES: dict[Kind, float] = {"kill": 56, "resize": 24, "hand-over": 14, "coordinator": 6}
#: Mean time between two events, in seconds, where nothing else holds the second one up.
_GAP_S = 0.2
#: Epochs for so many events: with nine steps each, three steps an event.
_EVENTS_AN_EPOCH = small.STEPS_AN_EPOCH / 3
#: Pause before each sample while events are behind, in seconds: between 0.2 s and 1.6 s a step.
SAMPLE_S = 0.08
#: A resize that is refused so often, as its functions were killed before they were warm, is wrong.
_MOST_ASKS = 10
#: A line of progress after so many events.
_SAY_EVERY = 25


@dataclass(frozen=True, slots=True)
class Planned:
    """An event that is to take place.

    Args:
        number: from 1.
        kind: what happens.
        gap_s: after the event before it, at least.
        draw: from 0 to 1: which of the functions that live is killed.
        workers: of a resize: how many there are to be.
    """

    number: int
    kind: Kind
    gap_s: float
    draw: float
    workers: int


@dataclass(slots=True)
class _Took:
    """What became of an event: about the steps between which it took place."""

    words: str
    from_step: int
    to_step: int | None = None

    def __str__(self) -> str:
        last = "the end" if self.to_step is None else f"step {self.to_step}"
        return f"{self.words}, from step {self.from_step} to {last}"


def planned(seed: int, number: int, workers: int) -> tuple[Planned, ...]:
    """Returns the events of a run, which follow from the seed alone.

    Args:
        seed: of them.
        number: of events.
        workers: with which the run begins. Each resize is to another number of them.
    """
    random = np.random.default_rng([seed, number])
    shares = np.array(list(_SHARES.values()))
    kinds = random.choice(list(_SHARES), number, p=shares / shares.sum()).tolist()
    gaps_s = random.exponential(_GAP_S, number).round(3).tolist()
    draws = random.random(number).tolist()
    found = []
    for turn, (kind, gap_s, draw) in enumerate(zip(kinds, gaps_s, draws, strict=True)):
        if kind == "resize":
            workers = (workers - 1 + int(random.integers(1, LEAVES))) % LEAVES + 1
        found.append(Planned(turn + 1, kind, gap_s, draw, workers))
    return tuple(found)


def epochs(events: int) -> int:
    """Returns the number of epochs of a run with so many events."""
    return 2 + round(events / _EVENTS_AN_EPOCH)  # the hold is a moment late


class InOrder(Disturbance):
    """Brings events about.

    Args:
        events: in their order.
        directory: of the run.
        held: a file that holds the run's steps up while it exists.
        say: shows a line of progress.
    """

    def __init__(
        self,
        events: Sequence[Planned],
        directory: Path,
        held: Path,
        say: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._queue = deque(events)
        self._number = len(events)
        self._steps = epochs(len(events)) * small.STEPS_AN_EPOCH
        self._directory = directory
        self._told = DirectoryEvents(directory / "events")
        self._held = held
        self._held.touch()
        self._say = say
        self._took: list[_Took] = []
        self._waits: Planned | None = None  # a resize or hand-over, until it took place
        self._request: int | None = None  # of the resize
        self._asks = 0  # for it
        self._handed_over = 0  # that no event has counted yet
        self._step = 0  # completed ones, as far as workers told
        self._kills = 0  # since the last step
        self._dead: subprocess.Popen[bytes] | None = None  # the last coordinator that was killed
        self._fresh = True  # the generation that begins next is a life's first, or a roll-back's
        self._began = self._last = time.monotonic()

    def look(self, process: subprocess.Popen[bytes], *, stepped: bool, now: float) -> None:
        for _, event in self._told.look():
            self._hear(event)
        if stepped:
            self._kills = 0
        if self._step == 0:
            self._last = now
            return
        if self._waits is not None and self._waits.kind == "hand-over" and self._handed_over:
            self._handed_over -= 1
            self._took_place()
        while self._queue and now - self._last >= self._queue[0].gap_s:
            if not self._bring_about(self._queue[0], process):
                break
            self._last = now
            done = self._queue.popleft().number
            if done % _SAY_EVERY == 0:
                spent_s = now - self._began
                self._say(f"event {done}, step {self._step} of {self._steps}, {spent_s:.0f} s")
            if self._dead is process:
                break
        self._hold()

    def missing(self) -> str | None:
        """Returns what has not taken place once the run is over, if something has not."""
        if self._queue:
            return f"the run was over before event {self._queue[0].number} of {self._number}"
        return None if self._waits is None else f"the run was over before {self._under_way}"

    def during(self, steps: range) -> str:
        """Returns what took place in some steps, in words."""
        of = [
            str(one)
            for one in self._took
            if one.from_step < steps.stop and (one.to_step is None or one.to_step >= steps.start)
        ]
        return "; ".join(of) or "none"

    def write(self, file: Path) -> None:
        """Writes a line for each event: what it was, and about when."""
        file.write_text("".join(f"{one}\n" for one in self._took))

    def _hear(self, event: Event) -> None:
        match event:
            case StepTold():
                self._step = max(self._step, event.step + 1)
            case Begun() | RolledBack():
                self._fresh = True
            case GenerationBegun():
                if event.request is None and not self._fresh:
                    self._handed_over += 1  # successors of all workers were warm
                    self.counts["renewal"] += 1
                self._fresh = False
                if self._request is not None and event.request == self._request:
                    self._request = None
                    self._took_place()
            case ChangeAnswered(refused=str(why)) if event.request == self._request:
                assert self._waits is not None
                if self._asks < _MOST_ASKS:
                    self._ask(self._waits)
                else:
                    self.wrong = f"refused {self._asks} times, {self._under_way}: {why}"
            case Ended(result=result) if result is not None and result.status == HANDED_OVER:
                self._handed_over += 1

    def _bring_about(self, event: Planned, process: subprocess.Popen[bytes]) -> bool:
        """Whether it could be begun; else it is tried again at the next look."""
        match event.kind:
            case "kill" | "coordinator" if self._kills >= MOST_KILLS:
                return False
            case "kill":
                found = processes.functions(process.pid)
                names = sorted(found.keys() - {"zygote"})
                if not names:
                    return False
                victim = names[int(event.draw * len(names))]
                if not sent(found[victim], SIGKILL):
                    return False
                self._kills += 1
                self.counts["function"] += 1
                self._begins(event, f"kill of {victim}")
                self._took[-1].to_step = self._step
            case "coordinator":
                if not sent(process.pid, SIGKILL):
                    return False
                self._kills += 1
                self.counts["coordinator"] += 1
                self._dead = process
                self._begins(event, "kill of the coordinator")
                self._took[-1].to_step = self._step
            case _ if self._waits is not None:
                return False
            case "resize":
                self._waits, self._asks = event, 0
                self._ask(event)
                self._begins(event, f"resize to {event.workers}")
            case "hand-over":
                self._waits = event
                self._begins(event, "hand-over")
        return True

    @property
    def _under_way(self) -> _Took:
        """The resize or hand-over that is waited for."""
        assert self._waits is not None
        return self._took[self._waits.number - 1]

    def _begins(self, event: Planned, words: str) -> None:
        self._took.append(_Took(f"event {event.number} ({words})", self._step))
        self.done = str(self._took[-1])
        self.counts["events"] += 1

    def _took_place(self) -> None:
        self._under_way.to_step = self._step
        self._waits = None

    def _ask(self, event: Planned) -> None:
        request = Request(kind="scale", changes={"workers": event.workers})
        self._request = ask(FileStore(self._directory), request)
        self._asks += 1
        self.counts["asked"] += 1

    def _hold(self) -> None:
        """Hold the run's steps up while they are ahead of the events."""
        done = self._number - len(self._queue)
        if self._step * self._number > done * self._steps and (self._queue or self._waits):
            self._held.touch()
        else:
            self._held.unlink(missing_ok=True)
